"""The trials of interventions: each form runs, and the page shows what they gave."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path
from types import ModuleType

import pytest

from canet.data import load_task
from canet.data.benchmarks import synthetic

RESULTS = Path(__file__).parents[2] / "docs" / "results"


@pytest.fixture(scope="module")
def trials() -> ModuleType:
    path = RESULTS / "interventions" / "trials.py"
    spec = importlib.util.spec_from_file_location("trials", path)
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_page_shows_what_the_trials_gave(trials: ModuleType) -> None:
    text = (RESULTS / "interventions" / "trials.jsonl").read_text(encoding="utf-8")
    page = (RESULTS / "interventions.md").read_text(encoding="utf-8").replace("−", "-")
    for line in trials.tables([json.loads(line) for line in text.splitlines()]):
        assert line in page


@pytest.mark.slow
def test_every_form_trains(trials: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(synthetic, "NUM_USERS", 300)
    task = load_task("synthetic", protocol="disjoint", generator="redrawn")
    held = list(trials.held_forms())[:2]
    for form in (*trials.FORMS, *held):
        scores = trials.run(task, form, "cpu", 2)
        assert scores is None or all(0 <= score <= 100 for score in scores.values())
