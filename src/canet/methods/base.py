"""Base class of the methods: a model, a training objective and parameter groups."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from canet.methods.traits import Traits
from canet.nn import Backbone, Block, Features, GraphModel, get_backbone
from canet.nn.blocks import Direction
from canet.nn.model import Norm
from canet.nn.sampling import ALL, parse_fanout
from canet.settings import check, setting
from canet.util.colour import Colour

LossName = Literal["cross_entropy", "binary_cross_entropy"]
Scaling = Literal["raw", "rows", "centred", "standardised"]
MAX_WIDTH = 2**14  # largest width of a layer; its weight matrix then takes one gigabyte


@dataclass(frozen=True)
class ModelSettings:
    """Settings of all models; subclasses add those of networks and of other models."""

    scaling: Scaling = setting(
        "raw",
        "scaling of the features: raw (unchanged), rows (each row divided by its sum), or "
        "centred or standardised per graph",
    )

    def __post_init__(self) -> None:
        check(self)

    @property
    def in_batches(self) -> bool:
        """Whether a graph store stays on disk, because training reads it in batches."""
        return False

    @property
    def reads_raw(self) -> bool:
        """Whether columns with large numbers hide the others, because none is scaled."""
        return self.scaling == "raw"

    @property
    def width(self) -> int:
        """Width of the hidden layers; 0 if there are none."""
        return 0

    @property
    def can_stay_on_disk(self) -> bool:
        """Whether a model reads the neighbours in the order in which a graph store has them."""
        return True


@dataclass(frozen=True)
class Settings(ModelSettings):
    """Settings of all methods, which train networks; subclasses add those of one method."""

    hidden: int = setting(
        64, "width of the hidden layers", minimum=1, maximum=MAX_WIDTH, search=(32, 64, 128)
    )
    num_layers: int = setting(2, "number of layers", minimum=1, maximum=100, search=(2, 3, 4, 5))
    dropout: float = setting(
        0.2, "dropout probability", minimum=0, below=1, search=(0.0, 0.1, 0.2, 0.5)
    )
    direction: Direction = setting(
        "along", "propagate along the edges (from source to target) or against them"
    )
    norm: Norm = setting("none", "normalisation after every layer: none, or layer (LayerNorm)")
    residual: bool = setting(
        False,
        "add residual connections to gcn and gat; CaNet and the other backbones always have them",
    )
    learning_rate: float = setting(
        0.01, "Adam's learning rate", above=0, search=(0.001, 0.005, 0.01, 0.02)
    )
    weight_decay: float = setting(
        5e-5, "Adam's weight decay", minimum=0, search=(0.0, 5e-5, 5e-4, 5e-3)
    )
    loss: LossName = setting(
        "cross_entropy",
        "supervised loss; binary_cross_entropy treats each class as a binary problem",
    )
    epochs: int = setting(500, "number of training epochs", minimum=1)
    batch_size: int = setting(
        0, "number of training nodes in each step; 0: all of them in one step per epoch", minimum=0
    )
    fanout: str = setting(
        ALL,
        "random neighbours that each node reads in a training step: all, or one number per layer "
        "from the last to the first, such as 15,10, with -1 for all",
    )
    patience: int = setting(
        0, "stop after this many epochs without a better validation score; 0: never", minimum=0
    )

    def __post_init__(self) -> None:
        if isinstance(self.fanout, list | tuple):  # as PyG's loaders take it
            object.__setattr__(self, "fanout", ",".join(map(str, self.fanout)))
        super().__post_init__()
        parse_fanout(self.fanout, self.num_layers)

    @property
    def in_batches(self) -> bool:
        fanout = parse_fanout(self.fanout, self.num_layers)
        return self.batch_size > 0 or any(count > 0 for count in fanout)

    @property
    def width(self) -> int:
        return self.hidden

    @property
    def can_stay_on_disk(self) -> bool:
        return self.direction == "along"

    @property
    def can_be_in_batches(self) -> bool:
        """Whether training can read some of the nodes at a time, with a `batch_size`."""
        return True


@dataclass(frozen=True)
class Findings:
    """Feature columns that shift between groups of training nodes."""

    num_columns: int  # number of all columns
    shifted_columns: list[int]  # indices of the shifted columns, sorted by decreasing shift
    share: list[float]  # share of the variance of each shifted column that lies between groups


@dataclass(frozen=True)
class Batch:
    """Input of a model and a loss: n training nodes, or another split.

    Unlike PyG's `Batch`, it contains nodes of one graph, not several graphs.

    Args:
        x: Prepared features $[n_{src}, D]$ of the nodes that the first block reads.
        blocks: One block per layer; the n nodes of the split come first.
        y: Labels $[n]$.
        environment: Environment numbers $[n]$, starting at 0, of training nodes; None if the task
            has no environments.
        weight: Weights $[n]$ of training nodes in the supervised loss; None: one.
    """

    x: Features
    blocks: Sequence[Block]
    y: Tensor
    environment: Tensor | None = None
    weight: Tensor | None = None


@dataclass(frozen=True)
class TrainingView:
    """The part of a task that a method may use in training, in addition to the training batch.

    All tensors are on the CPU, except the result of `read`, which is on the training device.

    Args:
        x: Features $[N, D]$ of all nodes, prepared according to the setting `scaling`. Only those
            of observed nodes may be used directly.
        edge_index: Edges $[2, E]$ that exist at training time.
        observed: Ids of the nodes of the training graph, labelled or not.
        train: Ids $[n]$ of the training nodes, in the order of the batch.
        y: Labels $[n]$ of the training nodes.
        read: Function from node ids $[m]$ to their features and blocks, as in a :class:`Batch`.
        field: Function that returns the ids $[n_{src}]$ of the nodes in `Batch.x`, in that order.
        graph: Graph number $[N]$ of each node; None if the graphs are the connected components.
        environment: Environment number $[N]$ of each node, -1 if unknown; None without
            environments. Only those of observed nodes may be used.
        steps_per_epoch: Number of batches of an epoch.
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
    steps_per_epoch: int = 1


