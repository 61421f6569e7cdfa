"""CaNet: environment estimators and mixture-of-expert propagation, layer by layer."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from canet.nn import kernels
from canet.nn.blocks import Block, Direction, Operator
from canet.nn.environment import Environment, EnvironmentEstimator, EstimatorKind
from canet.nn.model import Features, GraphModel, Prediction
from canet.nn.propagation import AttentionBranches, ConvolutionBranches

Propagation = Literal["symmetric", "sum"]


class CaNet(GraphModel):
    r"""CaNet of "Graph Out-of-Distribution Generalization via Causal Intervention" (WWW '24).

    Each of L layers infers a pseudo environment per node and mixes K branches with it,

    .. math:: z^{(1)} = \phi_{in}(x), \quad
              z_u^{(l+1)} = \sigma\left(\sum_k e_{uk}^{(l)}\,\mathrm{branch}^{(l,k)}(z^{(l)})_u
              + z_u^{(l)}\right), \quad \hat y = \phi_{out}(z^{(L+1)}),

    where $e^{(l)}$ comes from :class:`EnvironmentEstimator` and the branches are convolutions
    (:class:`ConvolutionBranches`) or attention networks (:class:`AttentionBranches`). Dropout
    comes first in every layer, so that estimator, branches and residual link see the same $z$.

    Args:
        num_features: $D$.
        num_classes: $C$.
        hidden: $H$.
        num_layers: $L$.
        num_environments: $K$.
        backbone: Branches are convolutions (`gcn`) or attention networks (`gat`).
        estimator: `node` infers environments from a node alone, `graph` also from its neighbours.
        tau: Temperature of the Gumbel-Softmax sample.
        dropout: Probability of dropping an input or hidden unit when training.
        propagation: `symmetric` normalisation or plain `sum`, for `gcn`.
        direction: Propagate `along` the edges or `against` them. The `graph` estimator shares a
            symmetric propagation; beside another it has a symmetric one along the edges.
        shared_environment: One environment, inferred at the first layer, for all layers
            (the paper's ablation "w/o Layer Env").
        learned_environment: False mixes the branches by their plain mean, with no estimator
            (the paper's ablation "w/o Para Env").

    Shapes:
        - x $[n_{src}, D]$, L blocks → :class:`Prediction` with logits $[n, C]$ and L environments
    """

    def __init__(
        self,
        num_features: int,
        num_classes: int,
        hidden: int = 64,
        num_layers: int = 2,
        num_environments: int = 3,
        backbone: str = "gcn",
        estimator: EstimatorKind = "node",
        tau: float = 1.0,
        dropout: float = 0.0,
        propagation: Propagation = "symmetric",
        direction: Direction = "along",
        shared_environment: bool = False,
        learned_environment: bool = True,
    ) -> None:
        super().__init__(num_features, num_classes, hidden, num_layers, dropout)
        self.num_environments = num_environments
        self.shared_environment = shared_environment
        kind = "attention" if backbone == "gat" else propagation
        self.operator = Operator(kind, direction)
        self.estimator_operator: Operator | None = None
        if learned_environment and estimator == "graph":
            shared = self.operator.kind == "symmetric"
            self.estimator_operator = self.operator if shared else Operator("symmetric")
        make_branches = AttentionBranches if backbone == "gat" else ConvolutionBranches
        self.branches = nn.ModuleList(
            make_branches(hidden, num_environments) for _ in range(num_layers)
        )
        num_estimators = (1 if shared_environment else num_layers) if learned_environment else 0
        self.estimators = nn.ModuleList(
            EnvironmentEstimator(hidden, num_environments, estimator, tau)
            for _ in range(num_estimators)
        )

    @property
    def operators(self) -> tuple[Operator, ...]:
        needed = (self.operator, self.estimator_operator)
        return tuple(dict.fromkeys(operator for operator in needed if operator is not None))

    def forward(self, x: Features, blocks: Sequence[Block]) -> Prediction:
        z = F.relu(self.project(x, self.phi_in.bias))
        environments: list[Environment] = []
        for layer, (branches, block) in enumerate(zip(self.branches, blocks, strict=True)):
            z = self.drop(z)
            own, gathered = z[: block.num_dst], None
            if isinstance(branches, ConvolutionBranches):
                gathered, own = block.matrices[self.operator].beside_own(z)
                if not kernels.fused_mixture(gathered, branches.weight):
                    # Composed operations read both as one; joined once, they share it.
                    gathered = torch.cat([gathered, own], dim=1)
            estimator = self._estimator(layer)
            mapped = self._map(branches, estimator, z)
            if estimator is not None:
                environments.append(self._infer(estimator, mapped, own, gathered, block))
            e = self._mixture(environments, own)
            if gathered is not None:
                z = branches(gathered, own, e)
            else:
                z = branches(z, mapped[branches], block.matrices[self.operator].pattern, e)
        return Prediction(self.phi_out(self.drop(z)), z, tuple(environments))

    def _map(
        self, branches: nn.Module, estimator: EnvironmentEstimator | None, z: Tensor
    ) -> dict[nn.Module, Tensor]:
        """What attention, and an estimator with a propagation of its own, propagate of z.

        All of it is one product, $[n_{src}, H]$ → $[n_{src}, 2K]$ for each.
        """
        readers: list[AttentionBranches | EnvironmentEstimator] = []
        if isinstance(branches, AttentionBranches):
            readers.append(branches)
        if estimator is not None and self.estimator_operator not in (None, self.operator):
            readers.append(estimator)
        if not readers:
            return {}
        products = z @ torch.cat([reader.maps() for reader in readers], dim=1)
        return dict(zip(readers, products.chunk(len(readers), dim=1), strict=True))

    def _estimator(self, layer: int) -> EnvironmentEstimator | None:
        """The layer's own estimator; layers without one take the environment of an earlier layer,
        or the mean of the branches.
        """
        if layer >= len(self.estimators):
            return None
        estimator = self.estimators[layer]
        assert isinstance(estimator, EnvironmentEstimator)
        return estimator

    def _infer(
        self,
        estimator: EnvironmentEstimator,
        mapped: dict[nn.Module, Tensor],
        own: Tensor,
        gathered: Tensor | None,
        block: Block,
    ) -> Environment:
        """A layer's environment from what was `mapped` for it, or from the readers' own rows of z
        $[n_{dst}, H]$ and, of a convolution, $\\hat A z$ $[n_{dst}, H]$, which may serve here too;
        or from both side by side.
        """
        if self.estimator_operator is not None and estimator in mapped:
            return estimator.propagate(block.matrices[self.estimator_operator], mapped[estimator])
        environment: Environment
        if self.estimator_operator is None or gathered is None:
            environment = estimator(own)
        elif gathered.shape[1] > own.shape[1]:
            environment = estimator(gathered)
        else:
            environment = estimator(own, gathered)
        return environment

    def _mixture(self, environments: list[Environment], own: Tensor) -> Tensor:
        """The weights $e$ $[n_{dst}, K]$ of the current layer's branches."""
        if not environments:
            return own.new_full((own.shape[0], self.num_environments), 1 / self.num_environments)
        return environments[-1].first(own.shape[0]).sample
