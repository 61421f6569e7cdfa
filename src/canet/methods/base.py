"""What a method is: a model, what is minimised, and which parameters learn how fast."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, get_args

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from canet.nn import Backbone, Block, Features, GraphModel, get_backbone
from canet.nn.blocks import Direction
from canet.nn.model import Norm
from canet.settings import check, setting
from canet.util.colour import Colour

LossName = Literal["cross_entropy", "binary_cross_entropy"]
Preparation = Literal["raw", "rows", "centred", "standardised", "quantile"]
MAX_WIDTH = 2**14
"""Of a layer: its square matrix takes a gigabyte."""


@dataclass(frozen=True)
class Settings:
    """Settings of every method; a method's own come in a subclass."""

    features: Preparation = setting(
        "raw",
        "features as they are, rows divided by their sum, or columns centred, standardised or "
        "replaced by normal quantiles within each graph",
        choices=get_args(Preparation),
    )
    hidden: int = setting(
        64, "width of the hidden layers", minimum=1, maximum=MAX_WIDTH, search=(32, 64, 128)
    )
    num_layers: int = setting(
        2, "layers of propagation", minimum=1, maximum=100, search=(2, 3, 4, 5)
    )
    dropout: float = setting(
        0.2, "share of units dropped when training", minimum=0, below=1, search=(0.0, 0.1, 0.2, 0.5)
    )
    direction: Direction = setting(
        "along", "propagate along the edges or against them", choices=("along", "against")
    )
    norm: Norm = setting(
        "none",
        "normalise each node's hidden state after every layer: none, or layer for LayerNorm",
        choices=("none", "layer"),
    )
    residual: bool = setting(
        False,
        "plain gcn and gat with a residual link in each layer, as CaNet's layers have; CaNet and "
        "the other backbones always have it",
    )
    learning_rate: float = setting(
        0.01, "Adam's learning rate", above=0, search=(0.001, 0.005, 0.01, 0.02)
    )
    weight_decay: float = setting(
        5e-5, "Adam's weight decay", minimum=0, search=(0.0, 5e-5, 5e-4, 5e-3)
    )
    ema: float = setting(
        0.0,
        "share that the average of the weights keeps in each epoch; validation, selection and "
        "predictions use the average. 0: no average",
        minimum=0,
        below=1,
    )
    loss: LossName = setting(
        "cross_entropy",
        "supervised loss; the binary one acts on each one-hot column",
        choices=("cross_entropy", "binary_cross_entropy"),
    )
    epochs: int = setting(500, "passes over the training nodes", minimum=1)
    patience: int = setting(
        0, "stop after so many epochs without a better validation score; 0: never", minimum=0
    )

    def __post_init__(self) -> None:
        check(self)


@dataclass(frozen=True)
class Findings:
    """The columns of the features that interventions move.

    Args:
        num_columns: Of all features.
        shifted_columns: The most moved first.
        share: By moved column, how much of its variance is between the groups.
    """

    num_columns: int
    shifted_columns: list[int]
    share: list[float]


@dataclass(frozen=True)
class Batch:
    """The training nodes, or another split, as a model and a loss see them; unlike PyG's `Batch`
    it holds nodes of one graph, not several graphs.

    Args:
        x: Prepared features $[n_{src}, D]$ of the nodes that the first block reads.
        blocks: One block per layer; the n nodes of the split are its first rows.
        y: Labels $[n]$.
        environment: Environment ids $[n]$, counted from 0, for training nodes of a task that has
            labels for them.
    """

    x: Features
    blocks: Sequence[Block]
    y: Tensor
    environment: Tensor | None = None


@dataclass(frozen=True)
class TrainingView:
    """What a method may see of a task besides the batch of labelled training nodes.

    Tensors are on the CPU; what `read` gives is on the device of training.

    Args:
        x: Features $[N, D]$ of all nodes, prepared as the setting `features` says; only those of
            observed nodes may be read directly.
        edge_index: Edges $[2, E]$ of training time.
        observed: Ids of the nodes of the training graph, labelled or not.
        train: Ids $[n]$ of the training nodes, in the order of the batch.
        y: Labels $[n]$ of the training nodes.
        read: Node ids $[m]$ → their features and blocks, as in a :class:`Batch`.
        field: Gives the ids $[n_{src}]$ of the nodes that the training batch reads, in the order
            of its features.
        graph: Number $[N]$ of each node's graph where the task gives it; None: graphs are the
            connected components.
        environment: Environment ids $[N]$ where the task has labels for them, -1: none; only those
            of observed nodes may be read.
    """

    x: Features
    edge_index: Tensor
    observed: Tensor
    train: Tensor
    y: Tensor
    read: Callable[[Tensor], tuple[Features, Sequence[Block]]]
    field: Callable[[], Tensor]
    graph: Tensor | None = None
    environment: Tensor | None = None