class Method(nn.Module):
    """Base class of the methods. A subclass defines its name and its `loss`.

    A method whose training step needs more (another batch, an inner loop) overrides `prepare` and
    `update`. All state must be saved: as parameters, as buffers, or in `training_state`.

    Args:
        settings: An instance of the class's `settings_type`.
        backbone: Name of a backbone, or a :class:`Backbone`.
        num_features: $D$.
        num_classes: $C$.
        num_environment_labels: Number of different environments of the training nodes.
        class_weight: Weights $[C]$ of the classes in the supervised loss; None for equal weights.
    """

    name: ClassVar[str]
    label: ClassVar[str]
    colour: ClassVar[Colour]
    summary: ClassVar[str]
    paper: ClassVar[str]
    traits: ClassVar[Traits] = Traits(trains_in_batches=True)
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
        """Create the networks and buffers of the method in addition to its model."""

    def build_model(
        self, backbone: str | Backbone, num_features: int, num_classes: int
    ) -> GraphModel:
        """Return the model to train, by default the plain model of the backbone."""
        names = ("hidden", "num_layers", "dropout", "direction", "norm", "residual")
        return get_backbone(backbone).plain(num_features, num_classes, **self.chosen(*names))

    def chosen(self, *names: str) -> dict[str, Any]:
        """Return some of the settings by name, as arguments of a model."""
        return {name: getattr(self.settings, name) for name in names}

    def prepare(self, view: TrainingView) -> None:
        """Called once before training. Most methods need not override it."""

    def intervene(self, batch: Batch) -> Batch:
        """Return the batch for one training step. A method may change its features."""
        return batch

    def update(self, batch: Batch, optimizer: torch.optim.Optimizer) -> Tensor:
        """Run one training step and return its loss, detached."""
        return descend(self.loss(self.intervene(batch)), optimizer)

    def loss(self, batch: Batch) -> Tensor:
        """Return the training objective, a scalar."""
        raise NotImplementedError

    def predict(self, batch: Batch) -> Tensor:
        """Return the logits $[n, C]$ of the nodes of a batch."""
        return self.model(batch.x, batch.blocks).logits

    def posteriors(self, batch: Batch) -> list[Tensor]:
        """Return the posterior $[n, K]$ of each layer; empty if the method infers none."""
        return []

    def parameter_groups(self) -> list[dict[str, Any]]:
        """Return the parameters with their learning rates, as param groups of a torch optimizer."""
        return [{"params": list(self.parameters()), "lr": self.settings.learning_rate}]

    def training_state(self) -> dict[str, Tensor]:
        """Return tensors that training needs and prediction does not.

        They are saved in checkpoints, but not with the weights. `prepare` creates them. When a run
        is resumed, their values are loaded in place.
        """
        return {}

    def findings(self) -> Findings | None:
        """Return what `prepare` found in the training nodes, for the result of the run."""
        return None

    def node_losses(self, logits: Tensor, y: Tensor, weight: Tensor | None = None) -> Tensor:
        """Return the supervised loss of each node $[n]$.

        Shapes:
            - logits $[n, C]$, labels y $[n]$, weights of the nodes $[n]$ or None
        """
        if self.settings.loss == "cross_entropy":
            losses = F.cross_entropy(logits, y, reduction="none")
        else:
            target = F.one_hot(y, logits.shape[1]).to(logits.dtype)
            losses = F.binary_cross_entropy_with_logits(logits, target, reduction="none")
            losses = losses.mean(dim=1)
        if self.class_weight is not None:
            losses = losses * self.class_weight[y]
        return losses if weight is None else losses * weight

    def membership(self, environment: Tensor | None) -> Tensor:
        """Convert environment numbers $[n]$ to one-hot rows $[n, E]$."""
        assert environment is not None
        one_hot = F.one_hot(environment, self.num_environment_labels)
        return one_hot.to(self.model.phi_out.weight.dtype)

    def environment_risks(self, losses: Tensor, environment: Tensor | None) -> Tensor:
        """Return the mean loss $[E]$ of each environment, for losses and environments $[n]$.

        An environment without a node, which only a batch can have, has risk 0.
        """
        member = self.membership(environment)
        return losses @ member / member.sum(dim=0).clamp(min=1)

    def present_environments(self, environment: Tensor | None) -> tuple[Tensor, Tensor]:
        """Return which environments have a node in a batch $[E]$, and E divided by their number.

        The mean over all environments, with 0 for those without a node, times this factor is the
        mean over those with a node.
        """
        member = self.membership(environment)
        is_present = member.any(dim=0)
        return is_present, self.num_environment_labels / is_present.sum(dtype=member.dtype)


def descend(loss: Tensor, optimizer: torch.optim.Optimizer) -> Tensor:
    """Take one optimizer step on a loss and return the loss, detached.

    Only parameters on which the loss depends change.
    """
    optimizer.zero_grad(set_to_none=True)
    loss.backward()
    optimizer.step()
    return loss.detach()
