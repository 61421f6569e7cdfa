from pathlib import Path

import numpy as np
import pytest

from canet.data.benchmarks.processed import Arrays, processed


class Builder:
    """Builds arrays and counts its calls."""

    def __init__(self) -> None:
        self.calls = 0

    def __call__(self) -> Arrays:
        self.calls += 1
        return {"a": np.arange(1000), "b": np.ones((2, 3), dtype=np.float32)}


def check(arrays: Arrays) -> None:
    assert sorted(arrays) == ["a", "b"]
    assert arrays["a"].tolist() == list(range(1000))
    assert arrays["b"].dtype == np.float32


def test_each_identity_is_built_once_and_has_its_own_copy(fresh_cache: Path) -> None:
    build = Builder()
    for identity in ("one", "one", "two"):
        check(processed("name", identity, build))
    assert build.calls == len(list((fresh_cache / "processed").glob("name-*.npz"))) == 2


@pytest.mark.parametrize("change", ["cut", "flipped", "empty", "other arrays"])
def test_changed_copy_is_built_again(change: str, fresh_cache: Path) -> None:
    build = Builder()
    processed("name", "identity", build)
    (path,) = (fresh_cache / "processed").iterdir()
    intact = path.read_bytes()
    flipped = bytearray(intact)
    flipped[1000] ^= 255
    if change == "other arrays":
        np.savez(path, a=np.arange(1, 1001), b=np.ones((2, 3), dtype=np.float32))
    else:
        path.write_bytes({"cut": intact[:2000], "flipped": bytes(flipped), "empty": b""}[change])
    for _ in range(2):
        check(processed("name", "identity", build))
        assert build.calls == 2
    assert path.read_bytes() == intact


def test_without_a_writable_cache_the_arrays_are_built_each_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("CANET_CACHE", str(tmp_path / "file" / "below"))
    build = Builder()
    for _ in range(2):
        check(processed("name", "identity", build))
    assert build.calls == 2
