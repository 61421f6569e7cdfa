"""Jobs in this process, and in several that share a folder and die."""

from __future__ import annotations

import json
import os
import random
import signal
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable
from contextlib import ExitStack
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from canet.data.task import ShiftTask
from canet.errors import CanetError
from canet.runs import claims, evaluate, job_folder, run, run_jobs, worker
from canet.runs.claims import CLAIMS, RELEASED, is_claimed, take_claim
from canet.runs.worker import FAILURE, JobRunner
from canet.training import Run, RunConfig, RunFolder, Trainer
from canet.training.checkpoint import CONFIG, MARKER, METRICS, RESULT, WEIGHTS
from tests.finished import make_config
from tests.runs.processes import ended, exit_code, forked, wait_until
from tests.runs.test_claims import write_claim


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
        "scores": place.read_result()["scores"],
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
def short_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run, "POLL_SECONDS", 0.02)


def test_each_job_ends_in_the_folder_of_its_content(tmp_path: Path) -> None:
    configs = [tiny_job(seed) for seed in (0, 1)] + [tiny_job(method="canet")]
    assert run_here(configs, tmp_path) == []
    for config in configs:
        place = job_folder(tmp_path, config)
        assert place.path == tmp_path / config.name / f"seed-{config.seed}"
        assert place.read_config() == config
        names = {path.name for path in place.path.iterdir()}
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
    assert not is_claimed(place.path)
    assert job_folder(tmp_path, tiny_job(1)).finished


def test_failed_job_is_run_again_only_when_asked(
    tmp_path: Path, begun: Callable[[], list[str]]
) -> None:
    config = tiny_job(learning_rate=1e30)
    first = run_here([config], tmp_path)
    assert first == run_here([config], tmp_path)
    assert len(begun()) == 1
    assert run_here([config], tmp_path, retry=True) == first
    assert len(begun()) == 2


def test_retried_job_that_succeeds_has_failed_no_more(tmp_path: Path) -> None:
    place = job_folder(tmp_path, tiny_job())
    worker.write_failure(place, ["no space left"])
    assert run_here([tiny_job()], tmp_path) == [["no space left"]]
    assert run_here([tiny_job()], tmp_path, retry=True) == []
    assert place.finished
    assert worker.read_failure(place) is None


def test_error_with_a_mend_fails_in_its_one_line(tmp_path: Path) -> None:
    (lines,) = run_here([tiny_job(learning_rate=1e30)], tmp_path)
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


