"""The command line as a user sees it: exit code, standard output, standard error, files."""

import io
import json
import os
import shlex
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import chdir, contextmanager, redirect_stderr, redirect_stdout
from dataclasses import dataclass, fields
from pathlib import Path
from statistics import fmean, stdev
from typing import Any
from urllib.error import URLError

import pytest
import torch

from canet import __version__, cli
from canet.cli import demonstration
from canet.data import DATASETS
from canet.data.benchmarks import download, synthetic
from canet.methods import BACKBONES, Settings
from canet.methods import METHODS as REGISTRY
from canet.training import Trainer, trainer
from canet.util.locks import LOCK
from canet.util.signals import NOTHING_LOST, SIGNALS

METHODS = ("erm", "canet")
NUM_USERS = 300
QUICK = ("--epochs", "3", "--device", "cpu")


@dataclass(frozen=True)
class Answer:
    code: int
    out: str
    err: str

    @property
    def content(self) -> Any:
        """The one JSON object that a successful command printed."""
        assert (self.code, self.err) == (0, "")
        return json.loads(self.out)

    @property
    def complaint(self) -> str:
        """The one line of a refused command."""
        assert (self.code, self.out) == (2, "")
        assert self.err.startswith("canet: ")
        assert self.err.endswith("\n")
        assert self.err.count("\n") == 1
        return self.err.removeprefix("canet: ").strip()


Canet = Callable[..., Answer]


@contextmanager
def usual_signals() -> Iterator[None]:
    """A block in which signals do what Python makes of them; afterwards what they did before."""
    before = {number: signal.getsignal(number) for number in SIGNALS}
    for number in SIGNALS:
        usual = signal.default_int_handler if number == signal.SIGINT else signal.SIG_DFL
        signal.signal(number, usual)
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def call(folder: Path, *arguments: object) -> Answer:
    """Run `canet ARGUMENTS` within a folder."""
    with pytest.MonkeyPatch.context() as patch, chdir(folder), usual_signals():
        patch.setattr(sys, "argv", ["canet", *map(str, arguments)])
        out, err = io.StringIO(), io.StringIO()
        with redirect_stdout(out), redirect_stderr(err), pytest.raises(SystemExit) as ended:
            cli.main()
    assert isinstance(ended.value.code, int)
    return Answer(ended.value.code, out.getvalue(), err.getvalue())


