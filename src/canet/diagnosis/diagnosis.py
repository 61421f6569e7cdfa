"""`canet.diagnose`: what a model relies on, what has shifted, and which score to expect."""

import json
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from html import escape
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np
from pydantic_core import to_json

from canet.data.raw_graph import GraphLike, NodeSet
from canet.diagnosis.advice import Evidence
from canet.diagnosis.blocks import column_names, feature_blocks
from canet.diagnosis.context import NEW, TRAINING, Context, ModelSummary
from canet.diagnosis.graph import DiagnosedGraph, read_graph, seen_in_training
from canet.diagnosis.rendering import render
from canet.diagnosis.risk import risks_of
from canet.diagnosis.sections import concept, confidence, environments, expected, reliance, shift
from canet.errors import InputError, check_integer, check_name, warn_user
from canet.estimator.classifier import NodeClassifier
from canet.estimator.held_out import held_out_score
from canet.models import all_methods
from canet.scoring.metrics import METRICS
from canet.util.files import as_path
from canet.util.progress import Display
from canet.util.rendering import percent, write_page

MANY_NODES = 20_000  # above this number, random changes are repeated less often
SECTIONS = {
    module.__name__.rpartition(".")[2]: module
    for module in (expected, reliance, concept, confidence, environments)
}
"""Section name → module that computes it after `shift`, in the order of computation."""
PAGE = ("reliance", "shift", "expected", "concept", "confidence", "environments")
"""The sections in the order of the page."""
STUDY = "https://canet-dev.github.io/canet/results/diagnosis.html"
ENDINGS = (".html", ".json", ".txt")  # endings of the files that `Diagnosis.save` writes
QUANTITIES = {
    **dict.fromkeys(("expected", "expected_low", "expected_high", "validation"), "a new graph"),
    "held_out": "a new graph, and method auto or held_out=True (--held-out)",
    "largest_class": "a new graph",
    "actual": "a new graph with labels",
    **dict.fromkeys(("novel", "shifted"), "a new graph"),
    "separable": "a new graph with enough nodes",
}
"""Names of `Diagnosis.quantities`, and what they need."""


