"""Searches as a user sees them, on the embedded task with few users."""

from __future__ import annotations

import io
import json
import os
import shlex
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import Future
from contextlib import chdir, redirect_stderr, redirect_stdout
from pathlib import Path
from typing import Any

import pytest
from canet.runs.engine import Here, Processes
from canet.search.presence import present_at
from optuna.storages import GrpcStorageProxy
from optuna.trial import TrialState

from canet import cli
from canet.data import load_task
from canet.data.benchmarks import synthetic
from canet.errors import CanetError
from canet.presets import preset, unsearched
from canet.runs import evaluate
from canet.search import search
from canet.search import storage as storage_module
from canet.search.search import Worker
from canet.search.storage import open_storage, reach, serve
from canet.search.study import Plan, done_trials, open_study
from canet.settings import recorded
from canet.store import RunConfig
from canet.training import Trainer
from tests.search.test_objective import with_garbage_test_labels

SEARCH = ("search", "synthetic", "--method", "irm", "--epochs", "2", "--device", "cpu")
QUIET = (*SEARCH, "--quiet")


@pytest.fixture(scope="module", autouse=True)
def few_users() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(synthetic, "NUM_USERS", 200)
        yield


def call(folder: Path, *arguments: object) -> tuple[int, str, str]:
    """Run `canet ARGUMENTS` within a folder: exit code, standard output, standard error."""
    with pytest.MonkeyPatch.context() as patch, chdir(folder):
        patch.setattr(sys, "argv", ["canet", *map(str, arguments)])
        out, err = io.StringIO(), io.StringIO()
        with redirect_stdout(out), redirect_stderr(err), pytest.raises(SystemExit) as ended:
            cli.main()
    assert isinstance(ended.value.code, int)
    return ended.value.code, out.getvalue(), err.getvalue()


def read(folder: Path) -> dict[str, Any]:
    content: dict[str, Any] = json.loads((folder / "best.json").read_text())
    return content


def trials_of(folder: Path, storage: str | None = None) -> list[Any]:
    """Settings, score and reported scores of every trial of the search in a folder."""
    content = json.loads((folder / "search.json").read_text())
    plan = Plan(RunConfig(**content["base"]), content["sampler"], content["seeds"])
    study = open_study(plan, open_storage(storage or str(folder / "journal.log")))
    return [(t.params, t.value, t.intermediate_values) for t in done_trials(study)]