def call_anew(folder: Path, *arguments: object) -> Answer:
    """Run `canet ARGUMENTS` within a folder, in a process of its own."""
    few_users = f"from canet.data import synthetic; synthetic.NUM_USERS = {NUM_USERS}"
    code = f"{few_users}; from canet.cli import main; main()"
    done = subprocess.run(
        [sys.executable, "-c", code, *map(str, arguments)],
        cwd=folder,
        env=os.environ | {"OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=120,
    )
    return Answer(done.returncode, done.stdout, done.stderr)


def files_of(folder: Path) -> dict[str, tuple[int, bytes]]:
    """Everything below a folder, and when it was written."""
    return {
        str(path.relative_to(folder)): (path.stat().st_mtime_ns, path.read_bytes())
        for path in folder.rglob("*")
        if path.is_file()
    }


@pytest.fixture(scope="module", autouse=True)
def few_users() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(synthetic, "NUM_USERS", NUM_USERS)
        yield


@pytest.fixture
def work(tmp_path: Path) -> Path:
    """The empty folder that commands run in."""
    folder = tmp_path / "work"
    folder.mkdir()
    return folder


@pytest.fixture
def canet(work: Path) -> Canet:
    return lambda *arguments: call(work, *arguments)


@pytest.fixture
def offline(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """No network; the addresses that were asked for."""
    asked: list[str] = []

    def refuse(request: Any, timeout: float) -> None:
        asked.append(request.full_url)
        raise URLError("Network is unreachable")

    monkeypatch.setattr(download, "urlopen", refuse)
    return asked


@pytest.fixture(scope="module")
def finished(
    few_users: None, tmp_path_factory: pytest.TempPathFactory
) -> tuple[Path, dict[str, Any]]:
    """A folder with two finished runs, and what training them answered."""
    folder = tmp_path_factory.mktemp("finished")
    answer = call(folder, "train", "synthetic", "--seeds", 2, *QUICK, "--out", "runs", "--json")
    return folder / "runs", answer.content


# Help

COMMANDS = [
    "inspect",
    "fit",
    "predict",
    "diagnose",
    "demo",
    "train",
    "evaluate",
    "verify",
    "datasets",
    "methods",
    "backbones",
    "search",
    "reproduce",
    "report",
    "archive",
    "bench",
]


@pytest.mark.parametrize("arguments", [["--help"], []], ids=["asked", "no argument"])
def test_help_lists_the_commands_without_importing_torch(
    arguments: list[str], tmp_path: Path
) -> None:
    code = (
        "import sys; from canet.cli import main; sys.argv[0] = 'canet'\n"
        "try: main()\n"
        "except SystemExit as end: assert not end.code\n"
        "heavy = {'torch', 'torch_geometric', 'numpy', 'scipy', 'matplotlib'} & {*sys.modules}\n"
        "sys.exit(f'imported {heavy}' if heavy else 0)"
    )
    command = [sys.executable, "-c", code, *arguments]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stderr) == (0, "")
    assert "Usage: canet [OPTIONS] COMMAND" in done.stdout
    listed = [line.split()[0] for line in done.stdout.partition("Commands:")[2].splitlines()[1:]]
    assert listed == COMMANDS


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_explains_its_options(command: str, canet: Canet) -> None:
    answer = canet(command, "--help")
    assert (answer.code, answer.err) == (0, "")
    assert f"Usage: canet {command} " in answer.out


# Refusals


REFUSED = {
    "command": ("trian synthetic", "No such command 'trian'. Did you mean 'train'?"),
    "option": ("train synthetic --epoch 3", "No such option: --epoch (Possible options: --epochs)"),
    "no task": ("train", "Missing argument 'task'"),
    "more arguments": ("train synthetic cora", "unexpected extra argument"),
    "task": ("train syntetic", "unknown task 'syntetic': did you mean 'synthetic'?"),
    "method": ("train synthetic --method canett", "unknown method 'canett': did you mean 'canet'?"),
    "backbone": ("train synthetic --backbone gan", "unknown backbone 'gan': did you mean"),
    "protocol": ("train synthetic --protocol papr", "did you mean 'paper'? valid are paper, disj"),
    "no protocol": ("train twitch --protocol disjoint", "unknown protocol for twitch 'disjoint'"),
    "features": ("train arxiv --features structure", "did you mean 'structural'?"),
    "no features": ("train cora --features structural", "valid are only its own"),
    "setting": ("train synthetic --set taau=2", "unknown setting 'taau': did you mean 'tau'?"),
    "setting of another method": (
        "train synthetic --method erm --set tau=2",
        "unknown setting 'tau': valid are hidden, num_layers",
    ),
    "setting's value": ("train synthetic --set tau=hot", "'tau': it takes a number > 0"),
    "setting's range": ("train synthetic --set dropout=1", "it takes a number ≥ 0 and < 1"),
    "setting's choice": ("train synthetic --set estimator=x", "it takes one of node, graph"),
    "no value": ("train synthetic --set tau", "settings are given as key=value"),
    "zero epochs": ("train synthetic --epochs 0", "Invalid value for '--epochs'"),
    "negative epochs": ("train synthetic --epochs -2", "Invalid value for '--epochs'"),
    "words for epochs": ("train synthetic --epochs many", "Invalid value for '--epochs'"),
    "zero epochs as a setting": ("train synthetic --set epochs=0", "a whole number ≥ 1"),
    "zero seeds": ("train synthetic --seeds 0", "Invalid value for '--seeds'"),
    "negative seeds": ("train synthetic --seeds -1", "Invalid value for '--seeds'"),
    "negative data seed": ("train synthetic --data-seed -1", "Invalid value for '--data-seed'"),
    "large data seed": ("train synthetic --data-seed 99999999999999999999", "'--data-seed'"),
    "device": ("train synthetic --device gpu", "'gpu' is not one of 'auto', 'cpu', 'cuda'"),
    "cuda": ("train synthetic --device cuda", "no CUDA device here: use --device cpu"),
    "cuda in demo": ("demo --device cuda", "no CUDA device here: use --device cpu"),
    "data root": ("train cora --data-root nowhere", "data root 'nowhere' is not a folder"),
    "unread data root": ("train synthetic --data-root nowhere", "'nowhere' is not a folder"),
    "data root in datasets": ("datasets --data-root nowhere", "'nowhere' is not a folder"),
    "data root in evaluate": ("evaluate . --data-root nowhere", "'nowhere' is not a folder"),
    "task in datasets": ("datasets coro", "unknown task 'coro': did you mean 'cora'?"),
    "no runs": ("evaluate .", "no finished run at '.': give the folder that --out named"),
    "no folder of runs": ("evaluate nowhere", "no finished run at 'nowhere'"),
    "no run named": ("evaluate", "Missing argument 'run'"),
    "too large": (
        "train synthetic --set hidden=1000000000000",
        "it takes a whole number ≥ 1 and ≤ 16,384",
    ),
    "long name": (f"train synthetic --out {'x' * 300}", "File name too long"),
}


@pytest.mark.parametrize(("line", "words"), REFUSED.values(), ids=list(REFUSED))
def test_mistake_is_answered_in_one_line_and_nothing_is_written(
    line: str,
    words: str,
    canet: Canet,
    work: Path,
    fresh_cache: Path,
    offline: list[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert words in canet(*line.split()).complaint
    assert list(work.iterdir()) == []
    assert not fresh_cache.exists()
    assert offline == []


@pytest.mark.parametrize(
    "line",
    [
        "train cora --set taau=2",
        "train cora --set tau=-1",
        "train cora --epochs 0",
        "train cora --method canett",
        "train cora --backbone gan",
        "train cora --device cuda",
    ],
)
def test_mistake_is_found_before_any_data_is_loaded(
    line: str, canet: Canet, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr("canet.data.load_task", lambda *_: pytest.fail("loaded data"))
    assert canet(*line.split()).complaint


def test_mistake_ends_a_real_process_with_code_2_and_no_traceback(work: Path) -> None:
    command = [sys.executable, "-m", "canet.cli", "datasets", "coro"]
    done = subprocess.run(command, cwd=work, capture_output=True, text=True, timeout=60)
    answer = Answer(done.returncode, done.stdout, done.stderr)
    assert "did you mean 'cora'?" in answer.complaint


@pytest.mark.parametrize("task", ["cora", "twitch", "arxiv", "elliptic"])
def test_files_that_cannot_be_downloaded_are_told_with_the_way_by_hand(
    task: str, canet: Canet, work: Path, fresh_cache: Path, offline: list[str]
) -> None:
    complaint = canet("train", task).complaint
    assert f"cannot download {offline[0]} (Network is unreachable)" in complaint
    assert "by hand below --data-root/CANET_DATA_ROOT" in complaint
    assert list(work.iterdir()) == []
    assert not [name for name in files_of(fresh_cache) if not name.endswith(LOCK)]


def test_damaged_data_is_told_in_one_line(
    canet: Canet, work: Path, small_root: Path, offline: list[str]
) -> None:
    (small_root / "arxiv/raw/edge.csv.gz").write_bytes(b"not an archive")
    assert "edge.csv.gz" in canet("train", "arxiv", "--data-root", small_root).complaint
    assert list(work.iterdir()) == []


def test_folder_that_holds_another_run_is_refused_and_left_alone(canet: Canet, work: Path) -> None:
    line = ("train", "synthetic", "--method", "erm", *QUICK, "--out", "kept")
    canet(*line, "--seeds", 2, "--quiet")
    (work / "kept/seed-0").rename(work / "moved")
    before = files_of(work)
    for other in (["--set", "hidden=8"], ["--protocol", "disjoint"], ["--ood-curves"]):
        complaint = canet(*line, "--seeds", 2, *other).complaint
        assert "'kept/seed-1' holds a run with other settings" in complaint
    assert "is itself a run" in canet(*line[:-1], "kept/seed-1").complaint
    assert files_of(work) == before


def test_folder_that_is_a_file_is_refused(canet: Canet, work: Path) -> None:
    (work / "file").write_text("mine")
    assert "choose another folder" in canet("train", "synthetic", "--out", "file").complaint
    assert "choose another folder" in canet("demo", "--out", "file").complaint
    assert (work / "file").read_text() == "mine"


def test_training_that_diverges_is_one_line(canet: Canet) -> None:
    steep = ("--set", "learning_rate=1e6", "--set", "num_layers=8")
    answer = canet("train", "synthetic", *QUICK, *steep)
    assert "the loss is not finite" in answer.complaint


@pytest.mark.parametrize(
    "words", [None, "DefaultCPUAllocator: can't allocate memory", "CUDA out of memory. Tried to"]
)
def test_not_enough_memory_is_one_line(
    words: str | None, canet: Canet, monkeypatch: pytest.MonkeyPatch
) -> None:
    def allocate(*_: object) -> None:
        if words is None:
            torch.empty(2**57, dtype=torch.uint8)  # more than any machine can address
        raise RuntimeError(words)

    monkeypatch.setattr(Trainer, "run_together", allocate)
    answer = canet("train", "synthetic", *QUICK)
    assert answer.complaint.startswith("not enough memory: lower hidden or num_layers")


def test_interrupted_command_says_how_to_go_on(
    canet: Canet, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(Trainer, "run_together", interrupt)
    answer = canet("train", "synthetic", *QUICK)
    assert (answer.code, answer.out) == (130, "")
    assert answer.err == f"canet: {NOTHING_LOST}\n"


def test_fault_of_our_own_keeps_its_traceback(
    canet: Canet, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise RuntimeError("a bug")

    monkeypatch.setattr(Trainer, "run_together", fail)
    with pytest.raises(RuntimeError, match="a bug"):
        canet("train", "synthetic", *QUICK)


# Training


def spreads(scores: dict[str, Any]) -> list[dict[str, Any]]:
    """Every score of a summary."""
    nested = [s for s in scores.values() if "mean" not in s]
    return [s for s in scores.values() if "mean" in s] + [s for n in nested for s in n.values()]


def values(summary: dict[str, Any]) -> list[list[float]]:
    return [spread["values"] for spread in spreads(summary["scores"])]


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("backbone", BACKBONES)
def test_summary_is_complete_and_consistent(
    method: str, backbone: str, canet: Canet, work: Path
) -> None:
    options = ("--method", method, "--backbone", backbone, "--seeds", 2, *QUICK, "--json")
    summary = canet("train", "synthetic", *options).content
    assert summary.keys() >= {
        *("task", "method", "backbone", "protocol", "data_seed", "seeds", "metric", "selection"),
        *("scores", "epochs", "seconds_per_epoch", "peak_memory_mb", "versions"),
    }
    assert (summary["task"], summary["protocol"]) == ("synthetic", "paper")
    assert (summary["method"], summary["backbone"]) == (method, backbone)
    assert (summary["data_seed"], summary["seeds"], summary["epochs"]) == (0, [0, 1], 3)
    assert (summary["metric"], summary["selection"]) == ("accuracy", "best validation")
    assert {"canet", "python", "torch"} <= summary["versions"].keys()
    assert summary["seconds_per_epoch"] > 0
    assert summary["peak_memory_mb"] > 0
    scores = summary["scores"]
    assert list(scores) == ["train", "valid", "test_id", "test_ood", "test_ood_mean"]
    assert list(scores["test_ood"]) == ["domain 4", "domain 5", "domain 6"]
    for spread in spreads(scores):
        assert len(spread["values"]) == 2
        assert all(0 <= value <= 100 for value in spread["values"])
        assert spread["mean"] == pytest.approx(fmean(spread["values"]))
        assert spread["std"] == pytest.approx(stdev(spread["values"]))
    per_run = zip(*(spread["values"] for spread in scores["test_ood"].values()), strict=True)
    assert scores["test_ood_mean"]["values"] == pytest.approx([fmean(run) for run in per_run])
    (folder,) = (work / "runs").iterdir()
    assert folder.name.startswith(f"synthetic-{method}-{backbone}-")
    assert sorted(path.name for path in folder.iterdir()) == ["seed-0", "seed-1"]


def test_same_command_in_another_folder_gives_the_same_scores(
    finished: tuple[Path, dict[str, Any]], canet: Canet
) -> None:
    again = canet("train", "synthetic", "--seeds", 2, *QUICK, "--json").content
    assert again["scores"] == finished[1]["scores"]


def test_same_command_again_reads_the_finished_runs(
    canet: Canet, work: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    line = ("train", "synthetic", "--seeds", 2, *QUICK, "--json")
    first = canet(*line).content
    before = files_of(work)
    monkeypatch.setattr(trainer, "go", lambda *_: pytest.fail("trained again"))
    assert canet(*line).content == first
    assert files_of(work) == before
    assert "2 of 2 run(s) had been trained before" in canet(*line[:-1]).out


def test_more_seeds_add_runs_to_the_finished_ones(canet: Canet, work: Path) -> None:
    line = ("train", "synthetic", *QUICK, "--out", "kept", "--json")
    one = canet(*line).content
    assert [path.name for path in (work / "kept").iterdir()] == ["seed-0"]
    before = files_of(work)
    three = canet(*line, "--seeds", 3).content
    assert three["seeds"] == [0, 1, 2]
    assert [scores[:1] for scores in values(three)] == values(one)
    after = files_of(work)
    assert {path: after[path] for path in before} == before
    assert sorted(path.name for path in (work / "kept").iterdir()) == ["seed-0", "seed-1", "seed-2"]


def test_table_names_splits_metric_and_rule_and_the_next_command_works(
    canet: Canet, small_root: Path
) -> None:
    line = ("train", "twitch", "--method", "erm", *QUICK, "--out", "my runs [1]")
    answer = canet(*line, "--data-root", small_root)
    assert (answer.code, answer.err) == (0, "")
    assert "twitch (paper, original features), erm-gcn" in answer.out
    assert "ROC-AUC %, best validation of 1 run(s)" in answer.out
    for split in ("train", "valid", "test_id", "test_ood ES", "test_ood FR", "test_ood EN"):
        assert f"│ {split} " in answer.out
    command = answer.out.splitlines()[-1].partition("Scores again: ")[2]
    program, *arguments = shlex.split(command)
    assert program == "canet"
    again = canet(*arguments)
    assert (again.code, again.err) == (0, "")

    def cells(text: str) -> list[str]:
        return ["".join(row.split()) for row in text.splitlines() if row.startswith("│")]

    assert cells(again.out) == cells(answer.out)


def test_quiet_training_prints_nothing_and_keeps_the_runs(canet: Canet, work: Path) -> None:
    assert canet("train", "synthetic", *QUICK, "--quiet") == Answer(0, "", "")
    assert len(list(work.glob("runs/*/seed-0/done"))) == 1


def test_long_training_tells_its_progress_on_standard_error_alone(
    canet: Canet, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("canet.util.progress.SECONDS_BETWEEN_LINES", 0.0)
    answer = canet("train", "synthetic", "--seeds", 2, *QUICK)
    assert "synthetic canet-gcn seed 0: epoch 1/3, valid " in answer.err.splitlines()[0]
    assert "synthetic canet-gcn seed 1: epoch 3/3, valid " in answer.err.splitlines()[-1]
    assert "epoch 1/3" not in answer.out


def test_options_reach_the_run(
    finished: tuple[Path, dict[str, Any]], canet: Canet, work: Path
) -> None:
    line = ("train", "synthetic", *QUICK, "--json")
    seeded = canet(*line, "--data-seed", 7).content
    assert seeded["data_seed"] == 7
    assert values(seeded) != [scores[:1] for scores in values(finished[1])]
    disjoint = canet(*line, "--protocol", "disjoint").content
    assert disjoint["protocol"] == "disjoint"
    hidden = canet(*line, "--set", "hidden=8", "--set", "tau = 2", "--inductive").content
    assert (hidden["settings"]["hidden"], hidden["settings"]["tau"]) == (8, 2.0)
    assert hidden["inductive"]
    canet(*line, "--ood-curves", "--out", "curves")
    curves = json.loads((work / "curves/seed-0/metrics.json").read_text())
    assert [len(curves[f"ood/domain {i}"]) for i in (4, 5, 6)] == [3, 3, 3]
    assert len(list((work / "runs").iterdir())) == 3


@pytest.mark.parametrize("task", ["twitch", "arxiv", "elliptic"])
def test_official_layouts_train_from_end_to_end(
    task: str, canet: Canet, small_root: Path, offline: list[str]
) -> None:
    before = files_of(small_root)
    for method in METHODS:
        for backbone in BACKBONES:
            line = ("train", task, "--method", method, "--backbone", backbone, *QUICK)
            summary = canet(*line, "--data-root", small_root, "--json").content
            assert (summary["task"], summary["features"]) == (task, "original")
            assert summary["metric"] == DATASETS[task].metric
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


def test_data_root_may_come_from_the_environment(
    canet: Canet, small_root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CANET_DATA_ROOT", str(small_root))
    assert canet("train", "twitch", *QUICK, "--json").content["task"] == "twitch"


def test_real_citation_graph_trains(canet: Canet, data_root: Path) -> None:
    line = ("train", "cora", "--epochs", 2, "--device", "cpu", "--json")
    summary = canet(*line, "--data-root", data_root).content
    assert (summary["task"], summary["metric"]) == ("cora", "accuracy")
    assert list(summary["scores"]["test_ood"]) == ["domain 4", "domain 5", "domain 6"]


# Evaluation


@pytest.mark.slow
def test_evaluation_in_a_new_process_gives_the_scores_of_training(
    finished: tuple[Path, dict[str, Any]], work: Path
) -> None:
    folder, summary = finished
    answer = call_anew(work, "evaluate", folder, "--device", "cpu", "--json")
    assert answer.content == summary
    assert list(work.iterdir()) == []


def test_one_seed_can_be_evaluated_alone(
    finished: tuple[Path, dict[str, Any]], canet: Canet
) -> None:
    folder, summary = finished
    alone = canet("evaluate", folder / "seed-1", "--device", "cpu", "--json").content
    assert alone["seeds"] == [1]
    assert values(alone) == [scores[1:] for scores in values(summary)]


def test_another_generator_is_told(canet: Canet, work: Path) -> None:
    line = ("train", "synthetic", "--protocol", "disjoint", "--generator", "redrawn", *QUICK)
    assert "synthetic (disjoint, redrawn, original features), canet-gcn" in canet(*line).out
    (folder,) = (work / "runs").iterdir()
    answer = canet("evaluate", folder, "--device", "cpu")
    assert "synthetic (disjoint, redrawn, data seed 0, original features)" in answer.out


def test_evaluation_prints_a_table(finished: tuple[Path, dict[str, Any]], canet: Canet) -> None:
    folder, summary = finished
    answer = canet("evaluate", folder, "--device", "cpu")
    assert (answer.code, answer.err) == (0, "")
    assert "synthetic (paper, data seed 0, original features), canet-gcn" in answer.out
    assert "accuracy %, best validation of 2 run(s)" in answer.out
    mean = summary["scores"]["test_ood_mean"]
    assert f"{mean['mean']:.2f} ± {mean['std']:.2f}" in answer.out


def test_several_configurations_are_a_list(canet: Canet) -> None:
    for method in METHODS:
        canet("train", "synthetic", "--method", method, *QUICK, "--quiet")
    summaries = canet("evaluate", "runs", "--device", "cpu", "--json").content
    assert [summary["method"] for summary in summaries] == ["canet", "erm"]
    assert canet("evaluate", "runs", "--device", "cpu").out.count("test_ood mean") == 2


def test_damaged_weights_are_told_in_one_line(canet: Canet, work: Path) -> None:
    canet("train", "synthetic", "--method", "erm", *QUICK, "--out", "kept", "--quiet")
    weights = work / "kept/seed-0/weights.safetensors"
    weights.write_bytes(weights.read_bytes()[:-100])
    before = files_of(work)
    assert "weights.safetensors' is damaged" in canet("evaluate", "kept").complaint
    line = ("train", "synthetic", "--method", "erm", *QUICK, "--out", "kept")
    assert "weights.safetensors' is damaged" in canet(*line).complaint
    assert files_of(work) == before


# Data sets


def test_data_sets_are_listed_with_their_state_and_nothing_is_downloaded(
    canet: Canet, fresh_cache: Path, offline: list[str]
) -> None:
    answer = canet("datasets")
    assert (answer.code, answer.err) == (0, "")
    rows = [line.split("│")[1:-1] for line in answer.out.splitlines() if line.startswith("│")]
    state = {row[0].strip(): row[-1].strip() for row in rows}
    assert list(state) == list(DATASETS)
    assert state["synthetic"] == "none needed"
    assert state["cora"] == "missing: 6 files"
    assert state["twitch"] == "missing: 18 files"
    assert not fresh_cache.exists()
    assert offline == []


def test_list_of_data_sets_as_json(canet: Canet, small_root: Path, offline: list[str]) -> None:
    (small_root / "planetoid").mkdir()
    (small_root / "planetoid/ind.cora.tx").write_bytes(b"not the published file")
    content = canet("datasets", "--data-root", small_root, "--json").content
    assert list(content) == list(DATASETS)
    states = {name: task["state"] for name, task in content.items()}
    assert states == {
        **dict.fromkeys(("synthetic", "twitch", "arxiv", "elliptic"), "present"),
        **dict.fromkeys(("citeseer", "pubmed"), "missing"),
        "cora": "damaged",
    }
    statistics = content["elliptic"]["statistics"]
    assert statistics == {"nodes": 441, "edges": 392, "classes": 2, "features": 165}
    assert content["cora"]["splits"] == {}
    assert content["twitch"]["splits"]["ood/ES"] == 20
    assert offline == []


def test_one_data_set_shows_its_splits_and_files(canet: Canet, small_root: Path) -> None:
    answer = canet("datasets", "elliptic", "--data-root", small_root)
    assert (answer.code, answer.err) == (0, "")
    assert "441 nodes, 392 edges\n2 classes, 165 features" in answer.out
    assert "features besides its own: structural" in answer.out
    for split in ("train", "valid", "test_id", "ood/steps 11-14", "left_out/steps 43-49"):
        assert f"│ {split} " in answer.out
    path = "elliptic/raw/elliptic_txs_classes.csv"
    (row,) = (line for line in answer.out.splitlines() if line.startswith(f"│ {path} "))
    assert row.split("│")[2].strip() == "present"


def test_damaged_and_missing_files_of_a_data_set_are_shown(
    canet: Canet, fresh_cache: Path, offline: list[str]
) -> None:
    path = fresh_cache / "planetoid/ind.cora.tx"
    path.parent.mkdir(parents=True)
    path.write_bytes(b"not the published file")
    answer = canet("datasets", "cora")
    assert (answer.code, answer.err) == (0, "")
    rows = [line.split("│")[1:-1] for line in answer.out.splitlines() if line.startswith("│")]
    state = {name.strip(): state.strip() for name, state, _ in rows}
    assert state["planetoid/ind.cora.tx"] == "damaged"
    assert state["planetoid/ind.cora.allx"] == "missing"
    assert "2,708 nodes" in answer.out
    files = canet("datasets", "cora", "--json").content["files"]
    assert {"path": "planetoid/ind.cora.tx", "state": "damaged", "location": str(path)} in files
    assert {"path": "planetoid/ind.cora.ty", "state": "missing", "location": None} in files
    assert offline == []


def test_real_data_set_is_counted(canet: Canet, data_root: Path) -> None:
    answer = canet("datasets", "cora", "--data-root", data_root)
    assert "2,708 nodes, 5,429 edges in each of 6 domains" in answer.out
    for split in ("train", "valid", "test_id", "ood/domain 4", "ood/domain 6"):
        assert f"│ {split} " in answer.out


# Demonstration


def test_demo_passes_its_options_on(canet: Canet, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[tuple[Path, str, bool]] = []
    monkeypatch.setattr(demonstration, "run_demo", lambda *options: asked.append(options))
    assert canet("demo") == Answer(0, "", "")
    assert canet("demo", "--out", "mine", "--device", "cpu", "--quiet") == Answer(0, "", "")
    assert asked == [(Path("demo"), "auto", False), (Path("mine"), "cpu", True)]


# canet methods


def test_methods_are_listed_with_their_hyper_parameters_and_papers(canet: Canet) -> None:
    answer = canet("methods")
    assert answer.code == 0
    for method in REGISTRY.values():
        assert method.summary in answer.out
        assert method.paper in answer.out
        own = {f.name for f in fields(method.settings_type)} - {f.name for f in fields(Settings)}
        assert all(f"{name} = " in answer.out for name in own)


def test_one_method_shows_every_setting(canet: Canet) -> None:
    out = canet("methods", "irm").out
    assert all(declared.name in out for declared in fields(REGISTRY["irm"].settings_type))
    assert "needs environment labels" in out


def test_list_of_methods_as_json(canet: Canet) -> None:
    content = canet("methods", "--json").content
    assert list(content) == list(REGISTRY)
    assert content["canet"]["settings"]["tau"]["default"] == 1.0
    assert content["canet"]["settings"]["tau"]["search"] == [1, 3, 5, 10]
    assert content["erm"]["needs_environments"] is False


def test_backbones_are_listed_with_what_they_are(canet: Canet) -> None:
    out = canet("backbones").out
    content = canet("backbones", "--json").content
    assert list(content) == list(BACKBONES)
    for backbone in BACKBONES.values():
        assert f"{backbone.name} " in out
        assert backbone.summary in out
        assert content[backbone.name] == {"label": backbone.label, "summary": backbone.summary}


def test_unknown_method_is_answered_with_the_nearest(canet: Canet) -> None:
    assert "did you mean 'vrex'" in canet("methods", "vrx").complaint


def test_version_is_printed(canet: Canet) -> None:
    assert canet("--version").out == f"canet {__version__}\n"


@pytest.mark.parametrize("method", REGISTRY)
def test_every_method_trains_from_the_command_line(method: str, canet: Canet) -> None:
    summary = canet("train", "synthetic", "--method", method, "--json", *QUICK).content
    assert summary["method"] == method
    seen = ["domain 1", "domain 2", "domain 3"] if REGISTRY[method].needs_environments else None
    assert summary["environments_seen"] == seen
