"""The input of the sections of a diagnosis."""

from collections.abc import Callable
from dataclasses import dataclass, field

from canet.data.graph_files.encoding import Encoding
from canet.diagnosis.blocks import Blocks
from canet.diagnosis.graph import DiagnosedGraph, seed_of
from canet.estimator.classifier import NodeClassifier
from canet.estimator.reference import Reference

TRAINING, NEW = "training", "new"


@dataclass(frozen=True)
class ModelSummary:
    """The diagnosed model, with its scores at the end of training."""

    method: str
    backbone: str
    classes: list[str]
    largest_class: str  # in training
    features: int
    scores: dict[str, float]
    metric: str

    @property
    def name(self) -> str:
        """Method and backbone, such as `canet-gcn`; or `auto`, which chooses both."""
        same = self.method == self.backbone
        return self.method if same else f"{self.method}-{self.backbone}"


@dataclass(frozen=True)
class Context:
    """A model, and one or two graphs."""

    model: NodeClassifier  # the fitted model
    graphs: dict[str, DiagnosedGraph]  # `training`, `new` or both
    column_names: list[str]
    # Score on held-out parts; None: that of `auto`, if it is the model.
    held_out: float | None = None
    repeats: int = 5  # repetitions of each random change
    # Called with a short text before each prediction of a graph.
    on_pass: Callable[[str], None] = lambda _: None
    blocks: Blocks = field(default_factory=dict)  # name → columns that are replaced together

    @property
    def new(self) -> DiagnosedGraph | None:
        return self.graphs.get(NEW)

    @property
    def main(self) -> DiagnosedGraph:
        """The training graph if there is one, else the new graph."""
        return self.graphs.get(TRAINING) or self.graphs[NEW]

    @property
    def reference(self) -> Reference:
        """The sample of the training graph that is stored in the model."""
        return self.model.reference()

    @property
    def encoding(self) -> Encoding | None:
        """The encoding of table columns as features, or None."""
        return getattr(self.model, "encoding_", None)

    @property
    def seed(self) -> int:
        return seed_of(self.model)
