from __future__ import annotations

import itertools

from canet.diagnosis import Diagnosis
from canet.diagnosis.pictures import (
    Mark,
    Picture,
    _with_room,
    abstention_curve,
    expected_bars,
    pictures,
    reliability_diagram,
    risk_map,
)


def test_there_are_the_pictures_that_there_are_numbers_for(
    complete: Diagnosis, training_alone: Diagnosis
) -> None:
    assert next(p.title for p in pictures(complete)) == "Relied on and moved"
    assert len(pictures(complete)) == 3
    assert len(pictures(complete)[1].legend) == 2
    assert len(pictures(training_alone)) == 2
    assert len(pictures(training_alone)[0].legend) == 1


def test_everything_lies_inside(complete: Diagnosis) -> None:
    for picture in pictures(complete):
        marks = [(mark.x, mark.y) for mark in picture.marks]
        lines = [point.split(",") for line in picture.lines for point in line.points.split()]
        for x, y in [*marks, *((float(x), float(y)) for x, y in lines)]:
            assert Picture.left <= x <= Picture.right
            assert Picture.top <= y <= Picture.bottom


def test_the_block_to_worry_about_is_top_right_in_the_colour_of_warnings(
    complete: Diagnosis,
) -> None:
    marks = {mark.title.split(":")[0]: mark for mark in risk_map(complete).marks}
    read, others = marks.pop("read"), marks.values()
    assert all(read.x > other.x and read.y < other.y for other in others)
    assert read.colour == "warn"
    assert {other.colour for other in others} == {"new"}
    assert read.label == "read"


def test_labels_never_lie_on_one_another() -> None:
    marks = [Mark(40 + 3 * i, 100 + 4 * i, "new", "", label=f"block {i}") for i in range(12)]
    labelled = [mark for mark in _with_room(marks) if mark.label]
    assert labelled
    for one, other in itertools.combinations(labelled, 2):
        assert abs(one.y - other.y) >= 12 or abs(one.x - other.x) > 30


def test_a_calibrated_bin_lies_on_the_diagonal(complete: Diagnosis) -> None:
    picture = reliability_diagram([("validation", "valid", complete.confidence.valid)])
    for mark, b in zip(picture.marks, complete.confidence.valid.bins, strict=True):
        across = (mark.x - Picture.left) / (Picture.right - Picture.left)
        up = (Picture.bottom - mark.y) / (Picture.bottom - Picture.top)
        assert abs(100 * across - b.confidence) < 0.5
        assert abs(100 * up - b.accuracy.value) < 0.5


def test_the_curve_has_a_band(complete: Diagnosis) -> None:
    picture = abstention_curve([("validation", "valid", complete.confidence.valid)])
    (line,) = picture.lines
    assert len(line.points.split()) == 20
    assert len(line.band.split()) == 40


def test_estimates_stand_beside_what_was_measured(
    complete: Diagnosis, new_alone: Diagnosis, training_alone: Diagnosis
) -> None:
    named = [bar.name for bar in expected_bars(complete) if bar.name]
    expected = ["on validation nodes", "expected", "if what moved told nothing", "by its labels"]
    assert named == expected
    assert [bar.name for bar in expected_bars(new_alone) if bar.name] == expected[:2]
    assert expected_bars(training_alone) == []
