"""`canet train` and `canet evaluate`: scores, run folders, what is read again."""

import json
import shlex
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

import pytest

from canet.models import network
from tests.support.commands import QUICK, Canet, call_in_new_process, files_of

METHODS = ("erm", "canet")
METRICS = {"twitch": "roc_auc", "arxiv": "accuracy", "elliptic": "macro_f1"}


def spreads(summary: dict[str, Any]) -> list[dict[str, Any]]:
    """Every score of a summary, with its mean and spread."""
    scores = summary["scores"]
    nested = [s for s in scores.values() if "mean" not in s]
    return [s for s in scores.values() if "mean" in s] + [s for n in nested for s in n.values()]


def values(summary: dict[str, Any]) -> list[list[float]]:
    return [spread["values"] for spread in spreads(summary)]


PAIRS = (("erm", "gcn"), ("canet", "gcn"), ("canet", "gat"))


@pytest.mark.parametrize(("method", "backbone"), PAIRS)
def test_summary_is_complete_and_consistent(method: str, backbone: str, canet: Canet) -> None:
    options = ("--method", method, "--backbone", backbone, "--seeds", 2, *QUICK, "--json")
    summary = canet("train", "synthetic", *options).content
    expected = {"task": "synthetic", "method": method, "backbone": backbone, "data_seed": 0}
    expected |= {"protocol": "paper", "seeds": [0, 1], "epochs": 3}
    expected |= {"metric": "accuracy", "selection": "best validation"}
    assert summary | expected == summary
    assert {"canet", "python", "torch"} <= summary["versions"].keys()
    assert min(summary["seconds_per_epoch"], summary["peak_memory_mb"]) > 0
    scores = summary["scores"]
    assert list(scores) == ["train", "valid", "test_id", "test_ood", "test_ood_mean"]
    assert list(scores["test_ood"]) == ["domain 4", "domain 5", "domain 6"]
    for spread in spreads(summary):
        assert len(spread["values"]) == 2
        assert all(0 <= value <= 1 for value in spread["values"])
        assert spread["mean"] == pytest.approx(fmean(spread["values"]))
        assert spread["std"] == pytest.approx(stdev(spread["values"]))
    per_run = zip(*(spread["values"] for spread in scores["test_ood"].values()), strict=True)
    assert scores["test_ood_mean"]["values"] == pytest.approx([fmean(run) for run in per_run])


