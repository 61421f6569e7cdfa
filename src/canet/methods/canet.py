"""CaNet: the supervised loss with a regulariser that keeps environments close to a prior."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from canet.methods.base import Batch
from canet.methods.interventions import InterveningMethod, InterventionSettings
from canet.methods.traits import Traits
from canet.nn import Backbone, CaNet, Environment
from canet.nn.environment import EnvironmentEstimator, EstimatorKind
from canet.nn.layer import Propagation
from canet.settings import setting
from canet.util.colour import Colour

NUM_PSEUDO_INPUTS = 64


@dataclass(frozen=True)
class CaNetSettings(InterventionSettings):
    num_environments: int = setting(
        3,
        "K, number of pseudo-environments and branches",
        minimum=1,
        maximum=1000,
        search=(3, 5, 10),
    )
    tau: float = setting(
        1.0, "temperature of the Gumbel-Softmax sample", above=0, search=(1, 3, 5, 10)
    )
    estimator: EstimatorKind = setting(
        "graph",
        "input of the environment estimator: node (the node alone) or graph (also its neighbours)",
    )
    propagation: Propagation = setting(
        "symmetric", "normalisation of the propagation in gcn branches"
    )
    prior: Literal["uniform", "mixture", "none"] = setting(
        "uniform",
        "prior of the pseudo-environments: uniform, mixture (of posteriors), or none (no "
        "regulariser)",
    )
    reg_weight: float = setting(
        1.0, "λ, weight of the regulariser", minimum=0, search=(0.1, 0.5, 1.0, 2.0)
    )
    shared_environment: bool = setting(
        False, "infer one pseudo-environment in the first layer and use it in all layers"
    )
    learned_environment: bool = setting(
        True, "infer pseudo-environments; false: all branches have equal weight"
    )
    estimator_learning_rate: float | None = setting(
        None, "learning rate of the environment estimator; none: the same as learning_rate", above=0
    )


class CaNetMethod(InterveningMethod):
    r"""Causal intervention with inferred environments (Wu et al., WWW '24). It minimises

    .. math:: \frac{1}{|V_{tr}|} \sum_{v \in V_{tr}} \left[ -y_v^\top \log \hat y_v
              + \frac{\lambda}{L} \sum_l \sum_k e_{vk}^{(l)}
              (\log \pi_{vk}^{(l)} - \log p_0(k)) \right],

    a variational bound on $-\log p(Y | do(G))$. The environment estimator and the predictor may
    have different learning rates.
    """

    name = "canet"
    label = "CaNet"
    colour = Colour("#d55e00", "#ff8c3b")
    summary = "environment estimator and mixture-of-experts GNN, without environment labels"
    paper = "Wu et al., Graph Out-of-Distribution Generalization via Causal Intervention, WWW 2024"
    traits = Traits(trains_in_batches=True, capturable=True)
    settings_type = CaNetSettings
    model: CaNet

    def setup(self) -> None:
        self.prior: MixturePrior | None = None
        if self.settings.prior == "mixture" and self.settings.learned_environment:
            width = self.settings.hidden * (2 if self.settings.estimator == "graph" else 1)
            self.prior = MixturePrior(len(self.model.estimators), width)

    def build_model(self, backbone: str | Backbone, num_features: int, num_classes: int) -> CaNet:
        names = (
            *("hidden", "num_layers", "dropout", "direction", "norm", "num_environments", "tau"),
            *("estimator", "propagation", "shared_environment", "learned_environment"),
        )
        return CaNet(num_features, num_classes, backbone=backbone, **self.chosen(*names))

    def loss(self, batch: Batch) -> Tensor:
        prediction = self.model(batch.x, batch.blocks)
        supervised = self.node_losses(prediction.logits, batch.y, batch.weight).mean()
        if self.settings.prior == "none" or not prediction.environments:
            return supervised
        divergence = self.divergence(prediction.environments, batch.y.numel())
        return torch.add(supervised, divergence, alpha=self.settings.reg_weight)

    def divergence(self, environments: Sequence[Environment], num_nodes: int) -> Tensor:
        """Return the regulariser of the first nodes, averaged over nodes and layers, a scalar."""
        total: Any = 0
        for layer, whole in enumerate(environments):
            environment = whole.first(num_nodes)
            total = total + environment.total_expected_log()
            if self.prior is not None:
                log_prior = self.prior(layer, self.model.estimators[layer])
                total = total - environment.sample.sum(dim=0) @ log_prior
        mean = total / (num_nodes * len(environments))
        # The entries of e sum to one for each node, so a uniform prior adds a constant.
        return mean + math.log(self.settings.num_environments) if self.prior is None else mean

    def posteriors(self, batch: Batch) -> list[Tensor]:
        environments = self.model(batch.x, batch.blocks).environments
        return [e.log_posterior[: batch.y.numel()].exp() for e in environments]

    def parameter_groups(self) -> list[dict[str, Any]]:
        estimator = [p for part in self.model.estimators for p in part.parameters()]
        if self.prior is not None:
            estimator.append(self.prior.pseudo_inputs)
        members = {id(parameter) for parameter in estimator}
        predictor = [p for p in self.parameters() if id(p) not in members]
        rate = self.settings.learning_rate
        estimator_rate = self.settings.estimator_learning_rate or rate
        if not estimator or estimator_rate == rate:
            return [{"params": predictor + estimator, "lr": rate}]
        return [{"params": predictor, "lr": rate}, {"params": estimator, "lr": estimator_rate}]


class MixturePrior(nn.Module):
    r"""Variational mixture of posteriors (Tomczak and Welling, AISTATS '18).

    The prior of each layer is the mean posterior of M learned pseudo-inputs,
    $p_0(k) = \frac{1}{M} \sum_m \pi_k(u_m)$, for layers whose estimator has inputs of size `width`.
    """

    def __init__(self, num_layers: int, width: int) -> None:
        super().__init__()
        self.pseudo_inputs = nn.Parameter(torch.randn(num_layers, NUM_PSEUDO_INPUTS, width))

    def forward(self, layer: int, estimator: EnvironmentEstimator) -> Tensor:
        """Return $\\log p_0$ $[K]$ of a layer."""
        log_posterior = F.log_softmax(estimator.linear(self.pseudo_inputs[layer]), dim=-1)
        return log_posterior.logsumexp(dim=0) - math.log(NUM_PSEUDO_INPUTS)
