"""Raw files are found and verified, and the data root is only read."""

from pathlib import Path

import pytest

from canet.data import load_task
from canet.data.benchmarks.dataset import RawFile
from canet.data.benchmarks.files import obtain, search_roots, status
from canet.errors import CanetError
from canet.util.files import digest_of

FILE = RawFile("set/raw/file.csv", "http://invalid.invalid/file.csv")


def write_file(root: Path, content: str = "1,2\n") -> Path:
    path = root / FILE.path
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(content)
    return path


def listing(root: Path) -> dict[str, tuple[int, int]]:
    return {
        str(path.relative_to(root)): (path.stat().st_size, path.stat().st_mtime_ns)
        for path in root.rglob("*")
    }


def test_search_order_is_argument_then_environment_variable_then_cache(
    tmp_path: Path, fresh_cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert search_roots(None) == [fresh_cache]
    monkeypatch.setenv("CANET_DATA_ROOT", str(tmp_path))
    assert search_roots(None) == [tmp_path, fresh_cache]
    other = tmp_path / "other"
    other.mkdir()
    assert search_roots(other) == [other, fresh_cache]
    with pytest.raises(CanetError, match="nowhere"):
        search_roots(tmp_path / "nowhere")


def test_digest_depends_on_the_content(tmp_path: Path, fresh_cache: Path) -> None:
    root = tmp_path / "raw"
    write_file(root)
    first = obtain([FILE], root).digest
    assert obtain([FILE], root).digest == first
    write_file(root, "1,3\n")
    assert obtain([FILE], root).digest != first


def test_file_with_another_checksum_is_reported_as_changed(fresh_cache: Path) -> None:
    published = FILE._replace(sha256=digest_of(b"1,2\n"))
    assert status(published, None).state == "missing"
    path = write_file(fresh_cache)
    assert status(published, None).state == "present"
    obtain([published], None)
    write_file(fresh_cache, "1,3\n")
    assert status(published, None).state == "changed"
    with pytest.raises(CanetError, match=str(path)):
        obtain([published], None)


def test_file_missing_in_the_data_root_is_found_in_the_cache(
    tmp_path: Path, fresh_cache: Path
) -> None:
    (tmp_path / "raw").mkdir()
    path = write_file(fresh_cache)
    assert obtain([FILE], tmp_path / "raw").paths == {FILE.path: path}


def test_error_of_a_file_without_address_says_where_to_put_it(fresh_cache: Path) -> None:
    with pytest.raises(CanetError, match=r"set/none.*CANET_DATA_ROOT"):
        obtain([RawFile("set/none")], None)


def test_loading_never_writes_into_the_data_root(small_root: Path, fresh_cache: Path) -> None:
    before = listing(small_root)
    for name in ("twitch", "arxiv", "elliptic"):
        load_task(name, small_root)
    assert listing(small_root) == before
    assert sorted(path.name for path in fresh_cache.iterdir()) == ["processed"]


@pytest.mark.usefixtures("fresh_cache")
def test_processed_copy_is_used(small_root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = load_task("twitch", small_root)
    monkeypatch.setattr("canet.data.benchmarks.twitch.read_region", None)
    assert load_task("twitch", small_root).digest == first.digest