def test_job_finished_by_another_before_the_claim_is_not_run(
    tmp_path: Path, begun: Callable[[], list[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    def finish_and_take(job: Path) -> Any:
        job.mkdir(parents=True)
        (job / MARKER).touch()
        return take_claim(job)

    monkeypatch.setattr(worker, "take_claim", finish_and_take)
    assert run_here([tiny_job()], tmp_path) == []
    assert begun() == []
    assert not (job_folder(tmp_path, tiny_job()).path / CLAIMS).exists()


def test_files_that_a_killed_process_left_half_written_go(tmp_path: Path) -> None:
    place = job_folder(tmp_path, tiny_job())
    place.path.mkdir(parents=True)
    (place.path / ".weights.safetensors.1.tmp").touch()
    run_here([tiny_job()], tmp_path)
    assert list(place.path.glob(".*")) == []


def test_job_of_another_machine_is_waited_for(
    tmp_path: Path, begun: Callable[[], list[str]]
) -> None:
    place = job_folder(tmp_path, tiny_job(0))
    write_claim(place.path)
    other = job_folder(tmp_path, tiny_job(1))

    def finish() -> None:
        wait_until(lambda: other.finished)
        (place.path / MARKER).touch()

    thread = threading.Thread(target=finish)
    thread.start()
    run_here([tiny_job(0), tiny_job(1)], tmp_path)
    thread.join()
    assert begun() == [str(other.path)]


def test_job_of_a_process_that_dies_is_taken_over(tmp_path: Path) -> None:
    place = job_folder(tmp_path, tiny_job(0))
    other = job_folder(tmp_path, tiny_job(1))

    def hold() -> None:
        take_claim(place.path)
        time.sleep(60)

    with forked(hold) as pid:
        wait_until(lambda: is_claimed(place.path))

        def kill() -> None:
            wait_until(lambda: other.finished)
            os.kill(pid, signal.SIGKILL)

        thread = threading.Thread(target=kill)
        thread.start()
        run_here([tiny_job(0), tiny_job(1)], tmp_path)
        thread.join()
    assert place.finished


def test_process_taken_for_dead_leaves_its_job_to_the_new_owner(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(claims, "HEARTBEAT_SECONDS", 0.01)
    config = tiny_job(epochs=100_000)
    place = job_folder(tmp_path, config)

    def take_over(done: int, total: int, score: float) -> None:
        if done == 2:
            write_claim(place.path, number=2)

    JobRunner(tmp_path, "cpu", None).run([config], take_over)
    assert not place.finished
    assert worker.read_failure(place) is None
    assert is_claimed(place.path)


def test_runner_trains_seeds_side_by_side_save_those_that_others_have(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[list[int]] = []
    train = Trainer.run_together

    def noted(self: Trainer, folders: dict[int, Path], *rest: Any) -> list[Run]:
        asked.append(list(folders))
        return train(self, folders, *rest)

    monkeypatch.setattr(Trainer, "run_together", noted)
    configs = [tiny_job(seed) for seed in range(4)]
    places = [job_folder(tmp_path, config) for config in configs]
    write_claim(places[0].path)
    worker.write_failure(places[2], ["failed before"])
    JobRunner(tmp_path, "cpu", None).run(configs, lambda *_: None)
    assert asked == [[1, 3]]
    assert [place.finished for place in places] == [False, True, False, True]
    assert [is_claimed(place.path) for place in places] == [True, False, False, False]


def test_of_seeds_side_by_side_only_the_broken_one_fails(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fail_with_seed_0(monkeypatch)
    configs = [tiny_job(seed) for seed in range(3)]
    runner = JobRunner(tmp_path, "cpu", None)
    runner.run(configs, lambda *_: None)
    places = [job_folder(tmp_path, config) for config in configs]
    assert [place.finished for place in places] == [False, True, True]
    assert worker.read_failure(places[0])
    assert not runner.sound


def test_interrupted_job_is_free_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(*_: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(Trainer, "run_together", interrupt)
    with pytest.raises(KeyboardInterrupt):
        run_here([tiny_job()], tmp_path)
    place = job_folder(tmp_path, tiny_job())
    assert (place.path / CLAIMS / "1").stat().st_mtime == RELEASED
    assert worker.read_failure(place) is None


def test_two_processes_do_each_job_once(tmp_path: Path, begun: Callable[[], list[str]]) -> None:
    configs = [tiny_job(seed, epochs=5) for seed in range(8)]
    with ExitStack() as children:
        work = [
            children.enter_context(forked(lambda: run_here(configs, tmp_path))) for _ in range(2)
        ]
        assert [exit_code(pid) for pid in work] == [0, 0]
    assert Counter(begun()) == {str(job_folder(tmp_path, config).path): 1 for config in configs}


def test_jobs_killed_at_random_times_end_as_if_undisturbed(
    tmp_path: Path, begun: Callable[[], list[str]]
) -> None:
    configs = [tiny_job(seed, 3, method=name) for name in ("erm", "canet") for seed in range(3)]
    places = [job_folder(tmp_path / "killed", config) for config in configs]
    run_here(configs, tmp_path / "whole")  # loads the task, for the copies too
    start = time.monotonic()
    with forked(lambda: run_here(configs, tmp_path / "timed")) as pid:
        assert exit_code(pid) == 0
    whole = time.monotonic() - start
    chance = random.Random(5)
    finished: dict[Path, tuple[int, int]] = {}
    kills = 0
    while len(finished) < len(places):
        before = len(begun())
        with forked(lambda: run_here(configs, tmp_path / "killed")) as pid:
            deadline = time.monotonic() + whole * chance.uniform(0.05, 0.3) * 1.2**kills
            wait_until(lambda pid=pid, end=deadline: ended(pid) or time.monotonic() > end)
            kills += not ended(pid)
            os.killpg(pid, signal.SIGKILL)
            exit_code(pid)
        again = set(begun()[before:])
        for place in places:
            if place.path in finished:
                assert str(place.path) not in again
                assert marker(place) == finished[place.path]
            elif place.finished:
                finished[place.path] = marker(place)
    assert kills >= 2
    for config, place in zip(configs, places, strict=True):
        assert outcome(place) == outcome(job_folder(tmp_path / "whole", config))


def test_process_killed_at_any_file_operation_loses_no_job(tmp_path: Path) -> None:
    runner = JobRunner(tmp_path, "cpu", None)
    runner.run([tiny_job(seed=0, epochs=1)], lambda *_: None)  # loads the task, for the copies too

    def die_at(number: int, config: RunConfig) -> None:
        operations = count(1)
        folder = str(job_folder(tmp_path, config).path)

        def hook(event: str, arguments: tuple[Any, ...]) -> None:
            here = event.startswith(("os.", "open")) and folder in str(arguments[:2])
            if here and next(operations) == number:
                os.kill(os.getpid(), signal.SIGKILL)

        sys.addaudithook(hook)
        runner.run([config], lambda *_: None)

    for number in count(1):
        config = tiny_job(seed=number, epochs=1)
        place = job_folder(tmp_path, config)
        with forked(lambda number=number, config=config: die_at(number, config)) as pid:
            killed = exit_code(pid) == -signal.SIGKILL
        finished = marker(place) if place.finished else None
        runner.run([config], lambda *_: None)
        assert place.finished
        assert finished in (None, marker(place))
        assert not (place.path / CLAIMS).exists()
        if not killed:
            break
    assert number > 20
