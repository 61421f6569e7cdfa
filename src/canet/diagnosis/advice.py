"""The advice of a diagnosis, in one table: what was found → what to do."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

from canet.diagnosis.context import ModelSummary
from canet.diagnosis.risk import Risk
from canet.diagnosis.sections.concept import Concept
from canet.diagnosis.sections.expected import ExpectedScore
from canet.diagnosis.sections.reliance import Reliance
from canet.diagnosis.sections.shift import Shift
from canet.errors import listed
from canet.scoring.metrics import METRICS
from canet.util.rendering import percent

LARGE_LOSS = 0.1  # of the score since the validation nodes; a model that has lost it is not used
MIN_LOSS = 0.05  # of the score, that is worth a sentence
LATE_DATES = 0.9  # shift of a column of dates that is a reason not to use it
NUM_LABELS = 50
MAX_NAMED = 3
MEASURE = (
    f"Label {NUM_LABELS} nodes, a random sample of the new graph: with these labels, canet predict "
    "prints the score, and this diagnosis uses it."
)
USE = "Use the model"
CHECK = "Measure before you use the model"
CHECK_MEASURED = "Check what was found before you use the model"
STOP = "Do not use the model as it is"


class Finding(NamedTuple):
    """Something that was found, and what to do about it."""

    found: str
    step: str
    verdict: str = CHECK  # what it means for the use of the model


@dataclass(frozen=True)
class Evidence:
    """The results of a diagnosis on which its advice depends."""

    model: ModelSummary
    expected: ExpectedScore | None
    reliance: Reliance
    shift: Shift | None
    concept: Concept | None
    risks: list[Risk]

    @property
    def verdict(self) -> str:
        """Whether to use the model on the new graph: the strongest verdict of all findings."""
        verdicts = {one.verdict for one in self.findings}
        found = next((one for one in (STOP, CHECK) if one in verdicts), USE)
        is_measured = self.expected is not None and self.expected.actual is not None
        return CHECK_MEASURED if is_measured and found == CHECK else found

    @property
    def findings(self) -> list[Finding]:
        """What was found, the most important first; empty without a new graph.

        Labels of the new graph come first: if they show that the model keeps its score, a shift is
        no reason not to use it.
        """
        if self.expected is None or self.shift is None:
            return []
        actual, rows = self.expected.actual, list(_about_score(self.model, self.expected))
        keeps = actual and actual.low > self.expected.validation - LARGE_LOSS
        input_rows = _about_input(self, self.shift, bool(self.expected.renamed))
        return rows + [one._replace(step="", verdict=USE) if keeps else one for one in input_rows]


def _about_score(model: ModelSummary, expected: ExpectedScore) -> Iterator[Finding]:
    name, actual, classes = METRICS[expected.metric].label, expected.actual, model.classes
    renamed = expected.renamed
    if renamed:
        swaps = (f"{classes[i]} were called {classes[j]}" for i, j in renamed.names.items())
        yield Finding(
            "The classes seem to be coded differently, or a column has the opposite meaning: "
            f"accuracy would be {percent(renamed.renamed_accuracy.value)} % instead of "
            f"{percent(renamed.accuracy.value)} % if {' and '.join(swaps)}.",
            "Compare the codes of the classes, and the meaning of the columns, in both graphs.",
            STOP,
        )
    if expected.is_hardly_better:
        how = f"always answering {model.largest_class}" if name == "accuracy" else "chance"
        yield Finding(
            f"The model is hardly better than {how}: {name} {percent(expected.baseline)} %.",
            "Train again with labelled nodes of the new graph, or with columns that explain the "
            "label better.",
            STOP,
        )
    measured = None if renamed else actual
    limit = expected.validation - LARGE_LOSS
    if measured and measured.high <= limit:
        yield Finding(
            f"It has lost {percent(expected.validation - measured.value)} points since the "
            f"validation nodes ({percent(expected.validation)} %).",
            "Train again with labelled nodes of the new graph.",
            STOP,
        )
    elif measured and measured.low <= limit:
        yield Finding(
            f"Cannot tell yet: {percent(measured.low)} to {percent(measured.high)} %. At "
            f"{percent(limit)} %, it has lost {percent(LARGE_LOSS)} points since the validation "
            "nodes.",
            "Label more nodes, a random sample. Or train again with those that have labels.",
        )
    if actual is None and expected.warns:
        signs = []
        if (gap := expected.validation - expected.held_out) >= MIN_LOSS:
            signs.append(f"lost {percent(gap)} points on held-out parts of its own training data")
        if expected.validation - expected.confidence >= MIN_LOSS:
            signs.append("is less sure of its predictions than on validation nodes")
        why = f": this model {' and '.join(signs)}" if signs else ""
        most = percent(expected.validation - expected.low)
        ends = f"from {percent(expected.validation)} to {percent(expected.low)} %"
        yield Finding(f"It may lose up to {most} points, {ends}{why}.", MEASURE)


def _about_input(evidence: Evidence, shift: Shift, renamed: bool) -> Iterator[Finding]:
    for one in shift.changed_classes[:MAX_NAMED]:
        share = f"{percent(one.new, 1)} % of the nodes"
        yield Finding(
            f"Predicts class {one.name} for {share}; it has {percent(one.training, 1)} % of the "
            "training labels.",
            MEASURE,
        )
    effects = {one.name.removeprefix("column "): one for one in evidence.reliance.features}
    lost = {name: effects[name] for name in effects if name in shift.constant}
    if shift.constant:
        known = [f"{name} ({percent(one.size.value)} %)" for name, one in lost.items()]
        named = listed([*known, *(name for name in shift.constant if name not in lost)])
        yield Finding(
            f"Empty or constant now, but not in training (with the reliance): {named}.",
            "Check these columns. If values are missing, add them. Otherwise train a model without "
            "them (--without, in Python without=[...]).",
            CHECK if any(one.is_relevant for one in lost.values()) else USE,
        )
    emptier = [
        f"{name} ({percent(one.before)} → {percent(one.after)} %)"
        for one in shift.shifted_columns
        if one.value == "empty" and one.after > one.before
        if (name := one.name.removesuffix("=empty")) not in shift.constant
    ]
    if emptier:
        yield Finding(
            f"More cells are empty than in training: {listed(emptier)}.",
            "Check these columns. If values are missing, add them.",
        )
    at_risk = [one.name for one in evidence.risks if one.is_at_risk]
    risky = [name for name in at_risk if name.removeprefix("column ") not in lost][:MAX_NAMED]
    if risky:
        names, is_one = ", ".join(risky), len(risky) == 1
        them, have = ("it", "has") if is_one else ("them", "have")
        yield Finding(
            f"It relies on {names}, which {have} shifted.",
            f"Check {names}. If the shift is an error in the data, correct it. "
            f"Otherwise train a model without {them} (--without, in Python without=[...]), and "
            "compare the two models.",
        )
    late = [one.name for one in shift.shifted_columns if one.is_date and one.effect >= LATE_DATES]
    if late:
        yield Finding(
            f"The dates in {', '.join(late[:MAX_NAMED])} are not those of training. The model has "
            "not learnt what they mean.",
            "Train a model without them (--without, in Python without=[...]).",
        )
    degrees = [part for part in shift.parts if part.name == "degrees" and part.has_shifted]
    if degrees and evidence.reliance.edges.is_relevant:
        yield Finding(
            f"It relies on the edges, and their number per node has changed from "
            f"{degrees[0].before:.3g} to {degrees[0].after:.3g}.",
            "Check the edges: are some missing, or were others added?",
        )
    weaker = evidence.concept.weaker if evidence.concept and not renamed else []
    if weaker:
        name = f"{'column ' if weaker[0].column.isdigit() else ''}{weaker[0].column}"
        yield Finding(
            f"{name[0].upper()}{name[1:]} predicts the label less well than in training.",
            f"Find out what has changed in {name}.",
        )
