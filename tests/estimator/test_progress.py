"""The progress of a fit: one bar for all stages."""

import pytest

from canet.estimator.progress import STAGES, fit_display
from canet.util.progress import expect
from tests.support.terminal import Clock, terminal


def test_a_line_about_a_fit_names_its_stage(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    clock, lines = Clock(monkeypatch), list[str]()
    with fit_display("reading", quiet=True) as shown:
        for stage in ("checking", "training"):
            clock.now += 15
            shown.stage(stage)
            lines.append(shown.line)
        for epoch in (1, 2, 3):
            clock.now += 60
            shown.training_callback("erm-gcn")(epoch, 3, 0.8)
            lines.append(shown.line)
        clock.now += 15
        shown.stage("saving")
        lines.append(shown.line)
    assert lines == [
        "checking",
        "training",
        "training; about 2 min left; erm-gcn: epoch 1/3, validation score 80.0 %",
        "training; about 90 s left; erm-gcn: epoch 2/3, validation score 80.0 %",
        "scoring; about 30 s left",
        "saving; about 10 s left",
    ]


def test_the_time_left_of_a_training_includes_the_stages_after_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    clock = Clock(monkeypatch)
    with fit_display("training", quiet=True) as shown:
        clock.now += 400
        expect(400)  # the scores take an eighth of 800 seconds
        assert shown.time_left == "about 8 min left"
        shown.stage("scoring")
        clock.now += 400
        assert shown.time_left == "about 100 s left"


def test_a_fit_inside_a_command_updates_the_bar_of_the_command() -> None:
    with terminal() as screen, fit_display("reading", quiet=False) as outer:
        with fit_display("checking", quiet=False) as inner:
            assert inner is outer
            assert outer._completed == STAGES["reading"]
            inner.stage("training")
            inner.training_callback("erm-gcn")(10, 10, 0.8)  # then scoring begins
            assert outer._completed == pytest.approx(sum(list(STAGES.values())[:3]))
        assert outer._stage == "scoring"
        outer.stage("saving")
    assert screen.last_bar().startswith("saving ━")
    with fit_display("checking", quiet=True) as later:
        assert later is not outer
    assert sum(STAGES.values()) == pytest.approx(1)
