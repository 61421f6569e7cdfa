"""What a section of a diagnosis computes from."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from canet.data.graph_files.encoding import Encoding
from canet.diagnosis.blocks import Blocks
from canet.diagnosis.graph import DiagnosedGraph, seed_of
from canet.estimator.classifier import NodeClassifier
from canet.estimator.reference import Reference

TRAINING, NEW = "training", "new"


@dataclass(frozen=True)
class Examination:
    """A model, one or two graphs, and the sections that are finished."""

    model: NodeClassifier  # the fitted model
    graphs: dict[str, DiagnosedGraph]  # `training` and `new`, those that were given
    blocks: Blocks  # name → the feature columns that are changed together
    names: list[str]  # of the columns
    repeats: int = 10  # draws of each random change
    # Called before each pass over a graph with what the pass is for.
    tick: Callable[[str], None] = lambda _: None
    # Name of a section → what it found; sections that come first are there.
    parts: dict[str, Any] = field(default_factory=dict)

    @property
    def new(self) -> DiagnosedGraph | None:
        """The new graph, if there is one."""
        return self.graphs.get(NEW)

    @property
    def main(self) -> DiagnosedGraph:
        """The training graph if it was given, else the new one."""
        return self.graphs.get(TRAINING) or self.graphs[NEW]

    @property
    def reference(self) -> Reference:
        """The sample of the training graph that the model keeps."""
        return self.model.reference_

    @property
    def encoding(self) -> Encoding | None:
        """What made the features from a table, where something did."""
        return getattr(self.model, "encoding_", None)

    @property
    def seed(self) -> int:
        """The seed of every draw."""
        return seed_of(self.model)