class Method(nn.Module):
    """Base of the methods: a subclass says what is minimised, in `loss`, and what it is called.

    What a step does beyond that (another batch, an inner loop) a subclass says in `prepare` and
    `update`. Everything that a run depends on is a parameter or a buffer, so that it is saved, or
    named by `training_state`.

    Args:
        settings: An instance of the class's `settings_type`.
        backbone: Name of a backbone, or a :class:`Backbone`.
        num_features: $D$.
        num_classes: $C$.
        num_environment_labels: Distinct environment labels of the training nodes.
        class_weight: Weights $[C]$ of the classes in the supervised loss; None: all the same.
    """

    name: ClassVar[str]
    label: ClassVar[str]
    colour: ClassVar[Colour]
    summary: ClassVar[str]
    paper: ClassVar[str]
    needs_environments: ClassVar[bool] = False
    capturable: ClassVar[bool] = False
    """Whether a step draws and decides nothing on the host, so that a GPU may replay it."""
    settings_type: ClassVar[type[Settings]] = Settings
    class_weight: Tensor | None

    def __init__(
        self,
        settings: Any,
        backbone: str | Backbone,
        num_features: int,
        num_classes: int,
        num_environment_labels: int = 0,
        class_weight: Tensor | None = None,
    ) -> None:
        super().__init__()
        self.settings = settings
        self.register_buffer("class_weight", class_weight, persistent=False)
        self.num_environment_labels = num_environment_labels
        self.model = self.build_model(backbone, num_features, num_classes)
        self.setup()

    def setup(self) -> None:
        """Make what the method has beside its model (networks, buffers); most have nothing."""

    def build_model(
        self, backbone: str | Backbone, num_features: int, num_classes: int
    ) -> GraphModel:
        """The model to train: the backbone's plain one unless the method brings its own."""
        s = self.settings
        return get_backbone(backbone).plain(
            num_features,
            num_classes,
            hidden=s.hidden,
            num_layers=s.num_layers,
            dropout=s.dropout,
            direction=s.direction,
            norm=s.norm,
            residual=s.residual,
        )

    def prepare(self, view: TrainingView) -> None:
        """Look at the task once before training; most methods need not."""

    def intervene(self, batch: Batch) -> Batch:
        """The training batch as a step sees it: with other features where a method says so."""
        return batch

    def update(self, batch: Batch, optimizer: torch.optim.Optimizer) -> Tensor:
        """One step of training; returns the loss that it descended, detached."""
        optimizer.zero_grad(set_to_none=True)
        loss = self.loss(self.intervene(batch))
        loss.backward()
        optimizer.step()
        return loss.detach()

    def loss(self, batch: Batch) -> Tensor:
        """What one step minimises, a scalar."""
        raise NotImplementedError

    def predict(self, batch: Batch) -> Tensor:
        """Logits $[n, C]$ of the batch's nodes."""
        logits: Tensor = self.model(batch.x, batch.blocks).logits
        return logits

    def posteriors(self, batch: Batch) -> list[Tensor]:
        """Posterior $[n, K]$ of each layer's environments, for a method that infers them."""
        return []

    def parameter_groups(self) -> list[dict[str, Any]]:
        """Parameters with their learning rates, as torch's optimisers take them."""
        return [{"params": list(self.parameters()), "lr": self.settings.learning_rate}]

    def training_state(self) -> dict[str, Tensor]:
        """What later steps depend on and predictions do not: kept in checkpoints, not in weights.

        Tensors that `prepare` makes, filled in place when a run goes on.
        """
        return {}

    def findings(self) -> Findings | None:
        """What `prepare` found in the training nodes, kept in the result."""
        return None

    def node_losses(self, logits: Tensor, y: Tensor) -> Tensor:
        """Supervised loss of each node $[n]$ for logits $[n, C]$ and labels $[n]$."""
        if self.settings.loss == "cross_entropy":
            losses = F.cross_entropy(logits, y, reduction="none")
        else:
            target = F.one_hot(y, logits.shape[1]).to(logits.dtype)
            losses = F.binary_cross_entropy_with_logits(logits, target, reduction="none")
            losses = losses.mean(dim=1)
        return losses if self.class_weight is None else losses * self.class_weight[y]

    def membership(self, environment: Tensor | None) -> Tensor:
        """Environment ids $[n]$ of a method that needs them as one-hot rows $[n, E]$."""
        assert environment is not None
        one_hot = F.one_hot(environment, self.num_environment_labels)
        return one_hot.to(self.model.phi_out.weight.dtype)

    def environment_risks(self, losses: Tensor, environment: Tensor | None) -> Tensor:
        """Mean loss of each environment $[E]$ for losses $[n]$ and environment ids $[n]$."""
        member = self.membership(environment)
        return losses @ member / member.sum(dim=0)
