"""Every finding appears under its condition and not otherwise, with its verdict."""

from collections.abc import Callable
from dataclasses import replace
from math import nan
from typing import Any

import pytest

from canet.diagnosis import Diagnosis
from canet.diagnosis.advice import (
    CHECK,
    CHECK_MEASURED,
    LARGE_LOSS,
    MEASURE,
    STOP,
    USE,
    Evidence,
)
from canet.diagnosis.columns import ColumnShift
from canet.diagnosis.context import ModelSummary
from canet.diagnosis.risk import Risk
from canet.diagnosis.sections.concept import Concept, Relation
from canet.diagnosis.sections.expected import MAX_LOSS, ExpectedScore, RenamedClasses
from canet.diagnosis.sections.reliance import Effect
from canet.diagnosis.sections.shift import ClassShare, Part, Shift
from canet.scoring.intervals import Estimate

VALID, BASE = 0.9, 0.5
LIMIT = VALID - LARGE_LOSS
LOST = VALID - MAX_LOSS["held_out"] - 0.01


def near(value: float, width: float = 0.001) -> Estimate:
    return Estimate(value, value - width, value + width)


SCORE = ExpectedScore(
    "accuracy", "held_out", VALID, 0.8, 1.0, VALID, VALID, VALID, BASE, nan, 100, None
)
SWAP = RenamedClasses(near(0.2), near(0.9), {0: 1, 1: 0})
DEGREES = Part("degrees", 0.5, "", 0.0, before=4.0, after=1.0)


@pytest.fixture
def calm(unlabelled: Diagnosis) -> Evidence:
    """Nothing was found: the score is kept, and the input has not shifted."""
    model = ModelSummary("erm", "gcn", ["a", "b"], "a", 6, {}, "accuracy")
    shift, concept = Shift([], [], [], (9, 9), []), Concept([], (9, 9))
    return Evidence(model, SCORE, unlabelled.reliance, shift, concept, risks=[])


def test_without_findings_the_model_is_used(calm: Evidence) -> None:
    assert (calm.findings, calm.verdict) == ([], USE)
    assert replace(calm, shift=None, expected=None).findings == []


@pytest.mark.parametrize(
    ("changes", "verdict", "words"),
    [
        ({"renamed": SWAP, "actual": near(0.7)}, STOP, "b were called a"),
        ({"value": BASE, "validation": BASE}, STOP, "always answering a: accuracy 50 %"),
        ({"value": BASE + 0.03, "validation": BASE + 0.03}, USE, ""),
        ({"actual": near(BASE), "validation": BASE}, STOP, "always answering a"),
        ({"actual": near(BASE, 0.1), "validation": BASE + 0.08}, CHECK_MEASURED, "40 to 60 %"),
        ({"metric": "roc_auc", "value": 0.5, "validation": 0.5}, STOP, "better than chance"),
        ({"actual": Estimate(0.75, 0.7, LIMIT)}, STOP, "lost 15 points"),
        ({"actual": Estimate(0.75, 0.7, LIMIT + 0.01)}, CHECK_MEASURED, "70 to 81 %"),
        ({"actual": Estimate(0.85, LIMIT, 0.9)}, CHECK_MEASURED, "Cannot tell yet: 80 to 90 %"),
        ({"actual": Estimate(0.85, LIMIT + 0.01, 0.88)}, USE, ""),
        (
            {"value": LOST, "held_out": 0.7},
            CHECK,
            "up to 10 points, from 90 to 80 %: this model lost 20 points",
        ),
        ({"value": LOST, "confidence": 0.8}, CHECK, "less sure"),
        ({"value": LOST, "held_out": nan}, CHECK, "up to 10 points,"),
        ({"value": LOST + 0.02, "held_out": 0.7}, USE, ""),
        ({"value": LOST, "held_out": 0.7, "actual": near(VALID)}, USE, ""),
        ({"metric": "average_precision"}, CHECK, "up to 10 points,"),  # too uncertain
    ],
)
def test_findings_about_the_score(
    calm: Evidence, changes: dict[str, Any], verdict: str, words: str
) -> None:
    found = replace(calm, expected=replace(SCORE, **changes))
    assert found.verdict == verdict
    assert [words in one.found for one in found.findings] == [True] * (verdict != USE)


def changed(found: Evidence, **parts: Any) -> Evidence:
    return replace(found, shift=replace(found.shift, **parts))


def classes(found: Evidence, before: float, new: float) -> Evidence:
    return changed(found, classes=[ClassShare("b", before, before, new, nan)])