@dataclass(frozen=True)
class Diagnosis(Evidence):
    """The diagnosis of a model. All scores, shares and intervals are between 0 and 1.

    Args:
        model: The diagnosed model.
        expected: Expected score on the new graph; None without one.
        reliance: How much the predictions depend on each part of the input.
        shift: Shift between training and the new graph; None without a new graph.
        concept: Columns that predict the label less well than in training; None without labels on
            the new graph.
        risks: The blocks with the largest product of reliance and shift.
        graphs: `training`, `new` or both → number of nodes and edges.
        confidence: Whether the confidence of the model can be trusted.
        environments: For each graph: the pseudo-environments of the model; empty if the method
            infers none.
    """

    graphs: dict[str, tuple[int, int]]
    confidence: confidence.Confidence
    environments: dict[str, environments.Environments]

    @property
    def metric_name(self) -> str:
        return METRICS[self.model.metric].label

    @property
    def headline(self) -> str:
        """The conclusion in one sentence: what to do, and which score to expect."""
        if self.expected is None:
            top = self.risks[0]
            what = f"most on {top.name}" if top.is_relied_on else "on no single column"
            return f"The model relies {what}"
        name = METRICS[self.expected.metric].label
        if one := self.expected.actual:
            ends = f"{percent(one.low)} to {percent(one.high)}"
            return f"{self.verdict}: {name} {percent(one.value)} % ({ends}), measured"
        return f"{self.verdict}: expected {name} {percent(self.expected.value)} %"

    @property
    def expectation(self) -> str:
        """The expected score and its range in one sentence; empty without a new graph."""
        one = self.expected
        if one is None:
            return ""
        name = METRICS[one.metric].label
        text = (
            f"Expected {name} {percent(one.value)} %; in 9 of 10 comparable shifts the truth was "
            f"between {percent(one.low)} and {percent(one.high)} %."
        )
        if one.depends_on_shares and not math.isnan(one.share):
            text += (
                f" This assumes that {percent(one.share, 1)} % of the nodes have the rarer class."
            )
        if math.isnan(one.held_out):
            text += (
                " A test on held-out parts of the training data makes this more certain "
                "(held_out=True, --held-out)."
            )
        return text

    @property
    def sections(self) -> list[str]:
        """Names of the sections with results, in their order."""
        return [name for name in PAGE if getattr(self, name)]

    def __str__(self) -> str:
        """The conclusions, then the main numbers of each section."""
        return render("page.txt.jinja", found=self, sections=self.sections)

    def page(self) -> str:
        """The diagnosis as an HTML page."""
        from canet.diagnosis import charts  # imports matplotlib

        known = all_methods().get(self.model.method)
        label = known.label if known else self.model.method
        values = {"found": self, "sections": self.sections, "label": label, "draw": charts}
        return render("page.html.jinja", study=STUDY, **values)

    def _repr_html_(self) -> str:
        """Show the page in a notebook."""
        page = escape(self.page(), quote=True)
        return f'<iframe srcdoc="{page}" width="100%" height="720" style="border:0"></iframe>'

    def save(self, path: str | Path) -> None:
        """Write the diagnosis to a file: `.html` is the page, `.json` all numbers, `.txt` text."""
        file = check_diagnosis_file(as_path(path))
        form = {".html": self.page, ".json": self.to_json, ".txt": self.__str__}[file.suffix]
        write_page(form(), file)

    @property
    def quantities(self) -> dict[str, float]:
        """The numbers that can be monitored, as far as they are known.

        `expected`: expected score on the new graph, and `expected_low` to `expected_high` its
        range; `validation`: score on validation nodes; `held_out`: score on held-out parts of the
        training data; `largest_class`: score of the same answer for every node; `actual`: score on
        the labelled nodes of the new graph;
        `novel`: share of its nodes that are unlike the validation nodes; `shifted`: number of
        shifted feature columns; `separable`: AUC of the classifier that distinguishes the two
        graphs by their features, 0.5 if they are alike.
        """
        found: dict[str, float] = {}
        if (one := self.expected) is not None:
            found |= {"expected": one.value, "expected_low": one.low, "expected_high": one.high}
            found |= {"validation": one.validation, "largest_class": one.baseline}
            found |= {} if math.isnan(one.held_out) else {"held_out": one.held_out}
            found |= {"actual": one.actual.value} if one.actual else {}
        if self.confidence.novelty is not None:
            found["novel"] = self.confidence.novelty.novel.value
        if self.shift is not None:
            found["shifted"] = len(self.shift.shifted_columns)
            auc = [p.auc.value for p in self.shift.parts if p.name == shift.FEATURES and p.auc]
            found |= {"separable": auc[0]} if auc else {}
        return found

    def exceeded(self, condition: str) -> str | None:
        """Return a message if a condition such as `expected<0.7` holds, else None.

        The left side is one of `quantities`, followed by < or > and a number. A NaN is never good
        enough.
        """
        name, sign, limit = parse_condition(condition)
        if name not in self.quantities:
            raise InputError(
                f"'{name}' is not known for this diagnosis: it needs {QUANTITIES[name]}"
            )
        value = self.quantities[name]
        if not (value >= float(limit) if sign == "<" else value <= float(limit)):
            return f"{name} is {value:.3g}, which is {'below' if sign == '<' else 'above'} {limit}"
        return None

    def to_dict(self) -> dict[str, Any]:
        """Return all numbers as a dict; NaN and infinite values become None."""
        return json.loads(self.to_json())

    def to_json(self) -> str:
        """Return all numbers as the text of a JSON file; NaN and infinite values become null."""
        content = {"verdict": self.verdict, "quantities": self.quantities}
        content |= {one.name: getattr(self, one.name) for one in fields(self)}
        return to_json(content, indent=2, inf_nan_mode="null").decode()


def check_diagnosis_file(path: Path) -> Path:
    """Reject a folder, and a file name with another ending than those of `Diagnosis.save`."""
    if path.is_dir() or path.suffix not in ENDINGS:
        what = "is a folder" if path.is_dir() else "has an unknown ending"
        raise InputError(f"'{path}' {what}: pass a file name that ends in {', '.join(ENDINGS)}")
    return path