@pytest.fixture(scope="module")
def found(few_users: None, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """A folder with a search of four trials, and what it printed."""
    folder = tmp_path_factory.mktemp("found")
    code, out, err = call(folder, *SEARCH, "--trials", 4, "--out", "mine")
    assert (code, err) == (0, "")
    return folder, out


def test_search_never_ends_below_where_it_started(found: tuple[Path, str]) -> None:
    best = read(found[0] / "mine")
    scores = [score for _, score, _ in trials_of(found[0] / "mine")]
    assert best["valid"] == max(scores)
    assert best["start"]["valid"] == scores[0]
    assert best["valid"] >= best["start"]["valid"]


@pytest.mark.parametrize(("task", "method"), [("twitch", "erm"), ("cora", "canet")])
def test_search_starts_where_nothing_was_searched(
    task: str, method: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plans: list[Plan] = []
    monkeypatch.setattr(search, "run_search", lambda plan, *_: plans.append(plan))
    assert call(tmp_path, "search", task, "--method", method, "--quiet") == (0, "", "")
    assert plans[0].base.settings == recorded(unsearched(task, method, "gcn"))
    assert (preset(task, method, "gcn") == unsearched(task, method, "gcn")) == (method == "canet")


def test_best_settings_come_with_all_that_led_to_them(found: tuple[Path, str]) -> None:
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


def test_answer_shows_the_best_trials_what_mattered_and_the_next_command(
    found: tuple[Path, str],
) -> None:
    folder, out = found
    best = read(folder / "mine")
    assert "best of 4 trials (0 pruned, 0 failed) of 2 epochs by validation accuracy %" in out
    rows = [line.split("│")[2].strip() for line in out.splitlines() if line.startswith("│")]
    assert rows == [f"{trial['valid']:.2f}" for trial in best["best_trials"]]
    assert f"Importance: {next(iter(best['importances']))} " in out
    assert "canet train synthetic --method irm --backbone gcn --settings mine/best.json" in out


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


def test_set_wins_over_a_file_of_settings(found: tuple[Path, str]) -> None:
    line = ("train", "synthetic", "--method", "irm", "--settings", "mine/best.json")
    quick = ("--set", "hidden=7", "--epochs", 1, "--device", "cpu", "--json")
    settings = json.loads(call(found[0], *line, *quick)[1])["settings"]
    best = read(found[0] / "mine")["settings"]
    assert settings["hidden"] == 7
    assert settings["learning_rate"] == best["learning_rate"]


def test_same_command_again_reads_and_a_larger_one_goes_on(
    found: tuple[Path, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = found[0]
    before = trials_of(folder / "mine")
    with monkeypatch.context() as patch:
        patch.setattr(Trainer, "run_together", lambda *_: pytest.fail("trained again"))
        _, out, _ = call(folder, *SEARCH, "--trials", 4, "--out", "mine", "--json")
    assert json.loads(out) == read(folder / "mine")
    call(folder, *QUIET, "--trials", 6, "--out", "more")
    call(folder, *QUIET, "--trials", 4, "--out", "grown")
    call(folder, *QUIET, "--trials", 6, "--out", "grown")
    assert trials_of(folder / "mine") == before
    assert trials_of(folder / "more")[:4] == before
    assert trials_of(folder / "grown") == trials_of(folder / "more")


@pytest.mark.slow
@pytest.mark.parametrize("method", ["canet", "group_dro"])
def test_garbage_test_labels_leave_the_study_unchanged(
    method: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    line = ("search", "synthetic", "--method", method, "--epochs", 21, "--trials", 3)
    call(tmp_path, *line, "--device", "cpu", "--quiet", "--out", "true")
    monkeypatch.setattr(
        evaluate, "load_task", lambda *given: with_garbage_test_labels(load_task(*given))
    )
    call(tmp_path, *line, "--device", "cpu", "--quiet", "--out", "garbage")
    trials = trials_of(tmp_path / "true")
    assert [[*reported] for _, _, reported in trials] == 3 * [[20]]
    assert trials_of(tmp_path / "garbage") == trials
    same = ("settings", "valid", "best_trials", "importances")
    true, garbage = read(tmp_path / "true"), read(tmp_path / "garbage")
    assert [garbage[key] for key in same] == [true[key] for key in same]


def test_no_test_score_is_kept_anywhere(found: tuple[Path, str]) -> None:
    for path in (found[0] / "mine").iterdir():
        text = path.read_text()
        assert "test_id" not in text
        assert "ood/" not in text


@pytest.mark.slow
def test_workers_do_as_many_trials_as_were_asked_for(tmp_path: Path) -> None:
    command = (*QUIET, "--trials", 5, "--jobs", 2, "--out", "mine")
    assert call(tmp_path, *command) == (0, "", "")
    assert len(trials_of(tmp_path / "mine")) == read(tmp_path / "mine")["trials"] == 5


FEW_USERS = "from canet.data import synthetic; synthetic.NUM_USERS = 200"
ERM = ("search", "synthetic", "--method", "erm", "--trials", "6", "--epochs", "20")
ERM = (*ERM, "--device", "cpu", "--quiet")


def start(folder: Path, *line: str, before: str = "pass") -> subprocess.Popen[str]:
    """Start `canet LINE` within a folder, in a process of its own."""
    code = f"{FEW_USERS}; {before}; from canet.cli import main; main()"
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-c", code, *line]
    return subprocess.Popen(command, cwd=folder, env=environment, stderr=subprocess.PIPE, text=True)


def same(folder: Path, other: Path) -> bool:
    """Whether two searches found the same, to the bit."""
    found, expected = read(folder), read(other)
    return trials_of(folder) == trials_of(other) and all(
        found[key] == expected[key] for key in expected if key not in ("train", "date")
    )


@pytest.mark.slow
def test_search_that_is_stopped_and_killed_ends_as_one_that_was_not(tmp_path: Path) -> None:
    assert call(tmp_path, *ERM, "--out", "whole")[0] == 0
    journal = tmp_path / "mine" / "journal.log"
    for begun, number in ((3, signal.SIGINT), (5, signal.SIGKILL)):
        with start(tmp_path, *ERM, "--out", "mine") as process:
            while process.poll() is None:
                if journal.exists() and journal.read_text().count('{"op_code":4,') >= begun:
                    process.send_signal(number)
                    break
                time.sleep(0.002)
            _, err = process.communicate()
        assert process.returncode in (-number, 128 + number)
        assert err.count("\n") == (number != signal.SIGKILL)
    assert not (tmp_path / "mine" / "best.json").exists()
    assert call(tmp_path, *ERM, "--out", "mine")[0] == 0
    assert same(tmp_path / "mine", tmp_path / "whole")


def test_trial_of_another_command_is_left_to_it(tmp_path: Path) -> None:
    call(tmp_path, *QUIET, "--trials", 1, "--out", "mine")
    content = json.loads((tmp_path / "mine" / "search.json").read_text())
    plan = Plan(RunConfig(**content["base"]), content["sampler"], content["seeds"])
    place = str(tmp_path / "mine" / "journal.log")
    with present_at(place):
        theirs = open_study(plan, open_storage(place))
        trial = theirs.ask()
        assert call(tmp_path, *QUIET, "--trials", 2, "--out", "mine")[0] == 0
        assert theirs.tell(trial, 1.0).state == TrialState.COMPLETE


@pytest.mark.slow
@pytest.mark.parametrize("jobs", ["1", "2"])
def test_full_disk_is_one_line_and_the_search_goes_on_when_there_is_room(
    jobs: str, tmp_path: Path
) -> None:
    limit = "import resource as r; r.setrlimit(r.RLIMIT_FSIZE, (5000, 5000))"
    line = (*ERM, "--jobs", jobs, "--out", "mine")
    with start(tmp_path, *line, before=limit) as process:
        _, err = process.communicate()
    assert process.returncode == 2
    place = tmp_path / "mine" / "journal.log"
    assert err == (
        f"canet: cannot write '{place}' (File too large): make room there, and the same command "
        "goes on\n"
    )
    assert len(trials_of(tmp_path / "mine")) < 6
    if jobs == "1":  # worker processes have all users
        assert call(tmp_path, *ERM, "--out", "mine")[0] == 0
        assert call(tmp_path, *ERM, "--out", "whole")[0] == 0
        assert same(tmp_path / "mine", tmp_path / "whole")


@pytest.mark.parametrize("line", ["garbage", '{"op_code":99}'])
def test_damaged_journal_is_told_in_one_line(
    line: str, found: tuple[Path, str], tmp_path: Path
) -> None:
    shutil.copytree(found[0] / "mine", tmp_path / "mine")
    journal = tmp_path / "mine" / "journal.log"
    sound = journal.read_text()
    journal.write_text(f"{sound}{line}\n")
    code, _, err = call(tmp_path, *QUIET, "--trials", 4, "--out", "mine")
    assert (code, err.count("\n")) == (2, 1)
    assert "journal.log' is damaged in line" in err
    journal.write_text(sound)
    assert call(tmp_path, *QUIET, "--trials", 4, "--out", "mine") == (0, "", "")


class Dying(Worker):
    """A worker whose process ends at once."""

    def __call__(self, *_: object) -> str:
        os._exit(9)


def test_worker_that_dies_is_told_in_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(search, "Worker", Dying)
    code, _, err = call(tmp_path, *QUIET, "--trials", 2, "--jobs", 2, "--out", "mine")
    assert (code, err.count("\n")) == (2, 1)
    assert "ended with exit code 9: lower --jobs if memory is short" in err


class Sleeping(Worker):
    """A worker that says which process it is and never ends."""

    def __call__(self, *_: object) -> str:
        assert self.data_root is not None
        (self.data_root / str(os.getpid())).touch()
        time.sleep(600)
        return ""


@pytest.mark.slow
def test_interrupted_parent_takes_its_workers_along(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    processes = tmp_path / "processes"
    processes.mkdir()

    def interrupt(*_: object) -> None:
        if len([*processes.iterdir()]) == 2:
            raise KeyboardInterrupt

    monkeypatch.setattr(search, "Worker", Sleeping)
    monkeypatch.setattr(search, "_show", interrupt)
    line = (*QUIET, "--trials", 2, "--jobs", 2, "--out", "mine", "--data-root", processes)
    assert call(tmp_path, *line)[0] == 130
    for process in processes.iterdir():
        with pytest.raises(ProcessLookupError):
            os.kill(int(process.name), 0)


class Repeating(Here):
    """An engine that repeats its first task, whose machine died in the middle of a trial."""

    died = False

    def submit(self, slot: int, function: Any, *arguments: Any) -> Future:
        if not self.died:
            self.died = True
            open_study(function.plan, function.storage).ask()
        return super().submit(slot, function, *arguments)


def test_trial_that_died_with_its_machine_is_made_up_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(search, "open_engine", lambda jobs, ray, device: Repeating())
    assert call(tmp_path, *QUIET, "--trials", 3, "--out", "mine") == (0, "", "")
    trials = trials_of(tmp_path / "mine")
    assert len(trials) == read(tmp_path / "mine")["trials"] == 3
    assert read(tmp_path / "mine")["start"]["valid"] == trials[-1][1]


class Elsewhere(Processes):
    """Worker processes that stand for other machines: they get no file of this one."""

    remote = True

    def submit(self, slot: int, function: Any, *arguments: Any) -> Future:
        assert isinstance(function.storage, GrpcStorageProxy)
        return super().submit(slot, function, *arguments)


def test_other_machines_reach_the_storage_of_this_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("grpc")
    monkeypatch.setattr(search, "open_engine", lambda jobs, ray, device: Elsewhere(jobs))
    line = (*QUIET, "--trials", 5, "--jobs", 2, "--ray", "auto", "--out", "mine")
    assert call(tmp_path, *line) == (0, "", "")
    trials = trials_of(tmp_path / "mine")
    assert len(trials) == read(tmp_path / "mine")["trials"] == 5
    assert trials[0][0] == read(tmp_path / "mine")["start"]["settings"]


def test_machine_that_cannot_be_reached_is_told_in_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("grpc")
    monkeypatch.setattr(storage_module, "SERVER_SECONDS", 0.1)
    with serve(open_storage(str(tmp_path / "journal.log"))) as served:
        pass
    with pytest.raises(CanetError, match="cannot reach the machine that searches"):
        reach(served)


def test_without_grpc_the_mend_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(search, "open_engine", lambda jobs, ray, device: Elsewhere(jobs))
    monkeypatch.setattr(storage_module, "find_spec", lambda name: None)
    code, _, err = call(tmp_path, *QUIET, "--ray", "auto", "--out", "mine")
    assert (code, err) == (
        2,
        "canet: --ray needs grpcio: pip install -e '.[ray]' in the checkout of canet\n",
    )


def test_several_seeds_count_with_their_mean(tmp_path: Path) -> None:
    call(tmp_path, *QUIET, "--trials", 1, "--seeds", 2, "--out", "mine")
    quick = ("--epochs", 2, "--seeds", 2, "--device", "cpu", "--json")
    trained = json.loads(call(tmp_path, "train", "synthetic", "--method", "irm", *quick)[1])
    assert read(tmp_path / "mine")["valid"] == pytest.approx(trained["scores"]["valid"]["mean"])
    assert read(tmp_path / "mine")["importances"] == {}


def test_trials_can_be_kept_in_a_database(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/trials.db"
    call(tmp_path, *QUIET, "--trials", 2, "--storage", url, "--out", "mine")
    call(tmp_path, *QUIET, "--trials", 3, "--storage", url, "--out", "mine")
    assert {path.name for path in (tmp_path / "mine").iterdir()} == {"search.json", "best.json"}
    assert len(trials_of(tmp_path / "mine", url)) == 3


def test_commands_repeat_how_the_task_was_loaded(tmp_path: Path) -> None:
    options = ("--protocol", "disjoint", "--data-seed", "3", "--inductive")
    line = (*QUIET, *options, "--trials", 1, "--backbone", "gat", "--data-root", tmp_path)
    assert call(tmp_path, *line)[0] == 0
    (folder,) = (tmp_path / "searches").iterdir()
    best = read(folder)
    task = f"synthetic --method irm --backbone gat {' '.join(options)}"
    assert best["command"] == f"canet search {task} --sampler tpe --trials 1 --epochs 2"
    settings = f"searches/{folder.name}/best.json"
    assert best["train"] == f"canet train {task} --settings {settings} --data-root {tmp_path}"


REFUSED = {
    "task": ("search syntetic", "unknown task 'syntetic': did you mean 'synthetic'?"),
    "method": ("search synthetic --method imr", "unknown method 'imr'"),
    "backbone": ("search synthetic --backbone gan", "unknown backbone 'gan'"),
    "features": ("search synthetic --features structural", "unknown features for synthetic"),
    "sampler": ("search synthetic --sampler best", "'best' is not one of 'tpe', 'random', 'grid'"),
    "no trials": ("search synthetic --trials 0", "Invalid value for '--trials'"),
    "storage": ("search synthetic --storage nodb://x", "cannot open the storage 'nodb://x'"),
    "no file": ("train synthetic --settings none.json", "cannot read settings from 'none.json'"),
    "no JSON": ("train synthetic --settings text.json", "'text.json' is not JSON"),
    "no settings": ("train synthetic --settings list.json", "'list.json' has no settings"),
    "setting": ("train synthetic --settings typo.json", "unknown setting 'taau': did you mean"),
    "value": ("train synthetic --settings hot.json", "invalid value 'hot' for setting 'tau'"),
}


@pytest.mark.parametrize(("line", "reason"), REFUSED.values(), ids=REFUSED)
def test_mistakes_are_answered_in_one_line(line: str, reason: str, tmp_path: Path) -> None:
    files = {
        "text.json": "tau = 2",
        "list.json": "[1, 2]",
        "typo.json": '{"settings": {"taau": 2}}',
        "hot.json": '{"settings": {"tau": "hot"}}',
    }
    for name, text in files.items():
        (tmp_path / name).write_text(text)
    code, out, err = call(tmp_path, *line.split())
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert reason in err


def test_folder_of_another_search_is_refused_and_kept(found: tuple[Path, str]) -> None:
    before = read(found[0] / "mine")
    code, _, err = call(found[0], *QUIET, "--backbone", "gat", "--trials", 1, "--out", "mine")
    assert (code, err.count("\n")) == (2, 1)
    assert "'mine' holds another search: choose another folder for --out" in err
    assert read(found[0] / "mine") == before


def test_search_in_which_nothing_can_be_trained_says_why(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise CanetError("training stopped: the loss is not finite")

    monkeypatch.setattr("canet.search.objective.Trainer.run", fail)
    code, _, err = call(tmp_path, *QUIET, "--trials", 2, "--out", "mine")
    assert code == 2
    assert err == "canet: no trial ended with a score: training stopped: the loss is not finite\n"


def test_without_optuna_the_mend_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "optuna", None)
    for name in ("", ".storage", ".study", ".search"):
        monkeypatch.delitem(sys.modules, f"canet.search{name}")
    code, _, err = call(tmp_path, *SEARCH)
    assert code == 2
    assert (
        err
        == "canet: canet search needs Optuna: pip install -e '.[search]' in the checkout of canet\n"
    )
    assert not any(tmp_path.iterdir())
