"""`canet search` on the embedded task with few users."""

import json
import os
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest

from canet.data.benchmarks import synthetic
from canet.defaults import task_settings, unsearched
from canet.errors import CanetError
from canet.models import Network
from canet.search import search
from canet.search.study import Plan, done_trials, open_journal, open_study
from canet.store import RunConfig
from tests.support.commands import call

SEARCH = ("search", "synthetic", "--method", "irm", "--epochs", "2", "--device", "cpu")
QUIET = (*SEARCH, "--quiet")


@pytest.fixture(scope="module", autouse=True)
def few_users() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(synthetic, "NUM_USERS", 200)
        yield


def read(folder: Path) -> dict[str, Any]:
    content: dict[str, Any] = json.loads((folder / "best.json").read_text())
    return content


def trials_of(folder: Path, storage: str = "journal.log") -> list[Any]:
    """Settings, score and intermediate scores of every trial of a search."""
    content = json.loads((folder / "search.json").read_text())
    plan = Plan(RunConfig(**content["base"]), content["sampler"], content["seeds"])
    study = open_study(plan, open_journal(folder / storage))
    return [(t.params, t.value, t.intermediate_values) for t in done_trials(study)]


@pytest.fixture(scope="module")
def found(few_users: None, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """A folder with a search of four trials, and the output of the command."""
    folder = tmp_path_factory.mktemp("found")
    code, out, err = call(folder, *SEARCH, "--trials", 4, "--out", "mine")
    assert (code, err) == (0, "")
    return folder, out


def test_the_best_score_is_at_least_the_initial_score(found: tuple[Path, str]) -> None:
    best = read(found[0] / "mine")
    scores = [score for _, score, _ in trials_of(found[0] / "mine")]
    assert best["valid"] == max(scores)
    assert best["start"]["valid"] == scores[0]
    assert best["valid"] >= best["start"]["valid"]


@pytest.mark.parametrize(("task", "method"), [("twitch", "erm"), ("cora", "canet")])
def test_a_search_starts_from_the_unsearched_settings(
    task: str, method: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plans: list[Plan] = []
    monkeypatch.setattr(search, "run_search", lambda plan, *_, **__: plans.append(plan))
    assert call(tmp_path, "search", task, "--method", method, "--quiet") == (0, "", "")
    assert plans[0].base.settings == asdict(unsearched(task, method, "gcn"))
    assert (task_settings(task, method, "gcn") == unsearched(task, method, "gcn")) == (
        method == "canet"
    )


def test_best_json_describes_the_search(found: tuple[Path, str]) -> None:
    best = read(found[0] / "mine")
    assert (best["task"], best["method"], best["backbone"]) == ("synthetic", "irm", "gcn")
    assert (best["trials"], best["epochs"], best["seeds"], best["sampler"]) == (4, 2, 1, "tpe")
    assert {"hidden", "learning_rate", "penalty_weight"} <= {*best["settings"]}
    assert {*best["importances"]} == {*best["settings"]}
    assert best["command"] == (
        "canet search synthetic --method irm --backbone gcn --sampler tpe --trials 4 --epochs 2"
    )
    assert {"canet", "torch", "optuna"} <= {*best["versions"]}
    assert "CPU" in best["hardware"]


def test_output_shows_the_best_trials_and_the_importances(found: tuple[Path, str]) -> None:
    folder, out = found
    best = read(folder / "mine")
    rows = [line.split("│")[2].strip() for line in out.splitlines() if line.startswith("│")]
    assert rows == [f"{100 * trial['valid']:.2f}" for trial in best["best_trials"]]
    assert f"{next(iter(best['importances']))} " in out


def test_next_command_trains_with_the_best_settings(found: tuple[Path, str]) -> None:
    folder, out = found
    command = shlex.split(out.strip().splitlines()[-1].partition("settings: ")[2])
    assert command[0] == "canet"
    code, out, _ = call(folder, *command[1:], "--epochs", 2, "--device", "cpu", "--json")
    trained = json.loads(out)
    best = read(folder / "mine")
    assert code == 0
    assert best["settings"].items() <= trained["settings"].items()
    assert trained["scores"]["valid"]["values"] == [best["valid"]]


def test_set_overrides_a_file_of_settings(found: tuple[Path, str]) -> None:
    line = ("train", "synthetic", "--method", "irm", "--settings", "mine/best.json")
    quick = ("--set", "hidden=7", "--epochs", 1, "--device", "cpu", "--json")
    settings = json.loads(call(found[0], *line, *quick)[1])["settings"]
    best = read(found[0] / "mine")["settings"]
    assert settings["hidden"] == 7
    assert settings["learning_rate"] == best["learning_rate"]


def test_the_same_command_only_reads_and_more_trials_resume_the_search(
    found: tuple[Path, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = found[0]
    before = trials_of(folder / "mine")
    with monkeypatch.context() as patch:
        patch.setattr(Network, "run", lambda *_: pytest.fail("trained again"))
        _, out, _ = call(folder, *SEARCH, "--trials", 4, "--out", "mine", "--json")
    assert json.loads(out) == read(folder / "mine")
    call(folder, *QUIET, "--trials", 4, "--out", "grown")
    call(folder, *QUIET, "--trials", 6, "--out", "grown")
    assert trials_of(folder / "mine") == before
    assert trials_of(folder / "grown")[:4] == before
    assert len(trials_of(folder / "grown")) == 6


def test_no_file_contains_a_test_score(found: tuple[Path, str]) -> None:
    for path in (found[0] / "mine").iterdir():
        text = path.read_text()
        assert "test_id" not in text
        assert "ood/" not in text


@pytest.mark.slow
def test_workers_run_the_requested_number_of_trials(tmp_path: Path) -> None:
    command = (*QUIET, "--trials", 5, "--jobs", 2, "--out", "mine")
    assert call(tmp_path, *command) == (0, "", "")
    trials, best = trials_of(tmp_path / "mine"), read(tmp_path / "mine")
    assert len(trials) == best["trials"] == 5
    assert trials[0][0] == best["start"]["settings"]


ERM = ("search", "synthetic", "--method", "erm", "--trials", "6", "--epochs", "20")
ERM = (*ERM, "--device", "cpu", "--quiet", "--out", "mine")


def start(folder: Path, *line: str, before: str = "pass") -> subprocess.Popen[str]:
    """Start `canet LINE` in a folder, in a new process."""
    few_users = "from canet.data.benchmarks import synthetic; synthetic.NUM_USERS = 200"
    code = f"{few_users}; {before}; from canet.cli import main; main()"
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-c", code, *line]
    return subprocess.Popen(command, cwd=folder, env=environment, stderr=subprocess.PIPE, text=True)


@pytest.mark.slow
def test_search_that_is_stopped_and_killed_keeps_its_finished_trials(tmp_path: Path) -> None:
    journal, kept = tmp_path / "mine" / "journal.log", []
    for begun, number in ((3, signal.SIGINT), (5, signal.SIGKILL)):
        with start(tmp_path, *ERM) as process:
            while process.poll() is None:
                if journal.exists() and journal.read_text().count('"state":1') >= begun:
                    process.send_signal(number)
                    break
                time.sleep(0.002)
            process.communicate()
        assert process.returncode in (-number, 128 + number)
        assert trials_of(tmp_path / "mine")[: len(kept)] == kept
        kept = trials_of(tmp_path / "mine")
        assert len(kept) >= begun
    assert call(tmp_path, *ERM)[0] == 0
    assert trials_of(tmp_path / "mine")[: len(kept)] == kept
    assert len(trials_of(tmp_path / "mine")) == 6


@pytest.mark.slow
@pytest.mark.parametrize("jobs", ["1", "2"])
def test_full_disk_is_a_one_line_error_and_the_search_can_be_resumed(
    jobs: str, tmp_path: Path
) -> None:
    limit = "import resource as r; r.setrlimit(r.RLIMIT_FSIZE, (6000, 6000))"
    with start(tmp_path, *ERM, "--jobs", jobs, before=limit) as process:
        _, err = process.communicate()
    assert (process.returncode, err.count("\n")) == (2, 1)
    assert "journal.log" in err
    kept = trials_of(tmp_path / "mine")
    if jobs == "1":  # worker processes use the full task
        assert call(tmp_path, *ERM)[0] == 0
        assert trials_of(tmp_path / "mine")[: len(kept)] == kept
        assert len(trials_of(tmp_path / "mine")) == 6


def die(*_: object) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


@pytest.mark.slow
def test_death_of_a_worker_is_a_one_line_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(search, "train_trial", die)
    code, _, err = call(tmp_path, *QUIET, "--trials", 2, "--jobs", 2, "--out", "mine")
    assert (code, err.count("\n")) == (2, 1)
    assert "SIGKILL" in err


def test_trials_can_be_stored_in_another_journal(tmp_path: Path) -> None:
    for trials in (1, 2):
        call(tmp_path, *QUIET, "--trials", trials, "--storage", "other.log", "--out", "mine")
    assert {path.name for path in (tmp_path / "mine").iterdir()} == {"search.json", "best.json"}
    assert len(trials_of(tmp_path / "mine", "../other.log")) == 2


def test_the_address_of_a_database_is_rejected_without_showing_it(tmp_path: Path) -> None:
    for url in ("postgresql://me:s3cr@t@127.0.0.1/db", "sqlite:///trials.db"):
        code, out, err = call(tmp_path, *QUIET, "--storage", url)
        assert (code, out, err.count("\n")) == (2, "", 1)
        assert "--ray" in err
        assert url not in err
    assert not any(tmp_path.iterdir())


def test_recorded_commands_contain_the_options_of_the_task(tmp_path: Path) -> None:
    options = ("--protocol", "disjoint", "--data-seed", "3", "--inductive")
    line = (*QUIET, *options, "--trials", 1, "--backbone", "gat", "--data-root", tmp_path)
    assert call(tmp_path, *line)[0] == 0
    (folder,) = (tmp_path / "searches").iterdir()
    best = read(folder)
    task = f"synthetic --method irm --backbone gat {' '.join(options)}"
    assert best["command"] == f"canet search {task} --sampler tpe --trials 1 --epochs 2"
    settings = f"searches/{folder.name}/best.json"
    assert best["train"] == f"canet train {task} --settings {settings} --data-root {tmp_path}"


INVALID = {
    "task": ("search syntetic", "'synthetic'"),
    "method": ("search synthetic --method imr", "'imr'"),
    "backbone": ("search synthetic --backbone gan", "'gan'"),
    "features": ("search synthetic --features structural", "features"),
    "sampler": ("search synthetic --sampler best", "'tpe'"),
    "no trials": ("search synthetic --trials 0", "'--trials'"),
    "no file": ("train synthetic --settings none.json", "'none.json'"),
    "no JSON": ("train synthetic --settings text.json", "'text.json'"),
    "no settings": ("train synthetic --settings list.json", "'list.json'"),
    "setting": ("train synthetic --settings typo.json", "'taau'"),
    "value": ("train synthetic --settings hot.json", "'tau'"),
}


@pytest.mark.parametrize(("line", "name"), INVALID.values(), ids=INVALID)
def test_invalid_commands_are_one_line_errors(line: str, name: str, tmp_path: Path) -> None:
    files = {
        "text.json": "tau = 2",
        "list.json": "[1, 2]",
        "typo.json": '{"settings": {"taau": 2}}',
        "hot.json": '{"settings": {"tau": "hot"}}',
    }
    for file, text in files.items():
        (tmp_path / file).write_text(text)
    code, out, err = call(tmp_path, *line.split())
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert name in err


def test_folder_of_another_search_is_rejected_and_not_changed(found: tuple[Path, str]) -> None:
    before = read(found[0] / "mine")
    code, _, err = call(found[0], *QUIET, "--backbone", "gat", "--trials", 1, "--out", "mine")
    assert (code, err.count("\n")) == (2, 1)
    assert "'mine'" in err
    assert read(found[0] / "mine") == before


def test_the_error_of_a_search_without_scores_contains_the_reason(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise CanetError("training stopped: the loss is not finite")

    monkeypatch.setattr("canet.models.Network.run", fail)
    code, _, err = call(tmp_path, *QUIET, "--trials", 2, "--out", "mine")
    assert code == 2
    assert "the loss is not finite" in err


def test_without_optuna_the_error_contains_the_install_command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "optuna", None)
    for name in [name for name in sys.modules if name.startswith("canet.search")]:
        monkeypatch.delitem(sys.modules, name)
    code, _, err = call(tmp_path, *SEARCH)
    assert (code, err.count("\n")) == (2, 1)
    assert "pip install" in err
    assert not any(tmp_path.iterdir())
