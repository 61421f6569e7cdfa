"""The trials of interventions: each form trains, and the page shows the results."""

import json
from pathlib import Path

import pytest

from canet.data import load_task
from canet.data.benchmarks import synthetic
from experiments import intervention_trials as trials

ROOT = Path(__file__).parents[2]


def test_the_page_shows_the_results_of_the_trials() -> None:
    text = (ROOT / "results/interventions/trials.jsonl").read_text(encoding="utf-8")
    page = (ROOT / "results/interventions/details.md").read_text(encoding="utf-8")
    page = page.replace("−", "-")
    for line in trials.tables([json.loads(line) for line in text.splitlines()]):
        assert line in page


@pytest.mark.slow
def test_every_form_trains(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(synthetic, "NUM_USERS", 300)
    task = load_task("synthetic", protocol="disjoint", generator="redrawn")
    held = list(trials.held_forms())[:2]
    for form in (*trials.FORMS, *held):
        scores = trials.run(task, form, "cpu", 2)
        assert scores is None or all(0 <= score <= 1 for score in scores.values())
