"""CaNet: an environment estimator and a mixture of K branches in each layer."""

from collections.abc import Sequence
from typing import Any, get_args

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from canet.errors import InputError, check_name
from canet.nn.backbones import Backbone, get_backbone
from canet.nn.blocks import Block, Operator
from canet.nn.environment import Environment, EnvironmentEstimator, EstimatorKind
from canet.nn.layer import Branches, LayerInput, Propagation
from canet.nn.model import Features, GraphModel, Prediction


class CaNet(GraphModel):
    r"""CaNet of "Graph Out-of-Distribution Generalization via Causal Intervention" (WWW '24).

    Each of L layers infers a pseudo-environment per node and mixes K branches with it,

    .. math:: z^{(1)} = \phi_{in}(x), \quad
              z_u^{(l+1)} = \sigma\left(\sum_k e_{uk}^{(l)}\,\mathrm{branch}^{(l,k)}(z^{(l)})_u
              + z_u^{(l)}\right), \quad \hat y = \phi_{out}(z^{(L+1)}),

    where $e^{(l)}$ comes from :class:`EnvironmentEstimator`, and the branches with the residual
    connection are the :class:`Branches` of a backbone. Dropout is applied first in every layer, so
    that estimator, branches and residual connection see the same $z$. With `norm`, each
    $z^{(l+1)}$ is normalised.

    `CaNet(...)(x, edge_index)` returns logits. Cross-entropy on them is only the supervised part of
    the objective; :class:`canet.methods.canet.CaNetMethod` adds the divergence of the environments
    from their prior. Environments are sampled in training mode only.

    Args:
        num_features: $D$.
        num_classes: $C$.
        num_environments: $K$.
        backbone: Name of the backbone whose layers are the branches, or a :class:`Backbone`.
        estimator: `node` infers the environment from the node alone, `graph` also from its
            neighbours, with symmetric propagation. If the branches propagate symmetrically, the
            estimator shares their product; otherwise it propagates along the edges itself.
        tau: Temperature of the Gumbel-Softmax sample.
        propagation: `symmetric` normalisation or plain `sum` (backbone `gcn` only).
        shared_environment: Use one environment, inferred in the first layer, for all layers
            (the paper's ablation "w/o Layer Env").
        learned_environment: If False, there is no estimator and all branches have equal weight
            (the paper's ablation "w/o Para Env").
        **options: Other arguments of :class:`GraphModel`.

    Shapes:
        - x $[N, D]$, edge_index $[2, E]$ → logits $[N, C]$
        - x $[n_{src}, D]$, L blocks → :class:`Prediction` with logits $[n, C]$ and L environments
    """

    def __init__(
        self,
        num_features: int,
        num_classes: int,
        *,
        num_environments: int = 3,
        backbone: str | Backbone = "gcn",
        estimator: EstimatorKind = "node",
        tau: float = 1.0,
        propagation: Propagation = "symmetric",
        shared_environment: bool = False,
        learned_environment: bool = True,
        **options: Any,
    ) -> None:
        super().__init__(num_features, num_classes, **options)
        check_name("estimator", estimator, get_args(EstimatorKind))
        check_name("propagation", propagation, get_args(Propagation))
        if num_environments < 1:
            raise InputError(f"num_environments is {num_environments}: it must be 1 or more")
        self.num_environments = num_environments
        self.branches: Sequence[Branches] = nn.ModuleList(  # type: ignore[assignment]
            get_backbone(backbone).branches(
                self.hidden, num_environments, self.direction, propagation
            )
            for _ in range(self.num_layers)
        )
        shared = self.branches[0].gather_operator
        needs_none = estimator == "node" or (shared is not None and shared.kind == "symmetric")
        operator = None if needs_none else Operator("symmetric")
        num_estimators = 0
        if learned_environment:
            num_estimators = 1 if shared_environment else self.num_layers
        self.estimators: Sequence[EnvironmentEstimator] = nn.ModuleList(  # type: ignore[assignment]
            EnvironmentEstimator(self.hidden, num_environments, estimator, tau, operator)
            for _ in range(num_estimators)
        )

    @property
    def operators(self) -> tuple[Operator, ...]:
        needed = [*self.branches[0].operators, *(e.operator for e in self.estimators)]
        return tuple(dict.fromkeys(operator for operator in needed if operator is not None))

    def forward_blocks(self, x: Features, blocks: Sequence[Block]) -> Prediction:
        z = self.first_states(x)
        environments: list[Environment] = []
        for layer, block in enumerate(blocks):
            z = self._layer(layer, z, block, environments)
        return Prediction(self.phi_out(self.drop(z)), z, tuple(environments))

    def first_states(self, x: Features) -> Tensor:
        return F.relu(self.project(x, self.phi_in.bias))

    def next_states(self, layer: int, states: Tensor, block: Block) -> Tensor:
        """After the first layer, the states also contain a shared environment."""
        z, shared = states[:, : self.hidden].contiguous(), states[:, self.hidden :]
        environments = [Environment(shared.log(), shared)] if shared.shape[1] else []
        z = self._layer(layer, z, block, environments)
        if len(self.estimators) < self.num_layers and environments:
            z = torch.cat([z, environments[-1].first(len(z)).sample], dim=1)
        return z

    def graph_sums(self, layer: int, states: Tensor, number: Tensor, num_graphs: int) -> Tensor:
        z = states[:, : self.hidden]
        return self.branches[layer].graph_sums(z, number, num_graphs)

    def last_prediction(self, states: Tensor) -> Prediction:
        z = states[:, : self.hidden]
        return Prediction(self.phi_out(self.drop(z)), z)

    def _layer(
        self, layer: int, z: Tensor, block: Block, environments: list[Environment]
    ) -> Tensor:
        """Apply one layer to z $[n_{src}, H]$, and append the environment that it infers."""
        branches = self.branches[layer]
        # A layer without an estimator uses the first layer's environment, or equal weights.
        estimator = self.estimators[layer : layer + 1]
        states = LayerInput(self.drop(z), block, branches, estimator)
        environments += [module.estimate(states) for module in estimator]
        if environments:
            e = environments[-1].first(block.num_dst).sample
        else:
            shape = block.num_dst, self.num_environments
            e = states.own.new_full(shape, 1 / self.num_environments)
        return self.normalise(branches(states, e), layer)
