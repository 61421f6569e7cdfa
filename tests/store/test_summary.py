import json
import math
from dataclasses import replace
from pathlib import Path
from statistics import fmean
from typing import Any

import pytest

from canet.errors import CanetError
from canet.store.summary import (
    OOD_LAST,
    OOD_MEAN,
    ScoredRun,
    read_run,
    standard_deviation,
    summarise,
    summary_rows,
)
from tests.support.finished import change_result, make_config, make_result, write_run

CONFIGURATION = make_config(data_seed=4, epochs=9)


def scored(seed: int = 0, **scores: float) -> ScoredRun:
    """A run whose scores depend on the seed."""
    splits = {"train": 90.0, "valid": 80.0, "test_id": 70.0, "ood/near": 60.0, "ood/far": 40.0}
    result = make_result(
        {name: score + seed**2 for name, score in (splits | scores).items()},
        selected_epoch=3 + seed,
        epochs=7 + seed,
        seconds_per_epoch=0.5 + seed,
        peak_memory_mb=100.0 + seed,
        device="a CPU",
        versions={"canet": "1"},
    )
    return ScoredRun(replace(CONFIGURATION, seed=seed), result)


def test_summary_contains_the_configuration() -> None:
    summary = summarise([scored(0), scored(1)], "roc_auc")
    expected = {"task": "synthetic", "method": "erm", "backbone": "gcn", "protocol": "paper"}
    expected |= {"data_seed": 4, "features": "original", "generator": "shared"}
    assert summary | expected == summary
    assert (summary["metric"], summary["selection"]) == ("roc_auc", "best validation")
    assert (summary["seeds"], summary["epochs"], summary["epochs_run"]) == ([0, 1], 9, [7, 8])
    assert summary["selected_epochs"] == [3, 4]
    assert summary["settings"] == CONFIGURATION.settings
    assert (summary["device"], summary["versions"]) == ("a CPU", {"canet": "1"})
    assert json.loads(json.dumps(summary)) == summary


def test_spread_is_the_mean_and_the_sample_standard_deviation() -> None:
    spread = summarise([scored(0), scored(1), scored(2)], "accuracy")["scores"]["test_id"]
    assert spread["values"] == [70.0, 71.0, 74.0]
    assert spread["mean"] == pytest.approx(215 / 3)
    squares = [(value - 215 / 3) ** 2 for value in spread["values"]]
    assert spread["std"] == pytest.approx(math.sqrt(sum(squares) / 2))


def test_shifted_sets_are_listed_in_order_with_their_mean_per_run() -> None:
    scores = summarise([scored(0), scored(2)], "accuracy")["scores"]
    assert list(scores["test_ood"]) == ["near", "far"]
    assert scores["test_ood"]["far"]["values"] == [40.0, 44.0]
    assert scores["test_ood_mean"]["values"] == [50.0, 54.0]


def test_left_out_sets_are_not_part_of_the_mean() -> None:
    runs = [scored(0, **{"left_out/gap": 1.0}), scored(1, **{"left_out/gap": 1.0})]
    scores = summarise(runs, "accuracy")["scores"]
    assert scores["left_out"]["gap"]["values"] == [1.0, 2.0]
    assert scores["test_ood_mean"]["values"] == [50.0, 51.0]
    assert "left_out" not in summarise([scored()], "accuracy")["scores"]


def test_time_is_the_mean_and_memory_the_maximum() -> None:
    summary = summarise([scored(0), scored(1), scored(2)], "accuracy")
    assert summary["seconds_per_epoch"] == fmean([0.5, 1.5, 2.5])
    assert summary["peak_memory_mb"] == 102.0


def test_standard_deviation_of_one_value_is_zero_and_with_nan_is_nan() -> None:
    assert standard_deviation([1.0]) == 0
    assert standard_deviation([1.0, 3.0]) == pytest.approx(math.sqrt(2))
    assert math.isnan(standard_deviation([1.0, math.nan, 2.0]))


def test_a_finished_run_has_scores_of_splits_means_and_of_the_last_epoch(tmp_path: Path) -> None:
    folder = write_run(tmp_path, make_config(), {"ood/a": 0.5, "ood/b": 0.6})
    run = read_run(folder)
    assert run.score("ood/a") == 0.5
    assert run.score(OOD_MEAN) == pytest.approx(0.55)
    assert run.score(OOD_LAST) == pytest.approx(0.54)
    assert math.isnan(run.score("other"))
    change_result(folder, last_scores={}, scores={"ood/a": math.nan})
    assert not read_run(folder).has(OOD_LAST)
    assert math.isnan(read_run(folder).score(OOD_MEAN))


def test_a_run_without_a_score_on_test_nodes_cannot_be_compared(tmp_path: Path) -> None:
    with pytest.raises(CanetError, match="test nodes"):
        read_run(write_run(tmp_path, make_config(), {"valid": 50.0}))


def test_rows_of_a_summary_follow_the_protocol() -> None:
    def spread(mean: float) -> dict[str, Any]:
        return {"mean": mean, "std": 0.01, "values": [mean - 0.01, mean, mean + 0.01]}

    scores = {
        "train": spread(0.99),
        "valid": spread(0.88),
        "test_id": spread(0.77),
        "test_ood": {"near": spread(0.66), "far": spread(0.55)},
        "test_ood_mean": spread(0.605),
    }
    rows = summary_rows({"scores": scores})
    names = ("train", "valid", "test_id", "test_ood near", "test_ood far", "test_ood mean")
    assert [name for name, _ in rows] == [*names]
    assert rows[-1][1] == "60.50 ± 1.00"
    of_one_run = {"mean": 0.605, "std": 0.0, "values": [0.605]}
    single = summary_rows({"scores": scores | {"test_ood_mean": of_one_run}})
    assert single[-1] == ("test_ood mean", "60.50")
    with_more = summary_rows({"scores": scores | {"left_out": {"gap": spread(0.01)}}})
    assert with_more == [*rows, ("left out gap", "1.00 ± 1.00")]
