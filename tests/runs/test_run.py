"""Many runs: each trained once, whoever dies; and what they leave."""

from __future__ import annotations

import json
import multiprocessing
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterable
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import pytest

from canet.data.task import ShiftTask
from canet.errors import CanetError
from canet.runs import evaluate, job_folder, run_jobs, worker
from canet.runs.engine import Engine, Processes, WorkerDied
from canet.runs.run import ManyRuns, read_failure
from canet.runs.worker import FAILURE, Outcome, train_elsewhere, train_here, write_files
from canet.store import RunConfig, RunFolder
from canet.store.run_folder import CONFIG, MARKER, METRICS, RESULT, WEIGHTS
from canet.training import Run, Trainer
from canet.util.locks import LOCK, exclusive_lock
from tests.finished import make_config
from tests.runs.processes import alive, wait_until
from tests.runs.test_engine import double

STEEP = {"learning_rate": 1e6, "num_layers": 8}
"""Settings with which training fails: its loss is soon not finite."""


def tiny_job(seed: int = 0, epochs: int = 2, **changes: Any) -> RunConfig:
    return make_config(seed=seed, epochs=epochs, hidden=8, **changes)


def run_here(configs: Iterable[RunConfig], root: Path, **options: Any) -> list[list[str]]:
    """Run jobs in this process; the last lines of those that failed."""
    failed = run_jobs(list(configs), root, device="cpu", quiet=True, **options)
    return [job.lines for job in failed]


def outcome(place: RunFolder) -> dict[str, Any]:
    """What a run must be the same in, however often it was interrupted."""
    return {
        "weights": (place.path / WEIGHTS).read_bytes(),
        "metrics": place.read_metrics(),
        "scores": place.read_result().scores,
        "config": place.read_config(),
    }


def marker(place: RunFolder) -> tuple[int, int]:
    status = (place.path / MARKER).stat()
    return status.st_ino, status.st_mtime_ns


def log_runs(monkeypatch: pytest.MonkeyPatch, log: Path) -> Callable[[], list[str]]:
    """Have every training, in this process and its copies, leave a line when it begins."""
    train = Trainer.run_together

    def logged(self: Trainer, folders: dict[int, Path], *rest: Any) -> list[Run]:
        with log.open("a") as file:
            file.writelines(f"{folder}\n" for folder in folders.values())
        return train(self, folders, *rest)

    monkeypatch.setattr(Trainer, "run_together", logged)
    return lambda: log.read_text().split() if log.exists() else []


@pytest.fixture
def begun(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[], list[str]]:
    """The folders of all trainings that began so far, in order."""
    return log_runs(monkeypatch, tmp_path / "log")


@pytest.fixture(autouse=True)
def cold(monkeypatch: pytest.MonkeyPatch) -> None:
    """No trainer is left from another test."""
    monkeypatch.setattr(worker._Warm, "trainer", None)


def test_each_job_ends_in_the_folder_of_its_content(tmp_path: Path) -> None:
    configs = [tiny_job(seed) for seed in (0, 1)] + [tiny_job(method="canet")]
    assert run_here(configs, tmp_path) == []
    for config in configs:
        place = job_folder(tmp_path, config)
        assert place.path == tmp_path / config.name / f"seed-{config.seed}"
        assert place.read_config() == config
        names = {path.name for path in place.path.iterdir()} - {LOCK}
        assert names == {CONFIG, METRICS, RESULT, WEIGHTS, MARKER}


def test_finished_jobs_are_not_run_again(tmp_path: Path, begun: Callable[[], list[str]]) -> None:
    run_here([tiny_job(0)], tmp_path)
    first = marker(job_folder(tmp_path, tiny_job(0)))
    run_here([tiny_job(0), tiny_job(1), tiny_job(1)], tmp_path)
    assert len(begun()) == 2
    assert marker(job_folder(tmp_path, tiny_job(0))) == first


