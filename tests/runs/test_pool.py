"""Worker processes: killed, interrupted, orphaned, replaced."""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
from contextlib import ExitStack
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest

from canet.errors import CanetError
from canet.runs import job_folder, pool, run_jobs, worker
from canet.runs.claims import CLAIMS, RELEASED, _started
from canet.runs.schedule import Job, Schedule
from canet.training import RunConfig, RunFolder, Trainer
from canet.training.loop import Progress
from tests.runs.processes import exit_code, forked, wait_until
from tests.runs.test_run import outcome, run_here, tiny_job

ENDLESS = 1_000_000


def owner_of(place: RunFolder, number: int = 1) -> int:
    """Wait for a claim of this job; the number of the process that holds it."""
    path = place.path / CLAIMS / str(number)
    wait_until(path.exists)
    pid: int = json.loads(path.read_text())["pid"]
    return pid


def wait_for_training(place: RunFolder) -> None:
    wait_until((place.path / "config.json").exists)


def test_job_that_kills_its_workers_has_failed_and_the_others_are_finished(tmp_path: Path) -> None:
    killer = tiny_job(epochs=ENDLESS)
    broken = tiny_job(learning_rate=1e30)
    others = [tiny_job(seed) for seed in range(4)]
    place = job_folder(tmp_path / "workers", killer)

    def kill_twice() -> None:
        for number in (1, 2):
            os.kill(owner_of(place, number), signal.SIGKILL)

    thread = threading.Thread(target=kill_twice)
    thread.start()
    configs = [others[0], killer, broken, *others[1:]]
    failed = run_jobs(configs, tmp_path / "workers", jobs=2, device="cpu", quiet=True)
    thread.join()
    assert [job.config for job in failed] == [killer, broken]
    assert failed[0].lines == ["worker process ended with SIGKILL"]
    assert "lower learning_rate" in failed[1].lines[0]
    run_here(others, tmp_path / "here")
    for config in others:
        done = job_folder(tmp_path / "workers", config)
        assert outcome(done) == outcome(job_folder(tmp_path / "here", config))
        assert done.read_result()["device"].endswith(" 1 threads")


def run_in_workers(configs: list[RunConfig], root: Path) -> None:
    run_jobs(configs, root, jobs=2, device="cpu", quiet=True)


def test_workers_do_not_outlive_a_killed_parent_and_their_jobs_go_on(tmp_path: Path) -> None:
    config = tiny_job(epochs=60)
    place = job_folder(tmp_path / "killed", config)
    with forked(lambda: run_in_workers([config], tmp_path / "killed")) as parent:
        owner = owner_of(place)
        os.kill(parent, signal.SIGKILL)
        exit_code(parent)
    assert owner != parent
    wait_until(lambda: _started(owner) is None)
    assert not place.finished
    for folder in ("killed", "whole"):
        run_here([config], tmp_path / folder)
    assert outcome(place) == outcome(job_folder(tmp_path / "whole", config))


def test_interrupt_stops_workers_and_gives_their_jobs_back(tmp_path: Path) -> None:
    config = tiny_job(epochs=ENDLESS)
    place = job_folder(tmp_path, config)
    with forked(lambda: run_in_workers([config], tmp_path)) as parent:
        owner = owner_of(place)
        wait_for_training(place)
        os.kill(parent, signal.SIGINT)
        assert exit_code(parent) == 130
    assert _started(owner) is None
    assert (place.path / CLAIMS / "1").stat().st_mtime == RELEASED
    assert not (place.path / "failed.json").exists()


def test_workers_that_cannot_start_are_told_with_their_last_words(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pool, "WORK", "raise ImportError('no torch here')")
    with pytest.raises(CanetError, match="cannot start: ImportError: no torch here"):
        run_in_workers([tiny_job()], tmp_path)
    assert not job_folder(tmp_path, tiny_job()).path.exists()


FAIL_FIRST = """
import json, pathlib, sys
place = json.loads(input())
first = not list(pathlib.Path(place["root"]).rglob("failed.json"))
print(json.dumps({"ready": True}), flush=True)
for line in sys.stdin:
    (folder,) = [path for path in map(pathlib.Path, FOLDERS) if not any(path.iterdir())][:1]
    (folder / ("failed.json" if first else "done")).write_text('{"lines": ["CUDA error"]}')
    print(json.dumps({"sound": not first}), flush=True)
"""


def test_worker_with_an_unforeseen_error_is_replaced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    configs = [tiny_job(seed) for seed in range(3)]
    places = [job_folder(tmp_path, config) for config in configs]
    for place in places:
        place.path.mkdir(parents=True)
    folders = [str(place.path) for place in places]
    monkeypatch.setattr(pool, "WORK", f"FOLDERS = {folders}\n{FAIL_FIRST}")
    started: list[pool.Worker] = []
    give = pool.Worker.give

    def noted(self: pool.Worker, jobs: list[Job]) -> None:
        started.append(self)
        give(self, jobs)

    monkeypatch.setattr(pool.Worker, "give", noted)
    schedule = Schedule([Job(c, c.name, job_folder(tmp_path, c), 1) for c in configs], quiet=True)
    order = {"root": str(tmp_path), "device": "cpu", "data_root": None}
    pool.Pool(schedule, 1, order).run()
    assert [job.config for job, _ in schedule.failures()] == configs[:1]
    assert [worker is started[0] for worker in started] == [True, False, False]
    assert started[1] is started[2]


def test_worker_answers_in_lines_of_json_and_ends_after_an_unforeseen_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(self: Trainer, folders: dict[int, Path], curves: bool, report: Progress) -> None:
        os.write(1, b"noise of a library\n")
        report(1, 4, 50.0)
        raise CanetError("with a mend") if 0 in folders else RuntimeError("unforeseen")

    def work() -> None:
        for number, file in enumerate((orders, answers, noise)):
            os.dup2(file.fileno(), number)
        sys.stdin, sys.stdout, sys.stderr = (os.fdopen(i, "rw"[i > 0]) for i in range(3))
        worker.main()

    monkeypatch.setattr(Trainer, "run_together", fail)
    lines: list[Any] = [{"root": str(tmp_path), "device": "cpu", "data_root": None}]
    lines += [[asdict(tiny_job(seed))] for seed in (0, 1)]
    names = [tmp_path / name for name in ("orders", "answers", "noise")]
    os.mkfifo(names[0])
    with ExitStack() as files:
        orders = files.enter_context(os.fdopen(os.open(names[0], os.O_RDWR), "r+b", buffering=0))
        answers, noise = (files.enter_context(name.open("w")) for name in names[1:])
        orders.write("".join(f"{json.dumps(line)}\n" for line in lines).encode())
        with forked(work) as pid:
            assert exit_code(pid) == 0
    told = [json.loads(line) for line in names[1].read_text().splitlines()]
    assert told == [
        {"ready": True},
        {"fraction": 0.25, "score": 50.0},
        {"sound": True},
        {"sound": False},
    ]
    assert names[2].read_text().count("noise") == 2