def parse_condition(condition: str) -> tuple[str, str, str]:
    """`"expected<0.7"` → `("expected", "<", "0.7")`."""
    parts = re.fullmatch(r"\s*(\w+)\s*([<>])\s*(\d+\.?\d*|\.\d+)\s*", str(condition))
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
    held_out: bool | float = False,
) -> Diagnosis:
    """Diagnose a model: what it relies on, what has shifted, and which score to expect.

    The result is deterministic: the same arguments give the same numbers. Pass at least one graph,
    in any form that `NodeClassifier.predict` takes.

    Args:
        model: A fitted `canet.NodeClassifier`.
        data: The graph that the model was trained on, if you have it. Then the reliance is measured
            on its validation nodes. Without it, it is measured on the new graph without labels.
        new_data: The graph to predict. It is compared with the sample of the training graph that is
            stored in the model. Labels are optional; if there are some, they decide the verdict. If
            a graph store does not fit into memory, 2,000 of its nodes are diagnosed.
        nodes: The nodes of the new graph to diagnose, as for `predict`, for example those that were
            not in training. None: all nodes.
        blocks: Block name → columns (numbers, slice, mask or names) that are replaced together.
            None: blocks are found automatically.
        repeats: Repetitions of each random change. None: 5, or 3 if a graph has more than 20,000
            nodes.
        held_out: If True, train a single method again without two parts of its training data, for
            a better estimate of the score. This needs `data`, and takes time: for the next graph,
            pass the score `quantities["held_out"]` instead of True. `auto` does not need it.
    """
    if not hasattr(model, "open_graph"):
        raise InputError(f"model is a {type(model).__name__}: pass a fitted NodeClassifier")
    given = {TRAINING: data, NEW: new_data}
    last = TRAINING if new_data is None else NEW
    if data is None and new_data is None:
        raise InputError("there is no graph: pass data, new_data or both")
    if repeats is not None:
        check_integer("repeats", repeats, 1)
    if not isinstance(held_out, int | float) or not 0 <= held_out <= 1:
        raise InputError(f"held_out is {held_out!r}: pass True, False or a score from 0 to 1")
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
        repeats = 3 if max(graph.num_nodes for graph in graphs.values()) > MANY_NODES else 5
    score = held_out_score(model, data) if held_out is True else held_out or None
    context = Context(model, graphs, column_names(model), score, repeats)
    moved = shift.compute(context)
    effects = None
    if moved is not None:
        columns = sorted(moved.columns, key=lambda one: one.number)
        effects = np.array([one.effect for one in columns])
    chosen = feature_blocks(model, blocks, effects)
    passes, done = reliance.num_passes(len(chosen), repeats), count()
    with Display(passes, unit="passes", quiet=not model.verbose) as display:
        for graph in graphs.values():
            if graph.size[0] > graph.num_nodes:
                how = "the diagnosis uses a random sample of its nodes and their neighbours"
                display.say(f"the graph stays on disk: {how}")
        context = replace(
            context, blocks=chosen, on_pass=lambda text: display.update(next(done), text=text)
        )
        results = {name: section.compute(context) for name, section in SECTIONS.items()}
    sizes = {name: graph.size for name, graph in graphs.items()}
    summary = ModelSummary(
        method=model.method_name,
        backbone=model.backbone_name,
        classes=[str(name) for name in model.classes_],
        largest_class=str(model.classes_[int(model.reference().train_label_counts.argmax())]),
        features=model.n_features_in_,
        scores=dict(model.scores_),
        metric=model.metric,
    )
    risks = risks_of(results["reliance"], moved, chosen)
    found = Diagnosis(summary, shift=moved, risks=risks, graphs=sizes, **results)
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
    sizes = graph.size
    if hasattr(model, "data_") and sizes != (model.data_["nodes"], model.data_["edges"]):
        warn_user(
            f"data has {sizes[0]:,} nodes and {sizes[1]:,} edges, but the model was trained on "
            f"{model.data_['nodes']:,} nodes and {model.data_['edges']:,} edges: if it is a new "
            "graph, use diagnose(model, new_data=...), without --training on the command line"
        )
