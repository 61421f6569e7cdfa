"""Many runs: each is trained once, even if workers or the command are killed."""

import json
import multiprocessing
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

from canet.data.task import ShiftTask
from canet.errors import CanetError
from canet.models import Fitted, Network
from canet.runs import evaluate, job_folder, run, run_jobs
from canet.runs.run import make_batches, read_failure
from canet.runs.worker import FAILURE, Worker
from canet.store import RunConfig, RunFolder
from canet.store.run_folder import CONFIG, MARKER, METRICS, RESULT, WEIGHTS
from canet.util.locks import LOCK, exclusive_lock
from tests.support.jobs import outcome, tiny_job, two_methods
from tests.support.pool import LocalPool

STEEP = {"learning_rate": 1e6, "num_layers": 8}
"""Settings with which training fails, because the loss becomes infinite."""


TRAIN = Worker.train


def run_here(configs: Iterable[RunConfig], root: Path, **options: Any) -> list[list[str]]:
    """Run jobs in this process; return the last lines of the failed ones."""
    failed = run_jobs(list(configs), root, device="cpu", quiet=True, **options)
    return [job.lines for job in failed]


def marker(folder: RunFolder) -> tuple[int, int]:
    status = (folder.path / MARKER).stat()
    return status.st_ino, status.st_mtime_ns


