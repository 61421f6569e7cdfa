"""The comparison of what `auto` chooses: the page shows what it gave."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from canet.models import auto
from experiments import choice
from tests.support.small_task import FEW

ROOT = Path(__file__).parents[2]


def test_the_pages_show_the_results_of_the_cases() -> None:
    text = (ROOT / "results/choice/cases.jsonl").read_text(encoding="utf-8")
    names = ("docs/results/choice.md", "docs/results/choice-tables.md")
    page = "\n".join((ROOT / name).read_text(encoding="utf-8") for name in names)
    for line in choice.tables([json.loads(line) for line in text.splitlines()]).splitlines()[1:]:
        assert line in page


def test_regret_is_to_the_best_model_of_each_transfer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(choice.PRESETS, "robust-1", FEW)
    models = {recipe.name: {"x": 0.1 * i} for i, recipe in enumerate(FEW)}
    shared = {"protocol": "paper", "generator": "shared", "draw": 0, "rankings": {}}
    cases = [
        {**shared, "task": task, "models": models, "ways": {"auto": {"x": score}}}
        for task, score in (("cora", 0.15), ("webkb", 0.19))
    ]
    halves = {"all": choice._by_transfer(cases)}
    assert choice._regret_row("auto", halves) == ["auto", "3.0", "4.6", "5.0"]
    assert choice._best_everywhere(halves["all"]) == FEW[-1].name


@pytest.mark.slow
def test_a_case_is_examined(monkeypatch: pytest.MonkeyPatch, data_root: Path) -> None:
    monkeypatch.setenv("CANET_DATA_ROOT", str(data_root))
    monkeypatch.setitem(auto.PRESETS, "robust-1", FEW)
    monkeypatch.setattr(choice, "ERM", FEW[0].name)
    case = choice.Case("webkb", "texas", "shared", 0)
    found = choice.examine(case, "cpu", ["features", "degree", "communities"])
    assert {"groups", "degree", "communities", "features", "validation", "rating"} == set(
        found["rankings"]
    )
    assert set(found["ways"]["auto"]) == {"cornell", "wisconsin"}
