"""Every finding appears under its condition and not otherwise, with its verdict."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from canet.diagnosis import Diagnosis
from canet.diagnosis.advice import CHECK, LARGE_LOSS, MEASURE, MIN_LOSS, STOP, USE, Found
from canet.diagnosis.columns import ColumnShift
from canet.diagnosis.context import ModelSummary
from canet.diagnosis.estimate import Estimate
from canet.diagnosis.risk import Risk
from canet.diagnosis.sections.concept import Concept, Relation
from canet.diagnosis.sections.expected import MAX_LOSS, ExpectedScore, RenamedClasses
from canet.diagnosis.sections.shift import ClassShare, Part, Shift

LOSS = MIN_LOSS
VALID, BASELINE = 0.9, 0.5


def near(value: float, width: float = 0.001) -> Estimate:
    return Estimate(value, value - width, value + width)


SCORE = ExpectedScore(
    "accuracy",
    "auto",
    VALID,
    VALID - 0.1,
    VALID + 0.1,
    VALID,
    VALID,
    VALID,
    BASELINE,
    math.nan,
    100,
    None,
)
SWAP = RenamedClasses(near(0.2), near(0.9), {0: 1, 1: 0})
DEGREES = Part("degrees", 0.5, "", 0.0, before=4.0, after=1.0)


@pytest.fixture
def calm(unlabelled: Diagnosis) -> Found:
    """Nothing was found: the score is kept, and the input has not shifted."""
    return Found(
        model=ModelSummary("erm", "gcn", ["a", "b"], "a", 6, {}, "accuracy"),
        expected=SCORE,
        reliance=unlabelled.reliance,
        shift=Shift([], [], [], (9, 9), []),
        concept=Concept([], (9, 9)),
        risks=[],
    )


def test_without_findings_the_model_is_used(calm: Found) -> None:
    assert (calm.findings, calm.verdict) == ([], USE)
    assert replace(calm, shift=None, expected=None).findings == []


@pytest.mark.parametrize(
    ("changes", "verdict", "words"),
    [
        ({"renamed": SWAP, "actual": near(0.7)}, STOP, "b were called a"),
        ({"value": BASELINE, "validation": BASELINE}, STOP, "always answering a: accuracy 50 %"),
        ({"value": BASELINE + 0.03, "validation": BASELINE + 0.03}, USE, ""),
        ({"actual": near(BASELINE), "validation": BASELINE}, STOP, "always answering a"),
        ({"metric": "roc_auc", "value": 0.5, "validation": 0.5}, STOP, "better than chance"),
        ({"actual": near(VALID - LARGE_LOSS - 0.01)}, STOP, "lost 11 points"),
        ({"actual": near(VALID - LOSS - 0.01)}, CHECK, "lost 6 points"),
        ({"actual": near(VALID - LOSS - 0.01, 0.05)}, USE, ""),  # within the sampling error
        ({"value": VALID - LOSS, "held_out": 0.7}, CHECK, "lost 20 points on held-out parts"),
        ({"value": VALID - LOSS, "confidence": 0.8}, CHECK, "less sure"),
        ({"value": VALID - LOSS}, CHECK, "may lose up to 10 points."),
        ({"metric": "average_precision"}, CHECK, "may lose"),
        ({"value": VALID - MAX_LOSS["auto"] + 0.01, "held_out": 0.7}, USE, ""),
        ({"value": VALID - 0.02, "source": "held_out"}, CHECK, "may lose"),
        ({"value": VALID - LOSS, "held_out": 0.7, "actual": near(VALID)}, USE, ""),
    ],
)
def test_findings_about_the_score(
    calm: Found, changes: dict[str, Any], verdict: str, words: str
) -> None:
    found = replace(calm, expected=replace(SCORE, **changes))
    assert found.verdict == verdict
    assert [words in one.found for one in found.findings] == [True] * (verdict != USE)


def classes(found: Found, training: float, validation: float, new: float) -> Found:
    assert found.shift is not None
    share = ClassShare("b", training, validation, new, math.nan)
    return replace(found, shift=replace(found.shift, classes=[share]))


def risk(found: Found, shift: float, *relied_on: bool) -> Found:
    moved = ColumnShift("age", 0, shift, 1.0, 2.0, 0.0)
    risks = [Risk(f"age {i}", near(0.1), shift, moved, one) for i, one in enumerate(relied_on)]
    return replace(found, risks=risks)


def edges(found: Found, reliance: float, part: Part = DEGREES) -> Found:
    assert found.shift is not None
    effect = replace(found.reliance.edges, lost=near(reliance))
    reliance_on = replace(found.reliance, edges=effect)
    return replace(found, reliance=reliance_on, shift=replace(found.shift, parts=[part]))


def weaker(found: Found, after: float) -> Found:
    relations = [Relation("7", "a", 0.9, after, 0.0)]
    return replace(found, concept=Concept(relations, (9, 9)))


Change = Callable[[Found], Found]
INPUTS: dict[str, Change] = {
    "Predicts class b for 1.0 % of the nodes; it has 20.0 %": lambda f: classes(f, 0.2, 0.2, 0.01),
    "Predicts class b for 45.0 % of the nodes": lambda f: classes(f, 0.2, 0.2, 0.45),
    "relies on age 0, which has shifted": lambda f: risk(f, 0.4, True, False),
    "relies on age 0, age 1, which have shifted": lambda f: risk(f, 0.4, True, True),
    "number per node has changed from 4 to 1": lambda f: edges(f, 0.2),
    "Column 7 predicts the label less well": lambda f: weaker(f, 0.6),
}


@pytest.mark.parametrize("words", INPUTS)
def test_findings_about_the_input_need_a_measurement_unless_labels_show_that_the_score_is_kept(
    calm: Found, words: str
) -> None:
    found = INPUTS[words](calm)
    (one,) = found.findings
    assert words in one.found
    assert (one.verdict, found.verdict) == (CHECK, CHECK)
    assert (one.step == MEASURE) == words.startswith("Predicts")
    assert one.step
    kept = replace(found, expected=replace(SCORE, actual=near(VALID - LARGE_LOSS + 0.06)))
    assert kept.findings == [one._replace(step="", verdict=USE)]
    assert kept.verdict == USE
    unsure = replace(found, expected=replace(SCORE, actual=near(VALID - 0.02, LARGE_LOSS)))
    assert unsure.verdict == CHECK


@pytest.mark.parametrize(
    "change",
    [
        lambda f: classes(f, 0.2, 0.2, 0.3),
        lambda f: classes(f, 0.02, 0.02, 0.06),
        lambda f: risk(f, 0.05, True),
        lambda f: risk(f, 0.4, False),
        lambda f: edges(f, 0.0),
        lambda f: edges(f, 0.2, replace(DEGREES, name="homophily")),
        lambda f: edges(f, 0.2, replace(DEGREES, effect=0.05)),
        lambda f: weaker(f, 0.88),
    ],
)
def test_an_input_that_has_not_shifted_or_does_not_matter_is_no_finding(
    calm: Found, change: Change
) -> None:
    assert change(calm).findings == []


def test_swapped_classes_explain_a_weaker_relation(calm: Found) -> None:
    swapped = replace(calm, expected=replace(SCORE, renamed=SWAP, actual=near(0.7)))
    assert weaker(swapped, 0.1).findings == swapped.findings


def test_the_strongest_verdict_counts(calm: Found) -> None:
    found = replace(risk(calm, 0.4, True), expected=replace(SCORE, actual=near(0.6)))
    assert [one.verdict for one in found.findings] == [STOP, CHECK]
    assert found.verdict == STOP
