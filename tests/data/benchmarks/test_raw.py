import json
import shutil
import zipfile
from pathlib import Path

import pytest

from canet.data import file_status, load_task
from canet.data.benchmarks import sources
from canet.data.benchmarks.raw import obtain, search_roots, status
from canet.data.benchmarks.sources import KNOWN, RawFile
from canet.errors import CanetError
from canet.util.files import sha256

FILE = RawFile("set/raw/file.csv", "http://invalid.invalid/file.csv")


def place(root: Path, content: str = "1,2\n") -> Path:
    path = root / FILE.path
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(content)
    return path


def listing(root: Path) -> dict[str, tuple[int, int]]:
    return {
        str(path.relative_to(root)): (path.stat().st_size, path.stat().st_mtime_ns)
        for path in root.rglob("*")
    }


def test_roots_are_the_given_one_then_the_environment_then_the_cache(
    tmp_path: Path, fresh_cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert search_roots(None) == [fresh_cache]
    monkeypatch.setenv("CANET_DATA_ROOT", str(tmp_path))
    assert search_roots(None) == [tmp_path, fresh_cache]
    other = tmp_path / "other"
    other.mkdir()
    assert search_roots(other) == [other, fresh_cache]


def test_data_root_that_is_no_folder_is_refused(tmp_path: Path) -> None:
    with pytest.raises(CanetError, match=r"'.*nowhere' is not a folder"):
        search_roots(tmp_path / "nowhere")


def test_digest_follows_the_content(tmp_path: Path, fresh_cache: Path) -> None:
    root = tmp_path / "raw"
    place(root)
    first = obtain([FILE], root).digest
    assert obtain([FILE], root).digest == first
    place(root, "1,3\n")
    assert obtain([FILE], root).digest != first


def test_file_in_the_cache_is_recorded_at_first_use_and_damaged_when_it_changes(
    fresh_cache: Path,
) -> None:
    path = place(fresh_cache)
    assert status(FILE, None).state == "present"
    obtain([FILE], None)
    record = json.loads((fresh_cache / "set" / "checksums.json").read_text())
    assert record == {FILE.path: {"size": 4, "sha256": sha256(path)}}
    place(fresh_cache, "1,3\n")
    assert status(FILE, None).state == "damaged"
    with pytest.raises(CanetError, match="is damaged") as caught:
        obtain([FILE], None)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("record", ["[]", "null", '{"set/raw/file.csv": 3}', "[" * 100_000, "{"])
def test_a_damaged_record_is_written_anew(record: str, fresh_cache: Path) -> None:
    path = place(fresh_cache)
    checksums = fresh_cache / "set" / "checksums.json"
    checksums.write_text(record)
    assert status(FILE, None).state == "present"
    obtain([FILE], None)
    assert json.loads(checksums.read_text()) == {FILE.path: {"size": 4, "sha256": sha256(path)}}


def test_given_root_gets_no_record(tmp_path: Path, fresh_cache: Path) -> None:
    root = tmp_path / "raw"
    place(root)
    before = listing(root)
    obtain([FILE], root)
    assert listing(root) == before


def test_missing_file_is_looked_up_in_the_cache(tmp_path: Path, fresh_cache: Path) -> None:
    (tmp_path / "raw").mkdir()
    path = place(fresh_cache)
    assert obtain([FILE], tmp_path / "raw").paths == {FILE.path: path}


def test_file_without_address_says_where_to_place_it(fresh_cache: Path) -> None:
    with pytest.raises(CanetError, match=r"'set/none' is missing.*CANET_DATA_ROOT"):
        obtain([RawFile("set/none", None)], None)


def test_every_known_file_belongs_to_a_task() -> None:
    paths = {file.path for files in sources.FILES.values() for file in files}
    assert set(KNOWN) <= paths
    unknown = {"edge.csv.gz", "node-feat.csv.gz", "elliptic_txs_features.csv"}
    assert {Path(path).name for path in paths - set(KNOWN)} == unknown


def test_real_files_are_present_and_what_they_should_be(data_root: Path) -> None:
    for name in ("cora", "citeseer", "pubmed", "twitch"):
        assert {file.state for file in file_status(name, data_root)} == {"present"}


def test_loading_never_writes_into_the_data_root(small_root: Path, fresh_cache: Path) -> None:
    before = listing(small_root)
    for name in ("twitch", "arxiv", "elliptic"):
        load_task(name, small_root)
    assert listing(small_root) == before
    assert sorted(path.name for path in fresh_cache.iterdir()) == ["processed"]


def test_loading_real_files_never_writes_into_the_data_root(
    data_root: Path, tmp_path: Path, fresh_cache: Path
) -> None:
    root = tmp_path / "raw"
    for file in sources.FILES["cora"]:
        (root / file.path).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(data_root / file.path, root / file.path)
    before = listing(root)
    load_task("cora", root)
    assert listing(root) == before


def test_loading_works_without_a_cache_that_can_be_written(
    small_root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("CANET_CACHE", str(tmp_path / "file" / "below"))
    assert load_task("twitch", small_root).num_nodes == 120


def test_processed_copy_is_used_and_made_anew_when_damaged(
    small_root: Path, fresh_cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = load_task("twitch", small_root)
    (copy,) = (fresh_cache / "processed").iterdir()
    with monkeypatch.context() as patch:
        patch.setattr("canet.data.benchmarks.twitch.read_region", None)
        assert load_task("twitch", small_root).data.y.equal(first.data.y)
    copy.write_bytes(copy.read_bytes()[:-100])
    assert load_task("twitch", small_root).data.y.equal(first.data.y)


def test_twitch_comes_out_of_its_archive_into_the_cache(
    small_root: Path, tmp_path: Path, fresh_cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    archive = tmp_path / "twitch.zip"
    with zipfile.ZipFile(archive, "w") as file:
        for path in sorted((small_root / "twitch").rglob("*.*")):
            file.write(path, str(path.relative_to(small_root)).replace("DE_features", "DE"))
    monkeypatch.setitem(sources.FILES, "twitch", with_address("twitch", archive.as_uri()))
    task = load_task("twitch")
    assert task.data.y.equal(load_task("twitch", small_root).data.y)
    names = {path.name for path in (fresh_cache / "twitch").rglob("*")}
    assert "musae_DE_features.json" in names
    assert "checksums.json" in names
    assert not any(name.startswith("twitch.zip") for name in names)
    assert {file.state for file in file_status("twitch")} == {"present"}


def test_citation_graph_is_downloaded_file_by_file(
    data_root: Path, fresh_cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = tuple(
        file._replace(url=(data_root / file.path).as_uri()) for file in sources.FILES["cora"]
    )
    monkeypatch.setitem(sources.FILES, "cora", files)
    assert {file.state for file in file_status("cora")} == {"missing"}
    load_task("cora")
    assert {file.state for file in file_status("cora")} == {"present"}
    names = sorted(path.name for path in (fresh_cache / "planetoid").iterdir())
    assert names == [".lock", *sorted(Path(file.path).name for file in files)]


def with_address(name: str, url: str) -> tuple[RawFile, ...]:
    return tuple(file._replace(url=url) for file in sources.FILES[name])
