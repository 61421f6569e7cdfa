"""Claims: one owner at a time, whoever dies, whenever."""

from __future__ import annotations

import errno
import json
import os
import shutil
import signal
import time
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from canet.runs import claims
from canet.runs.claims import (
    CLAIMS,
    RELEASED,
    STALE_SECONDS,
    Claim,
    clear_claims,
    is_claimed,
    release_if_dead,
    take_claim,
)
from tests.runs.processes import exit_code, forked, wait_until


def write_claim(job: Path, age: float = 0.0, number: int = 1, **owner: Any) -> Path:
    """A claim as a process elsewhere, or another one here, would have written it."""
    path = job / CLAIMS / str(number)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(claims._owner() | {"host": "elsewhere"} | owner))
    os.utime(path, (time.time() - age,) * 2)
    return path


def die_holding(jobs: Sequence[Path]) -> None:
    """Leave the claims of a process that was killed."""

    def take_and_die() -> None:
        for job in jobs:
            take_claim(job)
        os.kill(os.getpid(), signal.SIGKILL)

    with forked(take_and_die) as pid:
        assert exit_code(pid) == -signal.SIGKILL


def held(job: Path) -> Claim:
    claim = take_claim(job)
    assert claim is not None
    return claim


def test_of_many_processes_one_gets_each_claim_new_or_of_a_dead_owner(tmp_path: Path) -> None:
    jobs = [tmp_path / f"job-{i}" for i in range(60)]
    die_holding(jobs[::3])
    for job in jobs[1::3]:
        write_claim(job, age=2 * STALE_SECONDS)
    begin = tmp_path / "begin"

    def take_all(name: str) -> None:
        wait_until(begin.exists)
        taken = [job.name for job in jobs if take_claim(job)]
        (tmp_path / f"{name}.part").write_text(" ".join(taken))
        (tmp_path / f"{name}.part").rename(tmp_path / name)
        time.sleep(60)  # an owner that ended would be a dead one

    names = [f"taker-{i}" for i in range(4)]
    with ExitStack() as children:
        for name in names:
            children.enter_context(forked(lambda name=name: take_all(name)))
        begin.touch()
        wait_until(lambda: all((tmp_path / name).exists() for name in names))
        taken = [job for name in names for job in (tmp_path / name).read_text().split()]
    assert sorted(taken) == sorted(job.name for job in jobs)


def test_claim_is_kept_from_others_and_free_when_given_back(tmp_path: Path) -> None:
    with held(tmp_path):
        assert is_claimed(tmp_path)
        assert take_claim(tmp_path) is None
    assert not is_claimed(tmp_path)
    with held(tmp_path) as second:
        assert second.path.name == "2"


def test_claim_of_a_dead_process_of_this_machine_is_free_at_once(tmp_path: Path) -> None:
    die_holding([tmp_path])
    assert not is_claimed(tmp_path)
    assert held(tmp_path)


def test_process_that_ended_but_was_not_waited_for_is_dead(tmp_path: Path) -> None:
    with forked(lambda: take_claim(tmp_path)) as pid:
        os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)
        assert not is_claimed(tmp_path)


def test_later_process_with_the_same_number_is_not_the_owner(tmp_path: Path) -> None:
    write_claim(tmp_path, host=claims._host(), started="1")
    assert not is_claimed(tmp_path)
    write_claim(tmp_path, host=claims._host())
    assert is_claimed(tmp_path)


def test_fresh_claim_of_another_machine_is_respected(tmp_path: Path) -> None:
    write_claim(tmp_path, age=STALE_SECONDS - 30, pid=1)
    assert is_claimed(tmp_path)
    assert take_claim(tmp_path) is None


def test_silent_claim_of_another_machine_is_taken_over(tmp_path: Path) -> None:
    old = write_claim(tmp_path, age=STALE_SECONDS + 30)
    assert not is_claimed(tmp_path)
    assert held(tmp_path).path.name == "2"
    assert old.exists()


