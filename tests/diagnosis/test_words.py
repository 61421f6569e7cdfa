from __future__ import annotations

import re
from dataclasses import replace

import pytest

from canet.diagnosis import Diagnosis
from canet.diagnosis.estimate import Estimate
from canet.diagnosis.words import (
    answer,
    confidence_words,
    environment_words,
    headline,
    risky_blocks,
)


def flipping(found: Diagnosis, name: str, share: float) -> Diagnosis:
    """With another share of flips on the training graph for one block."""
    relied = found.reliance["training"]
    features = [
        replace(effect, flipped=Estimate(share, share, share)) if effect.name == name else effect
        for effect in relied.features
    ]
    features.sort(key=lambda effect: -effect.flipped.value)
    return replace(
        found, reliance=found.reliance | {"training": replace(relied, features=features)}
    )


def far(found: Diagnosis, share: float) -> Diagnosis:
    """With another share of new nodes far from training."""
    assert found.confidence.unlike is not None
    unlike = replace(found.confidence.unlike, far=Estimate(share, share, share))
    return replace(found, confidence=replace(found.confidence, unlike=unlike))


def test_with_labels_the_headline_tells_what_came_and_what_was_expected(
    complete: Diagnosis,
) -> None:
    words = r"It relies most on read, which moved; \d+ % are right where \d+ % was expected"
    assert re.fullmatch(words, headline(complete))


def test_without_labels_it_tells_best_and_worst(
    unlabelled: Diagnosis, new_alone: Diagnosis
) -> None:
    words = r"It relies most on read, which moved; expect \d+ to \d+ % right"
    assert re.fullmatch(words, headline(unlabelled))
    assert re.search("; expect about 1?[0-9]+ % right", headline(far(new_alone, 10)))
    assert re.search("; expect at most about 1?[0-9]+ % right", headline(far(new_alone, 90)))


def test_a_training_graph_alone_is_told_by_reliance(training_alone: Diagnosis) -> None:
    assert headline(training_alone) == "It relies most on read"
    assert len(answer(training_alone)) == 1


def test_the_answer_tells_reliance_shift_and_score(complete: Diagnosis) -> None:
    relies, moved, expect = answer(complete)
    assert relies.startswith("It relies most on read: ")
    assert "flip when its values come from other nodes." in relies
    assert "Rewired edges flip 0 %" in relies
    assert re.search(r"on the new one read flips \d+ %\.$", relies)
    assert "most of all column 3 (up by" in moved
    assert moved.endswith("It relies on what moved: read.")
    assert re.match(r"Expect \d+ % \(\d+ to \d+\) of the predictions on the new graph", expect)
    assert "If what moved told nothing any more" in expect
    assert re.search(r"By the labels that are there, \d+ % are\.$", expect)


def test_an_estimate_out_of_reach_is_the_best_case(complete: Diagnosis) -> None:
    assert "best case: 80 % of the new nodes are unlike" in answer(far(complete, 80))[2]
    assert "best case" not in answer(far(complete, 20))[2]


def test_blocks_that_hardly_matter_are_no_risk(complete: Diagnosis) -> None:
    assert risky_blocks(complete) == ["read"]
    quiet = flipping(complete, "read", 0.2)
    assert risky_blocks(quiet) == []
    assert headline(quiet).startswith("It relies on no single feature block; ")
    assert answer(quiet)[0].startswith("No feature block matters alone")


def test_where_nothing_moved_that_is_said(complete: Diagnosis) -> None:
    assert complete.shift is not None
    still = replace(complete.shift, parts=[], columns=[], blocks=[])
    sentence = "Nothing clearly moved between training and the new graph."
    assert answer(replace(complete, shift=still))[1] == sentence


def test_environments_are_told_by_what_they_do(
    complete: Diagnosis, training_alone: Diagnosis
) -> None:
    (sentence,) = environment_words(complete)
    assert sentence == (
        "Layer 1 uses 2.0 of 2 environments and tells nodes apart by 2.0; "
        "they go with nothing that is known."
    )
    (layer,) = complete.environments["new"].layers
    with_label = replace(layer, goes_with={"degree": 0.01, "label": 0.4})
    alike = replace(layer, told_apart=1.01)
    for other, words in ((with_label, "they go with the label (agreement 0.40)"), (alike, "same")):
        inferred = replace(complete.environments["new"], layers=[other])
        found = replace(complete, environments={"new": inferred})
        assert words in environment_words(found)[0]
    assert environment_words(training_alone) == []


@pytest.mark.parametrize(
    ("confidence", "words"), [(99, "too sure"), (60, "not sure"), (80, "as sure as it is right")]
)
def test_confidence_is_compared_with_accuracy(
    complete: Diagnosis, confidence: float, words: str
) -> None:
    valid = replace(complete.confidence.valid, confidence=confidence, accuracy=Estimate(80, 70, 90))
    found = replace(complete, confidence=replace(complete.confidence, valid=valid))
    assert words in confidence_words(found)[0]


def test_confidence_is_told_for_what_there_is(
    complete: Diagnosis, unlabelled: Diagnosis, training_alone: Diagnosis
) -> None:
    assert len(confidence_words(complete)) == 3
    assert len(confidence_words(unlabelled)) == 2
    assert len(confidence_words(training_alone)) == 1