def test_loaded_task_and_trainer_serve_all_jobs_that_share_them(
    tmp_path: Path, begun: Callable[[], list[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    loaded: list[int] = []
    load_task = evaluate.load_task

    def counted(name: str, data_root: Path | None, data_seed: int, *rest: Any) -> ShiftTask:
        loaded.append(data_seed)
        return load_task(name, data_root, data_seed, *rest)

    monkeypatch.setattr(evaluate, "load_task", counted)
    first, other_data, other_method = (
        [tiny_job(seed, **changes) for seed in (0, 1)]
        for changes in ({}, {"data_seed": 1}, {"method": "canet"})
    )
    mixed = [job for jobs in zip(first, other_data, other_method, strict=True) for job in jobs]
    run_here(mixed, tmp_path)
    expected = [*first, *other_method, *other_data]
    assert begun() == [str(job_folder(tmp_path, job).path) for job in expected]
    assert loaded == [0, 1]


def fail_with_seed_0(monkeypatch: pytest.MonkeyPatch) -> None:
    train = Trainer.run_together

    def fail(self: Trainer, folders: dict[int, Path], *rest: Any) -> list[Run]:
        if 0 in folders:
            raise ZeroDivisionError("as the test wants")
        return train(self, folders, *rest)

    monkeypatch.setattr(Trainer, "run_together", fail)


def test_failed_job_leaves_its_last_lines_and_the_others_go_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fail_with_seed_0(monkeypatch)
    (lines,) = run_here([tiny_job(0), tiny_job(1)], tmp_path)
    assert lines[-1] == "ZeroDivisionError: as the test wants"
    place = job_folder(tmp_path, tiny_job(0))
    assert json.loads((place.path / FAILURE).read_text()) == {"lines": lines}
    assert not place.finished
    assert job_folder(tmp_path, tiny_job(1)).finished


def test_failed_job_is_run_again_only_when_asked(
    tmp_path: Path, begun: Callable[[], list[str]]
) -> None:
    config = tiny_job(**STEEP)
    first = run_here([config], tmp_path)
    assert first == run_here([config], tmp_path)
    assert len(begun()) == 1
    assert run_here([config], tmp_path, retry=True) == first
    assert len(begun()) == 2


def test_retried_job_that_succeeds_has_failed_no_more(tmp_path: Path) -> None:
    place = job_folder(tmp_path, tiny_job())
    place.path.mkdir(parents=True)
    (place.path / FAILURE).write_text('{"lines": ["no space left"]}')
    assert run_here([tiny_job()], tmp_path) == [["no space left"]]
    assert run_here([tiny_job()], tmp_path, retry=True) == []
    assert place.finished
    assert read_failure(place) is None


def test_error_with_a_mend_fails_in_its_one_line(tmp_path: Path) -> None:
    (lines,) = run_here([tiny_job(**STEEP)], tmp_path)
    assert len(lines) == 1
    assert "lower learning_rate" in lines[0]


def test_job_that_does_not_name_all_settings_is_refused(tmp_path: Path) -> None:
    config = tiny_job()
    del config.settings["dropout"]
    ((line,),) = run_here([config], tmp_path)
    assert "give all settings of 'erm'" in line


@pytest.mark.parametrize(("options", "problem"), [({"jobs": 0}, "give 1 or more")])
def test_options_that_cannot_work_are_refused_before_any_job(
    options: dict[str, Any], problem: str, tmp_path: Path
) -> None:
    with pytest.raises(CanetError, match=problem):
        run_here([tiny_job()], tmp_path, **options)
    assert list(tmp_path.iterdir()) == []


def test_files_that_a_killed_process_left_half_written_go(tmp_path: Path) -> None:
    place = job_folder(tmp_path, tiny_job())
    place.path.mkdir(parents=True)
    (place.path / ".weights.safetensors.1.tmp").touch()
    run_here([tiny_job()], tmp_path)
    assert list(place.path.glob(".*")) == []


# Seeds side by side


def test_of_seeds_side_by_side_only_the_broken_one_fails(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fail_with_seed_0(monkeypatch)
    configs = [tiny_job(seed) for seed in range(3)]
    told = train_here(configs, tmp_path, "cpu", None)
    places = [job_folder(tmp_path, config) for config in configs]
    assert [place.finished for place in places] == [False, True, True]
    assert list(told.failures) == [0]
    assert not told.sound


class Script(Engine):
    """Answers that a test wrote, in place of training; what was asked for is kept."""

    def __init__(self, *answers: Outcome | Exception, size: int = 1) -> None:
        self.size = size
        self.asked: list[list[int]] = []
        self.renewed: list[int] = []
        self._answers = list(answers)

    def submit(self, slot: int, function: Any, *arguments: Any) -> Future[Any]:
        configs, root = arguments[:2]
        self.asked.append([config.seed for config in configs])
        answer = self._answers.pop(0) if self._answers else Outcome()
        future: Future[Any] = Future()
        if isinstance(answer, Exception):
            future.set_exception(answer)
            return future
        for config in configs:
            if config.seed not in answer.failures:
                place = job_folder(root, config)
                place.path.mkdir(parents=True, exist_ok=True)
                (place.path / MARKER).touch()
        future.set_result(answer)
        return future

    def renew(self, slot: int) -> None:
        self.renewed.append(slot)


def many(configs: list[RunConfig], root: Path, together: bool = True) -> ManyRuns:
    return ManyRuns(configs, root, "cpu", None, together)


def test_seeds_of_a_method_that_may_share_a_gpu_go_together(tmp_path: Path) -> None:
    configs = [tiny_job(seed) for seed in range(7)] + [tiny_job(method="mixup")]
    script = Script()
    assert many(configs, tmp_path).train(script, quiet=True) == []
    assert script.asked == [[0, 1, 2, 3, 4], [5, 6], [0]]
    alone = Script()
    many(configs, tmp_path / "alone", together=False).train(alone, quiet=True)
    assert alone.asked == [[seed] for seed in (0, 1, 2, 3, 4, 5, 6, 0)]


def test_runs_whose_worker_died_are_trained_again_one_by_one_and_blamed_alone(
    tmp_path: Path,
) -> None:
    death = WorkerDied(["killed"])
    script = Script(death, Outcome(), death, Outcome())
    configs = [tiny_job(seed) for seed in range(3)]
    (failed,) = many(configs, tmp_path).train(script, quiet=True)
    assert script.asked == [[0, 1, 2], [0], [1], [2]]
    assert (failed.config, failed.lines) == (configs[1], ["killed"])
    assert read_failure(job_folder(tmp_path, configs[1])) == ["killed"]


def test_a_worker_with_an_unforeseen_error_is_replaced(tmp_path: Path) -> None:
    script = Script(Outcome({0: ["CUDA error"]}, sound=False))
    many([tiny_job(seed) for seed in (0, 1)], tmp_path, together=False).train(script, quiet=True)
    assert script.renewed == [0]
    assert script.asked == [[0], [1]]


# Runs whose files travel


def test_files_of_a_run_made_elsewhere_are_those_of_a_run_made_here(tmp_path: Path) -> None:
    configs = [tiny_job(seed) for seed in (0, 1)]
    told = train_elsewhere(configs, "cpu", None)
    run_here(configs, tmp_path / "here")
    for config in configs:
        place = job_folder(tmp_path / "there", config)
        write_files(place, told.files[config.seed])
        assert place.finished
        assert outcome(place) == outcome(job_folder(tmp_path / "here", config))
        names = {path.name for path in place.path.iterdir()} - {LOCK}
        assert names == {CONFIG, METRICS, RESULT, WEIGHTS, MARKER}


def test_the_marker_of_a_travelled_run_is_written_last(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(self: Path, content: bytes) -> int:
        raise OSError("no space left")

    monkeypatch.setattr(Path, "write_bytes", full)
    with pytest.raises(OSError, match="no space"):
        write_files(RunFolder(tmp_path), {MARKER: b"", WEIGHTS: b"weights"})
    assert list(tmp_path.iterdir()) == []


# One command at a time in a folder


def test_a_second_command_waits_for_the_first(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code = (
        "import sys, time; from pathlib import Path; from canet.util.locks import exclusive_lock\n"
        "with exclusive_lock(Path(sys.argv[1])): print('in', flush=True); time.sleep(600)"
    )
    env = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    command = [sys.executable, "-c", code, str(tmp_path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=env) as first:
        assert first.stdout is not None
        assert first.stdout.readline() == "in\n"

        def end_the_first(*_: object) -> None:
            first.kill()

        signal.signal(signal.SIGALRM, end_the_first)
        signal.setitimer(signal.ITIMER_REAL, 0.5)
        with exclusive_lock(tmp_path):
            assert first.poll() is not None or first.wait() is not None
    assert "waiting for it" in capsys.readouterr().err
    assert (tmp_path / LOCK).exists()


# Real processes


@pytest.mark.slow
def test_runs_in_workers_are_those_made_here_and_a_broken_one_fails_alone(tmp_path: Path) -> None:
    configs = [tiny_job(seed) for seed in range(3)]
    broken = tiny_job(**STEEP)
    options: dict[str, Any] = {"jobs": 2, "device": "cpu", "quiet": True}
    (failed,) = run_jobs([configs[0], broken, *configs[1:]], tmp_path / "workers", **options)
    assert failed.config == broken
    assert "lower learning_rate" in failed.lines[0]
    run_here(configs, tmp_path / "here")
    for config in configs:
        done = job_folder(tmp_path / "workers", config)
        assert outcome(done) == outcome(job_folder(tmp_path / "here", config))
    assert multiprocessing.active_children() == []


CALLER = """
import sys
from pathlib import Path
from canet.runs import run_jobs
from tests.runs.test_run import log_runs_of_caller, two_methods

if __name__ == "__main__":
    log_runs_of_caller(Path(sys.argv[2]))
    run_jobs(two_methods(), Path(sys.argv[1]), jobs=int(sys.argv[3]), device="cpu", quiet=True)
"""


def two_methods() -> list[RunConfig]:
    return [tiny_job(seed, 8, method=name) for name in ("erm", "canet") for seed in range(3)]


def log_runs_of_caller(log: Path) -> None:
    log_runs(pytest.MonkeyPatch(), log)


def call(root: Path, jobs: int) -> subprocess.Popen[bytes]:
    """The runs of `two_methods` in a process of their own."""
    script = root.parent / "caller.py"
    script.write_text(CALLER)
    command = [sys.executable, str(script), str(root), str(root.parent / "log"), str(jobs)]
    env = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    return subprocess.Popen(command, env=env)


@pytest.mark.slow
@pytest.mark.parametrize("jobs", [1, 2])
def test_callers_killed_at_random_times_lose_and_repeat_nothing(tmp_path: Path, jobs: int) -> None:
    configs, root = two_methods(), tmp_path / "killed"
    places = [job_folder(root, config) for config in configs]
    run_here(configs, tmp_path / "whole")
    chance, kills = random.Random(5), 0
    finished: dict[Path, tuple[int, int]] = {}
    while len(finished) < len(places):
        with call(root, jobs) as caller:
            before = len(list(root.rglob(MARKER)))
            deadline = time.monotonic() + 60
            while caller.poll() is None and time.monotonic() < deadline:
                if len(list(root.rglob(MARKER))) > before + kills:
                    time.sleep(chance.uniform(0.0, 0.3))
                    break
                time.sleep(0.01)
            kills += caller.poll() is None
            caller.kill()
        for place in places:
            if place.path in finished:
                assert marker(place) == finished[place.path]
            elif place.finished:
                finished[place.path] = marker(place)
    assert kills >= 1
    for config, place in zip(configs, places, strict=True):
        assert outcome(place) == outcome(job_folder(tmp_path / "whole", config))


@pytest.mark.slow
def test_hundreds_of_tasks_with_four_workers_leave_nothing_behind() -> None:
    before = len(os.listdir("/proc/self/fd"))
    with Processes(4) as engine:
        pids = [future.result() for future in [engine.submit(i, os.getpid) for i in range(4)]]
        for number in range(100):
            futures = [engine.submit(slot, double, number) for slot in range(4)]
            assert [future.result() for future in futures] == [2 * number] * 4
    assert len(set(pids)) == 4
    wait_until(lambda: not any(map(alive, pids)))
    assert multiprocessing.active_children() == []
    wait_until(lambda: len(os.listdir("/proc/self/fd")) <= before + 2)