@pytest.fixture
def begun(monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    """The folders of all trainings that have begun, in order."""
    folders_begun: list[Path] = []
    train = Network.run

    def logged(self: Network, task: ShiftTask, folders: Any, **rest: Any) -> list[Fitted]:
        folders_begun.extend(folders.values())
        return train(self, task, folders, **rest)

    monkeypatch.setattr(Network, "run", logged)
    return folders_begun


def test_each_run_is_in_the_folder_of_its_configuration(tmp_path: Path) -> None:
    configs = [tiny_job(seed) for seed in (0, 1)] + [tiny_job(method="canet")]
    assert run_here(configs, tmp_path) == []
    for config in configs:
        folder = job_folder(tmp_path, config)
        assert folder.path == tmp_path / config.name / f"seed-{config.seed}"
        assert folder.read_config() == config
        names = {path.name for path in folder.path.iterdir()} - {LOCK}
        assert names == {CONFIG, METRICS, RESULT, WEIGHTS, MARKER}


def test_finished_runs_are_not_trained_again(tmp_path: Path, begun: list[Path]) -> None:
    run_here([tiny_job(0)], tmp_path)
    first = marker(job_folder(tmp_path, tiny_job(0)))
    run_here([tiny_job(0), tiny_job(1), tiny_job(1)], tmp_path)
    assert len(begun) == 2
    assert marker(job_folder(tmp_path, tiny_job(0))) == first


def test_a_task_is_loaded_once_for_all_runs_that_share_it(
    tmp_path: Path, begun: list[Path], monkeypatch: pytest.MonkeyPatch
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
    assert begun == [job_folder(tmp_path, job).path for job in expected]
    assert loaded == [0, 1]


def fail_with_seed_0(monkeypatch: pytest.MonkeyPatch) -> None:
    train = Network.run

    def fail(self: Network, task: ShiftTask, folders: Any, **rest: Any) -> list[Fitted]:
        if 0 in folders:
            raise ZeroDivisionError("as the test wants")
        return train(self, task, folders, **rest)

    monkeypatch.setattr(Network, "run", fail)


def test_a_failed_run_is_recorded_and_the_others_are_trained(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fail_with_seed_0(monkeypatch)
    (lines,) = run_here([tiny_job(0), tiny_job(1)], tmp_path)
    assert lines[-1] == "ZeroDivisionError: as the test wants"
    folder = job_folder(tmp_path, tiny_job(0))
    assert json.loads((folder.path / FAILURE).read_text()) == {"lines": lines}
    assert not folder.finished
    assert job_folder(tmp_path, tiny_job(1)).finished


def test_a_failed_run_is_trained_again_only_with_retry(tmp_path: Path, begun: list[Path]) -> None:
    config = tiny_job(**STEEP)
    first = run_here([config], tmp_path)
    assert first == run_here([config], tmp_path)
    assert len(begun) == 1
    assert run_here([config], tmp_path, retry=True) == first
    assert len(begun) == 2


def test_a_retried_run_that_succeeds_is_not_a_failure_any_more(tmp_path: Path) -> None:
    folder = job_folder(tmp_path, tiny_job())
    folder.path.mkdir(parents=True)
    (folder.path / FAILURE).write_text('{"lines": ["no space left"]}')
    assert run_here([tiny_job()], tmp_path) == [["no space left"]]
    assert run_here([tiny_job()], tmp_path, retry=True) == []
    assert folder.finished
    assert read_failure(folder) is None


def test_a_configuration_without_all_settings_is_rejected(tmp_path: Path) -> None:
    config = tiny_job()
    del config.settings["dropout"]
    ((line,),) = run_here([config], tmp_path)
    assert "'erm'" in line


def test_zero_jobs_are_rejected_before_any_run(tmp_path: Path) -> None:
    with pytest.raises(CanetError, match="jobs"):
        run_here([tiny_job()], tmp_path, jobs=0)
    assert list(tmp_path.iterdir()) == []


# Several seeds at once


def test_of_seeds_trained_together_only_the_invalid_one_fails(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fail_with_seed_0(monkeypatch)
    configs = [tiny_job(seed) for seed in range(3)]
    ended = Worker("cpu", None, None).train(configs, tmp_path)
    folders = [job_folder(tmp_path, config) for config in configs]
    assert [folder.finished for folder in folders] == [False, True, True]
    assert list(ended.failures) == [0]


def test_seeds_of_a_method_that_can_share_a_gpu_are_in_one_batch() -> None:
    configs = [tiny_job(seed) for seed in range(7)] + [tiny_job(method="mixup")]

    def seeds(batch_seeds: bool) -> list[list[int]]:
        return [[config.seed for config in batch] for batch in make_batches(configs, batch_seeds)]

    assert seeds(batch_seeds=True) == [[0, 1, 2, 3, 4], [5, 6], [0]]
    assert seeds(batch_seeds=False) == [[seed] for seed in (0, 1, 2, 3, 4, 5, 6, 0)]


def test_runs_of_a_batch_whose_worker_dies_are_trained_one_at_a_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    configs = [tiny_job(seed) for seed in range(4)]
    pool = LocalPool(2, dies=lambda batch, _: configs[0] in batch)
    monkeypatch.setattr(run, "open_pool", lambda *_: pool)
    monkeypatch.setattr(run, "make_batches", lambda *_: iter([configs[:2], configs[2:]]))
    (lines,) = run_here(configs, tmp_path)
    assert [configs[1]] in pool.jobs
    assert lines == read_failure(job_folder(tmp_path, configs[0]))
    assert "SIGKILL" in lines[-1]
    assert all(job_folder(tmp_path, config).finished for config in configs[1:])


def test_remote_runs_and_local_runs_have_the_same_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    configs = [tiny_job(seed) for seed in (0, 1)]
    run_here(configs, tmp_path / "here")
    monkeypatch.setattr(run, "open_pool", lambda *_: LocalPool(remote=True))
    run_here(configs, tmp_path / "there")
    for config in configs:
        folder = job_folder(tmp_path / "there", config)
        assert outcome(folder) == outcome(job_folder(tmp_path / "here", config))
        names = {path.name for path in folder.path.iterdir()} - {LOCK}
        assert names == {CONFIG, METRICS, RESULT, WEIGHTS, MARKER}


# One command at a time in a folder


def test_a_second_command_waits_for_the_first(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
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
    assert str(tmp_path) in caplog.text
    assert (tmp_path / LOCK).exists()


# Real processes


def die_with_seed_0(worker: Worker, configs: list[RunConfig], root: Path) -> Any:
    if configs[0].seed == 0:
        os.kill(os.getpid(), signal.SIGKILL)
    return TRAIN(worker, configs, root)


@pytest.mark.slow
def test_runs_in_workers_equal_local_runs_and_only_invalid_ones_fail(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Worker, "train", die_with_seed_0)
    configs = [tiny_job(seed) for seed in range(4)]
    broken = tiny_job(1, **STEEP)
    failed = run_jobs([*configs, broken], tmp_path / "workers", jobs=2, device="cpu", quiet=True)
    lines = {job.config.seed: job.lines for job in failed}
    assert "SIGKILL" in lines[0][-1]
    assert "learning_rate" in lines[1][0]
    assert len(lines) == 2
    monkeypatch.undo()
    run_here(configs[1:], tmp_path / "here")
    for config in configs[1:]:
        done = job_folder(tmp_path / "workers", config)
        assert outcome(done) == outcome(job_folder(tmp_path / "here", config))
    assert multiprocessing.active_children() == []


CALLER = """
import sys
from pathlib import Path
from canet.runs import run_jobs
from tests.support.pool import LocalPool
from tests.support.jobs import two_methods

if __name__ == "__main__":
    run_jobs(two_methods(), Path(sys.argv[1]), jobs=int(sys.argv[2]), device="cpu", quiet=True)
"""


def call(root: Path, jobs: int) -> subprocess.Popen[bytes]:
    """Start a process that trains the runs of `two_methods`."""
    script = root.parent / "caller.py"
    script.write_text(CALLER)
    command = [sys.executable, str(script), str(root), str(jobs)]
    env = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    return subprocess.Popen(command, env=env, stderr=subprocess.DEVNULL)


@pytest.mark.slow
@pytest.mark.parametrize(("jobs", "number"), [(1, signal.SIGKILL), (2, signal.SIGINT)])
def test_commands_stopped_at_random_times_lose_and_repeat_no_run(
    tmp_path: Path, jobs: int, number: int
) -> None:
    configs, root = two_methods(), tmp_path / "stopped"
    folders = [job_folder(root, config) for config in configs]
    run_here(configs, tmp_path / "whole")
    chance, stops = random.Random(5), 0
    finished: dict[Path, tuple[int, int]] = {}
    while len(finished) < len(folders):
        with call(root, jobs) as caller:
            before = len(list(root.rglob(MARKER)))
            deadline = time.monotonic() + 60
            while caller.poll() is None and time.monotonic() < deadline:
                if len(list(root.rglob(MARKER))) > before + stops:
                    time.sleep(chance.uniform(0.0, 0.3))
                    break
                time.sleep(0.01)
            stops += caller.poll() is None
            caller.send_signal(number)
        for folder in folders:
            if folder.path in finished:
                assert marker(folder) == finished[folder.path]
            elif folder.finished:
                finished[folder.path] = marker(folder)
    assert stops >= 1
    for config, folder in zip(configs, folders, strict=True):
        assert outcome(folder) == outcome(job_folder(tmp_path / "whole", config))
