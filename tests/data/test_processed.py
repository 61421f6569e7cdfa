from pathlib import Path

import numpy as np
import pytest

from canet.data.processed import Arrays, processed


class Builder:
    """Makes arrays and counts how often it was asked to."""

    def __init__(self) -> None:
        self.calls = 0

    def __call__(self) -> Arrays:
        self.calls += 1
        return {"a": np.arange(1000), "b": np.ones((2, 3), dtype=np.float32)}


def check(arrays: Arrays) -> None:
    assert sorted(arrays) == ["a", "b"]
    assert arrays["a"].tolist() == list(range(1000))
    assert arrays["b"].dtype == np.float32


def test_second_call_reads_the_copy(fresh_cache: Path) -> None:
    build = Builder()
    for _ in range(2):
        check(processed("name", "identity", build))
    assert build.calls == 1
    assert [p.name[:5] for p in (fresh_cache / "processed").iterdir()] == ["name-"]


def test_other_identity_is_another_copy(fresh_cache: Path) -> None:
    build = Builder()
    processed("name", "one", build)
    processed("name", "two", build)
    assert build.calls == len(list((fresh_cache / "processed").iterdir())) == 2


@pytest.mark.parametrize("damage", ["cut", "flipped", "empty", "text"])
def test_damaged_copy_is_made_anew(damage: str, fresh_cache: Path) -> None:
    build = Builder()
    processed("name", "identity", build)
    (path,) = (fresh_cache / "processed").iterdir()
    intact = path.read_bytes()
    flipped = bytearray(intact)
    flipped[1000] ^= 255
    path.write_bytes(
        {"cut": intact[:2000], "flipped": bytes(flipped), "empty": b"", "text": b"no"}[damage]
    )
    check(processed("name", "identity", build))
    assert build.calls == 2
    check(processed("name", "identity", build))
    assert build.calls == 2


def test_cache_that_cannot_be_written_costs_only_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("CANET_CACHE", str(tmp_path / "file" / "below"))
    build = Builder()
    for _ in range(2):
        check(processed("name", "identity", build))
    assert build.calls == 2