def test_silence_is_measured_by_the_clock_of_the_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_claim(tmp_path, age=0)
    monkeypatch.setattr(time, "time", lambda: 4e9)
    assert is_claimed(tmp_path)


def test_claim_that_a_crash_tore_counts_by_its_age(tmp_path: Path) -> None:
    path = write_claim(tmp_path)
    path.write_text("")
    assert is_claimed(tmp_path)
    os.utime(path, (time.time() - 2 * STALE_SECONDS,) * 2)
    assert not is_claimed(tmp_path)


def test_owner_keeps_its_claim_fresh(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(claims, "HEARTBEAT_SECONDS", 0.01)
    with held(tmp_path) as claim:
        os.utime(claim.path, (1e9, 1e9))
        wait_until(lambda: claim.path.stat().st_mtime > 1e9)
        assert not claim.lost


def test_owner_taken_for_dead_learns_it_and_leaves_the_new_claim_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(claims, "HEARTBEAT_SECONDS", 0.01)
    with held(tmp_path) as claim:
        new = write_claim(tmp_path, number=2)
        wait_until(lambda: claim.lost)
    assert new.stat().st_mtime != RELEASED
    assert is_claimed(tmp_path)


def test_owner_learns_that_another_process_finished_its_job(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(claims, "HEARTBEAT_SECONDS", 0.01)
    with held(tmp_path) as claim:
        clear_claims(tmp_path)
        wait_until(lambda: claim.lost)
    assert list(tmp_path.iterdir()) == []


def test_disk_that_fails_for_a_moment_costs_no_claim(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(claims, "HEARTBEAT_SECONDS", 0.01)
    failures: list[Path] = []
    touch = os.utime

    def fail_twice(path: Path, *times: Any) -> None:
        if len(failures) < 2:
            failures.append(path)
            raise OSError(errno.EIO, "away")
        touch(path, *times)

    with held(tmp_path) as claim:
        touch(claim.path, (1e9, 1e9))
        monkeypatch.setattr(os, "utime", fail_twice)
        wait_until(lambda: claim.path.stat().st_mtime > 1e9)
        assert not claim.lost


def test_dead_worker_of_this_machine_is_released_for_others(tmp_path: Path) -> None:
    die_holding([tmp_path / "dead"])
    alive = write_claim(tmp_path / "alive")
    for job in ("dead", "alive", "never claimed"):
        release_if_dead(tmp_path / job)
    assert (tmp_path / "dead" / CLAIMS / "1").stat().st_mtime == RELEASED
    assert alive.stat().st_mtime != RELEASED


def test_disk_without_hard_links_gives_each_claim_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(source: Path, target: Path) -> None:
        raise OSError(errno.EPERM, "no links here")

    monkeypatch.setattr(os, "link", refuse)
    with held(tmp_path) as claim:
        assert claims._create(claim.path) is False
        assert json.loads(claim.path.read_text()) == claims._owner()


def test_claim_counts_where_the_disk_repeats_a_request_that_had_succeeded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    link = os.link

    def link_twice(source: Path, target: Path) -> None:
        link(source, target)
        link(source, target)

    monkeypatch.setattr(os, "link", link_twice)
    assert held(tmp_path)


@pytest.mark.parametrize("code", [errno.ENOENT, errno.ESTALE])
def test_claims_cleared_while_one_looks_are_no_claims(
    code: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def vanish(path: Path) -> dict[str, Any]:
        shutil.rmtree(tmp_path / CLAIMS)
        raise OSError(code, "gone")

    write_claim(tmp_path)
    monkeypatch.setattr(claims, "_read", vanish)
    assert take_claim(tmp_path) is None


def test_claims_leave_no_drafts(tmp_path: Path) -> None:
    write_claim(tmp_path, age=2 * STALE_SECONDS)
    assert held(tmp_path)
    assert take_claim(tmp_path) is None
    assert sorted(path.name for path in (tmp_path / CLAIMS).iterdir()) == ["1", "2"]