def test_same_command_again_reads_the_finished_runs_and_another_folder_gives_the_same_scores(
    finished: tuple[Path, dict[str, Any]], canet: Canet, work: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    line = ("train", "synthetic", "--seeds", 2, *QUICK, "--json")
    first = canet(*line).content
    assert first["scores"] == finished[1]["scores"]
    before = files_of(work)
    monkeypatch.setattr(network, "train_loops", lambda *_: pytest.fail("trained again"))
    assert canet(*line).content == first
    assert files_of(work) == before


def test_more_seeds_add_runs_to_the_finished_ones(canet: Canet, work: Path) -> None:
    line = ("train", "synthetic", *QUICK, "--out", "kept", "--json")
    one = canet(*line).content
    before = files_of(work)
    three = canet(*line, "--seeds", 3).content
    assert three["seeds"] == [0, 1, 2]
    assert [scores[:1] for scores in values(three)] == values(one)
    after = files_of(work)
    assert {path: after[path] for path in before} == before
    found = sorted(path.name for path in (work / "kept").rglob("seed-*"))
    assert found == ["seed-0", "seed-1", "seed-2"]


def test_the_table_has_every_split_and_the_next_command_prints_the_same_scores(
    canet: Canet, small_root: Path
) -> None:
    line = ("train", "twitch", "--method", "erm", *QUICK, "--out", "my runs [1]")
    answer = canet(*line, "--data-root", small_root)
    assert (answer.code, answer.err) == (0, "")
    for split in ("train", "valid", "test_id", "test_ood ES", "test_ood FR", "test_ood EN"):
        assert f"│ {split} " in answer.out
    assert "ROC-AUC" in answer.out
    command = answer.out.splitlines()[-1].partition("To score them again: ")[2]
    again = canet(*shlex.split(command)[1:])
    assert (again.code, again.err) == (0, "")

    def cells(text: str) -> list[str]:
        return ["".join(row.split()) for row in text.splitlines() if row.startswith("│")]

    assert cells(again.out) == cells(answer.out)


def test_the_first_protocol_of_a_task_is_the_default(canet: Canet, data_root: Path) -> None:
    if not (data_root / "webkb").is_dir():
        pytest.skip("'webkb' is not below CANET_DATA_ROOT")
    line = ("train", "webkb", *QUICK, "--data-root", data_root, "--json")
    first = canet(*line).content
    assert first["protocol"] == "cornell"
    assert list(first["scores"]["test_ood"]) == ["texas", "wisconsin"]
    assert canet(*line, "--protocol", "cornell").content["scores"] == first["scores"]
    other = canet(*line, "--protocol", "texas").content
    assert list(other["scores"]["test_ood"]) == ["cornell", "wisconsin"]


def test_training_that_diverges_is_one_line(canet: Canet) -> None:
    steep = ("--set", "learning_rate=1e6", "--set", "num_layers=8")
    assert "learning_rate" in canet("train", "synthetic", *QUICK, *steep).complaint


def test_options_reach_the_run(
    finished: tuple[Path, dict[str, Any]], canet: Canet, work: Path
) -> None:
    line = ("train", "synthetic", *QUICK, "--json")
    seeded = canet(*line, "--data-seed", 7).content
    assert seeded["data_seed"] == 7
    assert values(seeded) != [scores[:1] for scores in values(finished[1])]
    assert canet(*line, "--protocol", "disjoint").content["protocol"] == "disjoint"
    hidden = canet(*line, "--set", "hidden=8", "--set", "tau = 2", "--inductive").content
    assert (hidden["settings"]["hidden"], hidden["settings"]["tau"]) == (8, 2.0)
    assert hidden["inductive"]
    canet(*line, "--ood-curves", "--out", "curves")
    (file,) = (work / "curves").rglob("seed-0/metrics.json")
    curves = json.loads(file.read_text())
    assert [len(curves[f"ood/domain {i}"]) for i in (4, 5, 6)] == [3, 3, 3]


@pytest.mark.filterwarnings("default:.*has its default settings")
@pytest.mark.parametrize("task", METRICS)
def test_official_layouts_train_from_end_to_end(
    task: str, canet: Canet, small_root: Path, offline: list[str]
) -> None:
    before = files_of(small_root)
    for method, backbone in PAIRS:
        line = ("train", task, "--method", method, "--backbone", backbone, *QUICK)
        answer = canet(*line, "--data-root", small_root, "--json")
        has_defaults = method == "erm" and task in ("arxiv", "elliptic")
        assert ("structural features" in answer.err) == has_defaults
        summary = json.loads(answer.out)
        assert (summary["task"], summary["metric"]) == (task, METRICS[task])
        assert all(0 <= value <= 100 for scores in values(summary) for value in scores)
        assert ("left_out" in summary["scores"]) == (task == "elliptic")
    assert files_of(small_root) == before
    assert offline == []


@pytest.mark.parametrize("inductive", [[], ["--inductive"]], ids=["transductive", "inductive"])
@pytest.mark.parametrize(
    ("task", "large"),
    [("arxiv", "raw/node-feat.csv.gz"), ("elliptic", "raw/elliptic_txs_features.csv")],
)
def test_structural_features_need_no_features_file(
    task: str, large: str, inductive: list[str], canet: Canet, small_root: Path, offline: list[str]
) -> None:
    (small_root / task / large).unlink()
    line = ("train", task, "--features", "structural", *inductive, *QUICK, "--out", "kept")
    summary = canet(*line, "--data-root", small_root, "--json").content
    assert (summary["features"], summary["inductive"]) == ("structural", bool(inductive))
    again = canet("evaluate", "kept", "--device", "cpu", "--data-root", small_root, "--json")
    assert again.content["scores"] == summary["scores"]
    assert offline == []


# Evaluation


@pytest.mark.slow
def test_evaluation_in_a_new_process_gives_the_scores_of_training(
    finished: tuple[Path, dict[str, Any]], work: Path
) -> None:
    folder, summary = finished
    answer = call_in_new_process(work, "evaluate", folder, "--device", "cpu", "--json")
    assert answer.content == summary
    assert list(work.iterdir()) == []


def test_evaluation_gives_the_scores_of_one_seed_of_all_and_of_several_configurations(
    finished: tuple[Path, dict[str, Any]], canet: Canet
) -> None:
    folder, summary = finished
    (second,) = folder.rglob("seed-1")
    alone = canet("evaluate", second, "--device", "cpu", "--json").content
    assert alone["seeds"] == [1]
    assert values(alone) == [scores[1:] for scores in values(summary)]
    mean = summary["scores"]["test_ood_mean"]
    assert f"{100 * mean['mean']:.2f} ± {100 * mean['std']:.2f}" in canet("evaluate", folder).out
    for method in METHODS:
        canet("train", "synthetic", "--method", method, *QUICK, "--quiet")
    summaries = canet("evaluate", "runs", "--device", "cpu", "--json").content
    assert [summary["method"] for summary in summaries] == ["canet", "erm"]
