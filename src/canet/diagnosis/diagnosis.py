"""`canet.diagnose`: what a model relies on, what has shifted, and which score to expect."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import Any

from markupsafe import Markup
from pydantic_core import to_json

from canet.data.graph_data import GraphLike, NodeSet
from canet.data.metrics import METRICS
from canet.diagnosis.blocks import column_names, feature_blocks
from canet.diagnosis.context import NEW, TRAINING, Context
from canet.diagnosis.graph import DiagnosedGraph, read_graph, seen_in_training
from canet.diagnosis.rendering import render
from canet.diagnosis.sections import (
    concept,
    confidence,
    environments,
    expected,
    reliance,
    shift,
)
from canet.diagnosis.sections.reliance import Reliance
from canet.errors import InputError, check_name, warn_user
from canet.estimator.classifier import NodeClassifier
from canet.models import all_methods
from canet.util.progress import Display
from canet.util.rendering import write_page

CLEAR_RELIANCE = 0.05  # smallest effect that counts as reliance on a shifted part
MANY_NODES = 20_000  # above this number, random changes are repeated less often
SECTIONS = {
    module.__name__.rpartition(".")[2]: module
    for module in (expected, reliance, shift, concept, confidence, environments)
}
"""Section name → module that computes it, in the order of computation and display."""


ENDINGS = (".html", ".json", ".txt")
"""Endings of the files that `Diagnosis.save` writes."""
QUANTITIES = {
    "expected": "a new graph",
    "actual": "a new graph with labels",
    "novel": "a new graph",
    "shifted": "a new graph",
    "separable": "a new graph with enough nodes",
}
"""Names of `Diagnosis.quantities`, and what they need."""


@dataclass(frozen=True)
class ModelSummary:
    """The diagnosed model, with its scores at the end of training."""

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
    """The diagnosis of a model. All scores, shares and intervals are between 0 and 1.

    Args:
        model: The diagnosed model.
        graphs: `training`, `new` or both → number of nodes and edges.
        expected: Expected score on the new graph; None without one.
        reliance: For each graph: how much the predictions depend on each part of the input.
        shift: Shift between training and the new graph; None without a new graph.
        concept: Columns that predict the label less well than in training; None without labels on
            the new graph.
        confidence: Whether the confidence of the model can be trusted.
        environments: For each graph: the pseudo-environments of the model; empty if the method
            infers none.
    """

    model: ModelSummary
    graphs: dict[str, tuple[int, int]]
    expected: expected.ExpectedScore | None
    reliance: dict[str, reliance.Reliance]
    shift: shift.Shift | None
    concept: concept.Concept | None
    confidence: confidence.Confidence
    environments: dict[str, environments.Environments]

    @property
    def main_reliance(self) -> Reliance:
        """The reliance on the training graph if it was passed, else on the new graph."""
        return self.reliance.get(TRAINING) or self.reliance[NEW]

    @property
    def risky_blocks(self) -> list[str]:
        """Shifted blocks that at least 5 % of the predictions or of the score depend on."""
        if self.shift is None:
            return []
        shifted = {block.name for block in self.shift.blocks if block.has_shifted}
        features = self.main_reliance.features
        return [
            block.name
            for block in features
            if block.name in shifted and block.importance >= CLEAR_RELIANCE
        ]

    @property
    def relies_on_shifted_edges(self) -> bool:
        """Whether the degrees have shifted and the predictions depend on the edges."""
        parts = self.shift.shifted_parts if self.shift else []
        reliance = self.main_reliance.edges[0].flip_rate.value
        clear = reliance >= CLEAR_RELIANCE
        return clear and any(part.name == "degrees" for part in parts)

    @property
    def is_optimistic(self) -> bool:
        """Whether the expected score is probably too high, because most new nodes are novel."""
        return self.confidence.novelty is not None and self.confidence.novelty.is_mostly_novel

    @property
    def is_lower_without_shifted(self) -> bool:
        """Whether the score without the shifted columns is lower than all estimates."""
        score = self.shift.score_without_shifted if self.shift else None
        return bool(self.expected and score and score.value < self.expected.range[0])

    @property
    def metric_name(self) -> str:
        """Display name of the metric of the model."""
        return METRICS[self.model.metric].label

    @property
    def expected_name(self) -> str:
        """Display name of the estimated metric: accuracy, if the metric cannot be estimated."""
        return METRICS[self.expected.metric if self.expected else self.model.metric].label

    @property
    def sections(self) -> list[str]:
        """Names of the sections with results, in their order."""
        return [name for name in SECTIONS if getattr(self, name)]

    def __str__(self) -> str:
        """The conclusions, then the main numbers of each section."""
        return render("page.txt.jinja", found=self, sections=self.sections)

    def page(self) -> str:
        """The diagnosis as an HTML page."""
        known = all_methods().get(self.model.method)
        label = known.label if known else self.model.method
        values = {"found": self, "sections": self.sections, "label": label, "draw": self._draw}
        return render("page.html.jinja", **values)

    def _draw(self, name: str) -> Markup:
        from canet.diagnosis import charts  # imports matplotlib

        if name == "risk_map":
            assert self.shift is not None
            return charts.risk_map(self.main_reliance, self.shift, self.risky_blocks)
        chart: Markup = getattr(charts, name)(self.confidence)
        return chart

    def _repr_html_(self) -> str:
        """Show the page in a notebook."""
        page = escape(self.page(), quote=True)
        return f'<iframe srcdoc="{page}" width="100%" height="720" style="border:0"></iframe>'

    def save(self, path: str | Path) -> None:
        """Write the diagnosis to a file: `.html` is the page, `.json` all numbers, `.txt` text."""
        file = check_diagnosis_file(Path(path))
        form = {".html": self.page, ".json": self.to_json, ".txt": self.__str__}[file.suffix]
        write_page(form(), file)

    @property
    def quantities(self) -> dict[str, float]:
        """The numbers that can be monitored, as far as they are known.

        `expected`: expected score on the new graph; `actual`: score on its labelled nodes;
        `novel`: share of its nodes that are unlike the validation nodes; `shifted`: number of
        shifted feature columns; `separable`: AUC of the classifier that tells the features of the
        two graphs apart, 0.5 if they are alike.
        """
        found: dict[str, float] = {}
        if self.expected is not None:
            found["expected"] = self.expected.score.value
            if self.expected.actual is not None:
                found["actual"] = self.expected.actual.value
        if self.confidence.novelty is not None:
            found["novel"] = self.confidence.novelty.novel.value
        if self.shift is not None:
            found["shifted"] = len(self.shift.shifted_columns)
            auc = [p.auc.value for p in self.shift.parts if p.name == shift.FEATURES and p.auc]
            found |= {"separable": auc[0]} if auc else {}
        return found

    def exceeded(self, condition: str) -> str | None:
        """Return a message if a condition such as `expected<0.7` holds, else None.

        The left side is one of `quantities`, followed by < or > and a number.
        """
        name, sign, limit = parse_condition(condition)
        if name not in self.quantities:
            raise InputError(
                f"'{name}' is not known for this diagnosis: it needs {QUANTITIES[name]}"
            )
        value = self.quantities[name]
        if value < float(limit) if sign == "<" else value > float(limit):
            return f"{name} is {value:.3g}, which is {'below' if sign == '<' else 'above'} {limit}"
        return None

    def to_dict(self) -> dict[str, Any]:
        """Return all numbers as a dict; NaN and infinite values become None."""
        content: dict[str, Any] = json.loads(self.to_json())
        return content

    def to_json(self) -> str:
        """Return all numbers as the text of a JSON file; NaN and infinite values become null."""
        return to_json(self, indent=2, inf_nan_mode="null").decode()


def check_diagnosis_file(path: Path) -> Path:
    """Reject a folder, and a file name with another ending than those of `Diagnosis.save`."""
    if path.is_dir() or path.suffix not in ENDINGS:
        what = "is a folder" if path.is_dir() else "has an unknown ending"
        raise InputError(f"'{path}' {what}: pass a file name that ends in {', '.join(ENDINGS)}")
    return path


def parse_condition(condition: str) -> tuple[str, str, str]:
    """`"expected<0.7"` → `("expected", "<", "0.7")`."""
    parts = re.fullmatch(r"\s*(\w+)\s*([<>])\s*(\d+\.?\d*|\.\d+)\s*", condition)
    if parts is None:
        raise InputError(f"'{condition}' is not a condition: write it as 'expected<0.7'")
    name, sign, limit = parts.groups()
    check_name("quantity", name, QUANTITIES)
    return name, sign, limit


def diagnose(
    model: NodeClassifier,
    data: GraphLike | None = None,
    new_data: GraphLike | None = None,
    *,
    nodes: NodeSet | None = None,
    blocks: Mapping[str, Any] | None = None,
    repeats: int | None = None,
) -> Diagnosis:
    """Diagnose a model: what it relies on, what has shifted, and which score to expect.

    The result is deterministic: the same arguments give the same numbers. Pass at least one graph,
    in any form that `NodeClassifier.predict` takes.

    Args:
        model: A fitted `canet.NodeClassifier`.
        data: The graph that the model was trained on, if you have it.
        new_data: The graph to predict. It is compared with the sample of the training graph that is
            stored in the model. Labels are optional; they are only used to check the estimates.
        nodes: The nodes of the new graph to diagnose, as for `predict`, for example those that were
            not in training. None: all nodes.
        blocks: Block name → columns (numbers, slice, mask or names) that are replaced together.
            None: blocks are found automatically.
        repeats: Repetitions of each random change. None: 10, or 3 if a graph has more than 20,000
            nodes.
    """
    if not hasattr(model, "open_graph"):
        raise InputError(f"model is a {type(model).__name__}: pass a fitted NodeClassifier")
    given = {TRAINING: data, NEW: new_data}
    last = TRAINING if new_data is None else NEW
    if data is None and new_data is None:
        raise InputError("there is no graph: pass data, new_data or both")
    if repeats is not None and (not isinstance(repeats, int) or repeats < 1):
        raise InputError(f"repeats is {repeats!r}: pass an integer of at least 1")
    graphs = {
        name: read_graph(model, graph, name == TRAINING, nodes if name == last else None)
        for name, graph in given.items()
        if graph is not None
    }
    if TRAINING in graphs:
        _warn_if_not_training_graph(model, graphs[TRAINING])
    if NEW in graphs:
        _warn_about_training_nodes(model, graphs[NEW])
    if repeats is None:
        repeats = 3 if max(graph.num_nodes for graph in graphs.values()) > MANY_NODES else 10
    columns = feature_blocks(model, blocks)
    passes = len(graphs) * reliance.num_passes(len(columns), repeats) + repeats
    with Display(passes, unit="passes", quiet=not model.verbose) as display:
        done = 0

        def on_pass(text: str) -> None:
            nonlocal done
            display.update(done, text=text)
            done += 1

        context = Context(model, graphs, columns, column_names(model), repeats, on_pass)
        for name, section in SECTIONS.items():
            display.update(done, text=name.replace("_", " "))
            context.results[name] = section.compute(context)
    sizes = {name: (g.num_nodes, g.edge_index.shape[1]) for name, g in graphs.items()}
    summary = ModelSummary(
        method=model.method_name,
        backbone=model.backbone_name,
        classes=[str(name) for name in model.classes_],
        features=model.n_features_in_,
        scores=dict(model.scores_),
        metric=model.metric,
    )
    found = Diagnosis(summary, sizes, **context.results)
    model.diagnosis_ = str(found)
    return found


def _warn_about_training_nodes(model: NodeClassifier, graph: DiagnosedGraph) -> None:
    reference = model.reference()
    seen = int((seen_in_training(graph, reference) & graph.scored).sum())
    if seen:
        is_sample = len(reference.y) < int(reference.train_label_counts.sum())
        number = f"at least {seen:,}" if is_sample else f"{seen:,}"
        warn_user(
            f"{number} of the {int(graph.scored.sum()):,} labelled nodes of the new graph were "
            "training nodes, so the measured score is too good: choose the other nodes with nodes "
            "(--nodes)"
        )


def _warn_if_not_training_graph(model: NodeClassifier, graph: DiagnosedGraph) -> None:
    sizes = graph.num_nodes, graph.edge_index.shape[1]
    if hasattr(model, "data_") and sizes != (model.data_["nodes"], model.data_["edges"]):
        warn_user(
            f"data has {sizes[0]:,} nodes and {sizes[1]:,} edges, but the model was trained on "
            f"{model.data_['nodes']:,} nodes and {model.data_['edges']:,} edges: pass a new graph "
            "as new_data"
        )
