from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from canet.search import presence as presence_module
from canet.search.presence import present_at

ELSEWHERE = """
import sys
from canet.search.presence import present_at

with present_at(sys.argv[1]) as presence:
    print("there", flush=True)
    sys.stdin.readline()
"""


def alone(place: Path | str) -> bool:
    with present_at(str(place)) as presence, presence.alone() as answer:
        return answer


def test_who_shares_a_journal_is_not_alone(tmp_path: Path) -> None:
    path = tmp_path / "journal.log"
    assert alone(path)
    with present_at(str(path)) as first:
        assert not alone(path)
        with first.alone() as answer:
            assert answer


def test_who_was_alone_is_seen_by_who_comes_later(tmp_path: Path) -> None:
    path = tmp_path / "journal.log"
    with present_at(str(path)) as first:
        with first.alone() as answer:
            assert answer
        assert not alone(path)


def test_process_that_is_killed_leaves_others_alone(tmp_path: Path) -> None:
    path = tmp_path / "journal.log"
    line = [sys.executable, "-c", ELSEWHERE, str(path)]
    with subprocess.Popen(line, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as other:
        assert other.stdout is not None
        assert other.stdout.readline() == "there\n"
        assert not alone(path)
        other.kill()
    assert alone(path)


def test_nobody_is_known_to_be_alone_with_a_database() -> None:
    assert not alone("sqlite:///trials.db")


def test_nobody_is_known_to_be_alone_where_there_are_no_locks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(presence_module, "fcntl", None)
    assert not alone(tmp_path / "journal.log")
