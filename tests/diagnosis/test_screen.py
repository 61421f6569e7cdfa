from __future__ import annotations

import pytest

from canet.diagnosis import Diagnosis
from canet.diagnosis.screen import show


def shown(found: Diagnosis, capsys: pytest.CaptureFixture[str]) -> str:
    show(found)
    return capsys.readouterr().out


def test_a_diagnosis_fits_on_one_screen(
    complete: Diagnosis, capsys: pytest.CaptureFixture[str]
) -> None:
    lines = shown(complete, capsys).splitlines()
    assert len(lines) <= 48
    assert max(map(len, lines)) <= 100


def test_the_screen_has_every_part(complete: Diagnosis, capsys: pytest.CaptureFixture[str]) -> None:
    text = shown(complete, capsys)
    first, second = text.splitlines()[:2]
    assert first == "planted-rule, 2 classes; training graph 200 nodes, new graph 150 nodes"
    assert second.startswith("It relies most on read")
    for words in (
        "Relies on (values of other nodes)",
        "new: flips %",
        "train: flips %",
        "edges rewired",
        "own features",
        "Moved since training",
        "representations",
        "column 3",
        "< 0.001",
        "Of 6 columns 2 clearly move within classes between 3 groups",
        "Layer 1 uses 2.0 of 2 environments",
        "temperature",
    ):
        assert words in text


def test_what_is_not_known_is_not_shown(
    training_alone: Diagnosis, new_alone: Diagnosis, capsys: pytest.CaptureFixture[str]
) -> None:
    text = shown(training_alone, capsys)
    assert "Moved since training" not in text
    assert "Layer" not in text
    assert "groups" not in text
    assert "new: flips" not in text
    text = shown(new_alone, capsys)
    assert "train: flips" not in text
    assert "right:" not in text
