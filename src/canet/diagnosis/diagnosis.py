"""A diagnosis: what a model relies on, what shifted, and what to expect of it on a new graph."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from pydantic_core import to_json

from canet.data.graph_data import AnyGraph
from canet.data.metrics import METRIC_NAMES
from canet.diagnosis.blocks import column_names, feature_blocks
from canet.diagnosis.examination import NEW, TRAINING, Examination
from canet.diagnosis.graph import read_graph
from canet.diagnosis.sections import (
    between_groups,
    concept,
    confidence,
    environments,
    expected,
    reliance,
    shift,
)
from canet.diagnosis.sections.reliance import Reliance
from canet.errors import InputError
from canet.estimator.classifier import NodeClassifier
from canet.util.progress import Display

MANY_NODES = 20_000
SECTIONS = {
    module.__name__.rpartition(".")[2]: module
    for module in (expected, reliance, shift, concept, between_groups, confidence, environments)
}
"""Name of a section → the module that computes it, in the order in which they are shown."""


@dataclass(frozen=True)
class ModelSummary:
    """What was diagnosed: `scores` are those of its training."""

    method: str
    backbone: str
    classes: list[str]
    features: int
    scores: dict[str, float]
    metric: str

    @property
    def name(self) -> str:
        """Method and backbone, such as `canet-gcn`; or `auto`, which chooses both."""
        same = self.method == self.backbone
        return self.method if same else f"{self.method}-{self.backbone}"


@dataclass(frozen=True)
class Diagnosis:
    """A model on its training graph and on a new one. Sections are computed and shown in order.

    Args:
        model: What was diagnosed.
        graphs: `training` and `new`, those that were given → their numbers of nodes and edges.
        expected: The score to expect on the new graph; None without one.
        reliance: For each graph: what predictions depend on.
        shift: What shifted between training and the new graph; None without a new graph.
        concept: Which columns tell less about the label than in training; None without labels
            on the new graph.
        between_groups: Which columns shifted between groups of training nodes, how far they
            shifted since, and whether the model relies on them; None if training had too few
            nodes or columns.
        confidence: Whether the model's confidence can be trusted.
        environments: For each graph: the pseudo environments that the model infers; empty for a
            method that infers none.
    """

    model: ModelSummary
    graphs: dict[str, tuple[int, int]]
    expected: expected.ExpectedScore | None
    reliance: dict[str, reliance.Reliance]
    shift: shift.Shift | None
    concept: concept.Concept | None
    between_groups: between_groups.BetweenGroups | None
    confidence: confidence.Confidence
    environments: dict[str, environments.Environments]

    @property
    def main_reliance(self) -> Reliance:
        """On the training graph, where it was given: there predictions are as learned."""
        return self.reliance.get(TRAINING) or self.reliance[NEW]

    @property
    def risky_blocks(self) -> list[str]:
        """Blocks that predictions rely on and that shifted, the most relied on first."""
        if self.shift is None:
            return []
        shifted = {block.name for block in self.shift.blocks if block.shifted}
        return [e.name for e in self.main_reliance.features if e.name in shifted and e.matters]

    @property
    def best_case(self) -> bool:
        """Whether the expected score is a best case: most new nodes are far from training."""
        return self.confidence.unlike is not None and self.confidence.unlike.mostly_far

    @property
    def clearly_lower(self) -> bool:
        """Whether the score without what shifted is lower than every estimate of the score."""
        left = self.shift.score_left if self.shift else None
        return bool(self.expected and left and left.value < self.expected.between[0])

    @property
    def metric_name(self) -> str:
        """What people call the metric that the model was fitted with."""
        return METRIC_NAMES[self.model.metric]

    @property
    def expected_name(self) -> str:
        """The same for the metric that is estimated, which is accuracy where it cannot be."""
        return METRIC_NAMES[self.expected.metric if self.expected else self.model.metric]

    def to_json(self) -> dict[str, Any]:
        """Plain content for a JSON file; what is not finite is None."""
        content: dict[str, Any] = json.loads(to_json(self, inf_nan_mode="null"))
        return content


def diagnose(
    model: NodeClassifier,
    data: AnyGraph | None = None,
    new_data: AnyGraph | None = None,
    *,
    blocks: Mapping[str, Any] | None = None,
    repeats: int | None = None,
) -> Diagnosis:
    """Find out what a model relies on, what shifted, and what to expect of it.

    The same model, graphs and arguments give the same numbers.

    Args:
        model: A fitted `canet.NodeClassifier`.
        data: The graph it was trained on, to see what it relies on there.
        new_data: The graph to predict. It is compared with the sample of the training graph that
            the model keeps. Labels, if it has some, are only used to check the estimates.
        blocks: Name → columns (numbers, slice, mask or names) that are changed together; found
            if None.
        repeats: Draws of each random change; if None, 10, or 3 on a graph of more than 20,000
            nodes, over which their mean hardly varies.
    """
    given = {TRAINING: data, NEW: new_data}
    if data is None and new_data is None:
        raise InputError("there is no graph to diagnose on: give data, new_data or both")
    if repeats is not None and (not isinstance(repeats, int) or repeats < 1):
        raise InputError(f"repeats is {repeats!r}: give a whole number from 1 on")
    graphs = {
        name: read_graph(model, graph, trained_on=name == TRAINING)
        for name, graph in given.items()
        if graph is not None
    }
    if repeats is None:
        repeats = 3 if max(graph.num_nodes for graph in graphs.values()) > MANY_NODES else 10
    columns = feature_blocks(model, blocks)
    passes = len(graphs) * reliance.num_passes(len(columns), repeats) + 2 * repeats
    with Display(passes, unit="passes", quiet=not model.verbose) as display:
        done = 0

        def tick(about: str) -> None:
            nonlocal done
            display.update(done, text=about)
            done += 1

        exam = Examination(model, graphs, columns, column_names(model), repeats, tick)
        for name, section in SECTIONS.items():
            display.update(done, text=name.replace("_", " "))
            exam.parts[name] = section.examine(exam)
    sizes = {name: (g.num_nodes, g.edge_index.shape[1]) for name, g in graphs.items()}
    summary = ModelSummary(
        method=model.method,
        backbone=model.backbone_name,
        classes=[str(name) for name in model.classes_],
        features=model.n_features_in_,
        scores=dict(model.scores_),
        metric=model.metric,
    )
    return Diagnosis(summary, sizes, **exam.parts)
