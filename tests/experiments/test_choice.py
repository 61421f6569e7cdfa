"""The comparison of the default with simple models: the page shows what it gave."""

import json
import re
from pathlib import Path
from statistics import mean
from typing import Any

import pytest

from experiments import choice

ROOT = Path(__file__).parents[2]
FILES = [f"results/choice/{name}.jsonl" for name in ("cases", "networks", "seeds")]


def test_the_page_shows_the_results_of_the_cases() -> None:
    lines = [line for name in FILES for line in (ROOT / name).read_text("utf-8").splitlines()]
    page = (ROOT / "docs/results/choice.md").read_text(encoding="utf-8")
    for line in choice.tables([json.loads(line) for line in lines]).splitlines():
        assert line in page


def test_the_page_of_the_reproduction_shows_the_linear_model() -> None:
    lines = [line for name in FILES for line in (ROOT / name).read_text("utf-8").splitlines()]
    page = (ROOT / "docs/results/reproduction.md").read_text(encoding="utf-8")
    wanted = {"linear scaling=standardised": "linear model", "CaNet as published": "CaNet-GCN"}
    kinds = {"shared": "`paper`", "redrawn": "`paper`, columns redrawn", "resampled": "`resampled`"}
    scores: dict[tuple[str, str], dict[str, float]] = {}
    for case in map(json.loads, lines):
        for name in wanted.keys() & case.get("models", {}) if case["draw"] == 0 else ():
            if case["task"] in choice.CITATION:
                score = 100 * mean(case["models"][name].values())
                scores.setdefault((case["generator"], name), {})[case["task"]] = score
    assert len(scores) == 6
    for (kind, name), found in scores.items():
        row = " | ".join(f"{found[task]:.1f}" for task in choice.CITATION)
        assert re.search(rf"\| {kinds[kind]}: {wanted[name]}.* \| {re.escape(row)} \|", page)


def made_cases(score: float) -> list[dict[str, Any]]:
    """One case with all models, of the default and of the earlier one, and a case of another."""
    names = [recipe.name for recipe in choice.PRESETS["robust"]]
    models = {name: {"x": 0.5 + 0.01 * i} for i, name in enumerate(names)}
    models |= {name: {"x": 0.5} for name in (choice.TREES.name, choice.SIX)}
    case = {"task": "webkb", "protocol": "texas", "generator": "shared", "draw": 0}
    own = {**case, "models": models | {"auto": {"x": score}}, "candidates": []}
    others = {"CaNet as published": {"x": 0.4}, "erm-transformer": {"x": 0.3}}
    earlier = {**case, "models": others, "ways": {"auto": {"x": 0.2}}}
    seeds = {**case, "seeds": [{"x": 0.5}, {"x": 0.505}, {"x": 0.56}]}
    return [own, earlier, {**earlier, "draw": 1}, seeds]


def test_scores_are_those_of_the_draws_that_the_default_has() -> None:
    (scores,) = choice.by_transfer(made_cases(0.55)[:3]).values()
    assert scores["auto"] == pytest.approx(55)
    assert scores[choice.EARLIER] == pytest.approx(20)
    assert scores[choice.HINDSIGHT] == pytest.approx(62)
    table = choice.tables(made_cases(0.55))
    assert (
        "| webkb (1) | 55.0 | 56.0 | 50.0 | 51.0 | 50.0 | 54.0 | 50.0 | 40.0 | 30.0 | 20.0" in table
    )
    assert "| GCN | -1.0 | -1.0 to -1.0 | 0 % | 0 % |" in table


def test_a_model_is_compared_with_itself_and_with_the_mean_of_its_seeds() -> None:
    # pairs: ±0.5, ±6 and ±5.5; the mean of the seeds is 52.2
    for score, share in ((0.51, "100 % | -1.2"), (0.515, "0 % | -0.7")):
        rows = choice.tables(made_cases(score)).splitlines()[-2:]
        assert rows == [f"| {name} (1) | 33 % | {share} |" for name in ("the others", "all")]


def test_intervals_treat_the_transfers_of_a_task_as_one() -> None:
    same = {("webkb", "texas", "shared", str(i)): 1.0 for i in range(50)}
    other = {("roads", "greer_sc", "shared", str(i)): 3.0 for i in range(50)}
    assert choice._interval(same) == (1.0, 1.0)
    assert choice._interval({**same, **other}) == (1.0, 3.0)  # as with two numbers


@pytest.mark.slow
def test_a_case_is_examined(monkeypatch: pytest.MonkeyPatch, data_root: Path) -> None:
    monkeypatch.setenv("CANET_DATA_ROOT", str(data_root))
    found = choice.examine(choice.Case("webkb", "texas", "shared", 0), "cpu")
    assert len(found["candidates"]) == len(choice.PRESETS["robust"]) + 2
    assert set(found["models"]["auto"]) == {"cornell", "wisconsin"}
    assert {choice.SIX, choice.TREES.name, "erm-gcn"} < set(found["models"])


@pytest.mark.slow
def test_a_network_is_trained_with_three_seeds(
    monkeypatch: pytest.MonkeyPatch, data_root: Path
) -> None:
    monkeypatch.setenv("CANET_DATA_ROOT", str(data_root))
    found = choice.with_seeds(choice.Case("webkb", "texas", "shared", 0), "cpu")
    runs = [tuple(run.values()) for run in found["seeds"]]
    assert len(set(runs)) == 3
    assert {tuple(run) for run in found["seeds"]} == {("cornell", "wisconsin")}
