"""The job runner: order, workers that die, the shared value and files of other machines."""

import os
from pathlib import Path
from typing import Any

import pytest

from canet.errors import CanetError
from canet.util.jobs import WorkerDied, open_pool, run_all
from canet.util.locks import LOCK
from canet.util.processes import Processes
from tests.support.pool import LocalPool


def times(factor: int, number: int, root: Path) -> int:
    return factor * number


def run(pool: Any, jobs: Any, root: Path, function: Any = times, **options: Any) -> list[Any]:
    return list(run_all(pool, function, jobs, shared=2, root=root, **options))


def test_without_a_pool_jobs_run_in_this_process(tmp_path: Path) -> None:
    assert run(None, [3, 1], tmp_path) == [(3, 6), (1, 2)]


def test_a_job_whose_worker_died_is_repeated_after_the_others(tmp_path: Path) -> None:
    pool = LocalPool(2, dies=lambda job, number: number < 2)
    assert sorted(run(pool, range(5), tmp_path)) == [(n, 2 * n) for n in range(5)]
    assert sorted(pool.jobs[:5]) == [*range(5)]
    assert sorted(pool.jobs[5:]) == [0, 1]


def test_a_job_whose_worker_dies_twice_has_no_result(tmp_path: Path) -> None:
    found = dict(run(LocalPool(2, dies=lambda job, number: job == 1), range(4), tmp_path))
    error = found.pop(1)
    assert isinstance(error, WorkerDied)
    assert "SIGKILL" in str(error)
    assert found == {0: 0, 2: 4, 3: 6}


def test_a_pool_starts_before_the_first_result_is_asked_for(tmp_path: Path) -> None:
    pool = LocalPool(2)
    run_all(pool, lambda shared, job, root: job, range(5), shared=None, root=tmp_path)
    assert len(pool.jobs) == 2


def write(content: int, name: str, root: Path) -> Path:
    folder = root / name
    folder.mkdir(exist_ok=True)
    (folder / LOCK).touch()
    for file in ("done", "a", "z"):
        (folder / file).write_text(str(content))
    return root


@pytest.mark.parametrize("remote", [False, True])
def test_files_of_jobs_are_below_the_folder(remote: bool, tmp_path: Path) -> None:
    for _, root in run(LocalPool(remote=remote), ["one", "two"], tmp_path, write):
        assert (root == tmp_path) is not remote
    for name in ("one", "two"):
        found = {path.name for path in (tmp_path / name).iterdir()}
        assert found - {LOCK} == {"a", "done", "z"}


def test_the_marker_of_remote_files_is_written_last_and_a_complete_folder_is_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(self: Path, content: bytes) -> int:
        raise OSError("no space left")

    with monkeypatch.context() as patch:
        patch.setattr(Path, "write_bytes", full)
        with pytest.raises(OSError, match="no space"):
            run(LocalPool(remote=True), ["one"], tmp_path, write)
    assert not (tmp_path / "one" / "done").exists()
    (tmp_path / "one" / "done").write_text("earlier")
    run(LocalPool(remote=True), ["one"], tmp_path, write)
    assert (tmp_path / "one" / "done").read_text() == "earlier"
    assert not (tmp_path / "one" / "a").exists()


def test_zero_jobs_are_rejected() -> None:
    with pytest.raises(CanetError, match="jobs is 0"):
        open_pool(0)


class Counted:
    """Counts in a file how often it is unpickled."""

    def __init__(self, log: Path) -> None:
        self.log = log
        self.calls = 0

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__ = state
        with self.log.open("a") as file:
            file.write(f"{os.getpid()}\n")


def count(shared: Counted, number: int, root: Path) -> tuple[int, int]:
    shared.calls += 1
    return os.getpid(), shared.calls


@pytest.mark.slow
def test_a_worker_process_reads_the_shared_value_once_and_keeps_it(tmp_path: Path) -> None:
    log = tmp_path / "log"
    with Processes(2) as pool:
        found = [r for _, r in run_all(pool, count, range(8), shared=Counted(log), root=tmp_path)]
    readers = log.read_text().split()
    assert len(readers) == len(set(readers)) <= 2
    assert sorted(found) == sorted(
        (int(pid), n + 1) for pid in readers for n in range(sum(p == int(pid) for p, _ in found))
    )


@pytest.mark.slow
def test_jobs_are_taken_only_when_the_pool_can_start_them(tmp_path: Path) -> None:
    with Processes(2) as pool:
        taken: list[int] = []
        jobs = (taken.append(number) or number for number in range(10))  # type: ignore[func-returns-value]
        ended = []
        for number, result in run_all(pool, times, jobs, shared=2, root=tmp_path):
            assert result == 2 * number
            ended.append(number)
            assert len(taken) <= len(ended) + 1
    assert sorted(ended) == [*range(10)]


@pytest.mark.parametrize("address", ["local", "local://", "", "cluster"])
def test_a_word_that_is_not_an_address_starts_no_cluster(
    address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    ray = pytest.importorskip("ray", reason="Ray is not installed")
    started = list[object]()
    monkeypatch.setattr(ray, "init", lambda *_, **options: started.append(options))
    with pytest.raises(CanetError, match=f"'{address}'"):
        open_pool(1, ray=address)
    monkeypatch.setenv("RAY_ADDRESS", address or "local")
    with pytest.raises(CanetError, match="Ray"):
        open_pool(1, ray="auto")
    assert started == []


def test_minus_one_is_a_process_for_each_core(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("canet.util.jobs.effective_n_jobs", lambda jobs: 3)
    with open_pool(-1) as pool:  # type: ignore[union-attr]
        assert pool.size == 3
