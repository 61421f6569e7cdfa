from __future__ import annotations

import math
from dataclasses import replace

import pytest

from canet.diagnosis import Diagnosis
from canet.diagnosis.between_words import CAVEAT, group_words, relies_on_moving
from canet.diagnosis.estimate import Estimate

from .planted import among_others


def told(found: Diagnosis, method: str = "canet", flips: float = 30.0, **changes: object) -> str:
    """The words for a model of another method, flips, or groups."""
    between = found.between_groups
    assert between is not None
    assert between.relied_on is not None
    relied_on = replace(between.relied_on, flipped=Estimate(flips, flips, flips))
    changed = replace(between, **({"relied_on": relied_on} | changes))  # type: ignore[arg-type]
    model = replace(found.model, method=method)
    return " ".join(group_words(replace(found, model=model, between_groups=changed)))


def test_columns_are_named_with_their_share_and_their_way(complete: Diagnosis) -> None:
    words = told(complete)
    assert words.startswith(
        "Of 6 columns 2 clearly move within classes between 3 groups of training nodes (inferred "
        "from their features), most of all column 3 (η² 80 %, now "
    )
    assert "spreads up), column 5 (η² 70 %, now " in words
    assert "A spread is the standard deviation of the groups' means." in words


def test_without_a_new_graph_there_is_no_way(complete: Diagnosis) -> None:
    between = complete.between_groups
    assert between is not None
    still = [replace(column, moved=math.nan) for column in between.columns]
    words = told(complete, columns=still)
    assert "most of all column 3 (η² 80 %), column 5 (η² 70 %)." in words
    assert "spread" not in words


def test_the_column_that_went_furthest_is_named_even_if_others_moved_more_in_training(
    complete: Diagnosis,
) -> None:
    between = complete.between_groups
    assert between is not None
    columns = [
        replace(column, clear=True, moved=-9.0 if place == 5 else 1.0)
        for place, column in enumerate(between.columns)
    ]
    last = columns[5]
    assert f"Furthest from training is column {last.name} (η² 2 %, now 9.0 spreads down)." in told(
        complete, columns=columns
    )


@pytest.mark.parametrize(
    ("method", "given", "words"),
    [
        ("canet", False, "fit again with interventions=inferred, and compare."),
        ("canet", True, "fit again with interventions=given, and compare."),
        ("irm", False, "fit canet with interventions=inferred, and compare."),
    ],
)
def test_a_model_that_relies_on_them_is_told_to_intervene(
    complete: Diagnosis, method: str, given: bool, words: str
) -> None:
    found = told(among_others(complete), method, given=given)
    assert "relies on these columns (30 % of the predictions flip" in found
    assert words in found
    assert ("the 3 environments of training" in found) == given


@pytest.mark.parametrize("given", [False, True])
def test_where_more_than_a_quarter_of_the_columns_moves_interventions_are_not_advised(
    complete: Diagnosis, given: bool
) -> None:
    words = told(complete, given=given)
    assert "relies on these columns (30 % of the predictions flip" in words
    assert "too many of all columns for interventions" in words
    assert "interventions=" not in words


def test_a_model_that_does_not_or_that_was_trained_so_is_not(complete: Diagnosis) -> None:
    quiet, trained = told(complete, flips=0.4), told(complete, intervened=True)
    assert "hardly relies on these columns: 0 %" in quiet
    assert "relies on these columns though it was trained with interventions: 30 %" in trained
    assert "interventions=" not in quiet + trained


def test_the_words_promise_nothing(complete: Diagnosis, training_alone: Diagnosis) -> None:
    between = complete.between_groups
    assert between is not None
    still = [replace(column, clear=False) for column in between.columns]
    none = told(complete, columns=still, relied_on=None)
    assert none.startswith("Of 6 columns none clearly moves within classes between 3 groups")
    for words in (told(complete), told(complete, flips=0), none):
        assert words.endswith(CAVEAT)
    assert group_words(training_alone) == []


def test_relying_is_more_than_a_few_predictions(
    complete: Diagnosis, training_alone: Diagnosis
) -> None:
    assert relies_on_moving(among_others(complete))
    assert not relies_on_moving(complete)  # a third of the columns moves
    assert not relies_on_moving(training_alone)