def risk(found: Evidence, shift: float, *relied_on: bool) -> Evidence:
    column = ColumnShift("age", 0, shift, 1.0, 2.0, 0.0)
    risks = [Risk(f"age {i}", near(0.1), shift, column, one) for i, one in enumerate(relied_on)]
    return replace(found, risks=risks)


def edges(found: Evidence, reliance: float, part: Part = DEGREES) -> Evidence:
    own = replace(found.reliance, edges=replace(found.reliance.edges, lost=near(reliance)))
    return changed(replace(found, reliance=own), parts=[part])


def weaker(found: Evidence, after: float) -> Evidence:
    return replace(found, concept=Concept([Relation("7", "a", 0.9, after, 0.0)], (9, 9)))


DATES = ColumnShift("opened", 0, 1.0, 0.0, 9.0, 0.0, is_date=True)


def empty(found: Evidence, reliance: float) -> Evidence:
    features = [Effect("bonus", 2, near(reliance), None), Effect("column 5", 1, near(0), None)]
    own = replace(found.reliance, features=features)
    return changed(replace(found, reliance=own), constant=["5", "bonus", "rare"])


INPUTS: dict[str, Callable[[Evidence], Evidence]] = {
    "Predicts class b for 1.0 % of the nodes; it has 20.0 %": lambda f: classes(f, 0.2, 0.01),
    "Predicts class b for 45.0 % of the nodes": lambda f: classes(f, 0.2, 0.45),
    "relies on age 0, which has shifted": lambda f: risk(f, 0.4, True, False),
    "relies on age 0, age 1, which have shifted": lambda f: risk(f, 0.4, True, True),
    "number per node has changed from 4 to 1": lambda f: edges(f, 0.2),
    "Column 7 predicts the label less well": lambda f: weaker(f, 0.6),
    "(with the reliance): bonus (20 %), 5 (0 %), rare": lambda f: empty(f, 0.2),
    "The dates in opened are not those of training": lambda f: changed(f, columns=[DATES]),
}


@pytest.mark.parametrize("words", INPUTS)
def test_a_finding_about_the_input_needs_no_step_if_labels_show_that_the_score_is_kept(
    calm: Evidence, words: str
) -> None:
    found = INPUTS[words](calm)
    (one,) = found.findings
    assert words in one.found
    assert (one.verdict, found.verdict) == (CHECK, CHECK)
    assert one.step
    assert (one.step == MEASURE) == words.startswith("Predicts")
    kept = replace(found, expected=replace(SCORE, actual=near(VALID - LARGE_LOSS + 0.06)))
    assert (kept.findings, kept.verdict) == ([one._replace(step="", verdict=USE)], USE)
    unsure = replace(found, expected=replace(SCORE, actual=near(VALID, LARGE_LOSS + 0.01)))
    assert unsure.verdict == CHECK_MEASURED


def test_an_input_that_has_not_shifted_or_does_not_matter_is_no_finding(calm: Evidence) -> None:
    for same in (
        classes(calm, 0.2, 0.3),
        risk(calm, 0.05, True),
        risk(calm, 0.4, False),
        edges(calm, 0.0),
        edges(calm, 0.2, replace(DEGREES, name="homophily")),
        edges(calm, 0.2, replace(DEGREES, effect=0.05)),
        weaker(calm, 0.88),
    ):
        assert same.findings == []


def test_an_empty_column_is_named_and_checked_only_if_the_model_relies_on_it(
    calm: Evidence,
) -> None:
    found = empty(calm, 0.01)
    assert found.verdict == USE
    assert ["bonus (1 %)" in one.found for one in found.findings] == [True]
    at_risk = [Risk("bonus", near(0.2), 0.9, DATES, True)]
    found = replace(empty(calm, 0.2), risks=at_risk)
    assert [one.found.split()[0] for one in found.findings] == ["Empty"]  # and not "It relies on"


def test_the_strongest_verdict_counts_and_swapped_classes_explain_a_weaker_relation(
    calm: Evidence,
) -> None:
    found = replace(risk(calm, 0.4, True), expected=replace(SCORE, actual=near(0.6)))
    assert [one.verdict for one in found.findings] == [STOP, CHECK]
    assert found.verdict == STOP
    swapped = replace(calm, expected=replace(SCORE, renamed=SWAP, actual=near(0.7)))
    assert weaker(swapped, 0.1).findings == swapped.findings
