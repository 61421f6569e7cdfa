"""Downloads into the cache: only complete and verified files are kept."""

import gc
import hashlib
import io
import json
import os
import sys
import time
import zipfile
from collections.abc import Iterator
from pathlib import Path
from subprocess import PIPE, Popen
from urllib.parse import unquote

import pytest

from canet.data import DATASETS, file_status, load_task
from canet.data.benchmarks.dataset import RawFile
from canet.data.benchmarks.files import obtain
from canet.errors import CanetError
from tests.support.server import Server

pytestmark = pytest.mark.filterwarnings("ignore::ResourceWarning")

CONTENT = bytes(range(256)) * 2000
SHA256 = hashlib.sha256(CONTENT).hexdigest()
PATH = "set/folder/file"


@pytest.fixture(autouse=True, scope="module")
def closed_connections() -> Iterator[None]:
    """Close sockets that requests leaves open after an error, before other tests."""
    yield
    gc.collect()


def zipped(members: dict[str, bytes]) -> bytes:
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w") as archive:  # not compressed
        for name, member in members.items():
            archive.writestr(name, member)
    return content.getvalue()


def wanted(server: Server, packed: bool, sha256: str | None = SHA256) -> RawFile:
    """A file on the server, plain or in an archive."""
    server.files.setdefault("/file", CONTENT)
    server.files.setdefault("/a.zip", zipped({"a/other": CONTENT, "a/unwanted": b"x"}))
    if packed:
        return RawFile(PATH, f"{server.url}/a.zip", sha256, ("a/name", "a/other"))
    return RawFile(PATH, f"{server.url}/file", sha256)


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.rglob("*") if path.is_file())


def rejected(file: RawFile, cache: Path, match: str) -> None:
    """Assert that a file is rejected in one line, and that no file is left in the cache."""
    with pytest.raises(CanetError, match=match) as caught:
        obtain([file], None)
    assert "\n" not in str(caught.value)
    assert [name for name in names(cache) if name != ".lock"] == []


@pytest.mark.parametrize("packed", [False, True])
def test_file_is_downloaded_once(packed: bool, server: Server, fresh_cache: Path) -> None:
    found = obtain([wanted(server, packed)], None)
    assert found.paths == {PATH: fresh_cache / PATH}
    assert (fresh_cache / PATH).read_bytes() == CONTENT
    assert names(fresh_cache) == [".lock", "file"]
    obtain([wanted(server, packed)], None)
    assert len(server.requests) == 1


def test_file_is_downloaded_in_a_process_without_standard_error(
    server: Server, fresh_cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "stderr", None)
    obtain([wanted(server, False)], None)
    assert (fresh_cache / PATH).read_bytes() == CONTENT


def test_an_archive_is_downloaded_once_for_all_of_its_members(
    server: Server, fresh_cache: Path
) -> None:
    server.files["/a.zip"] = zipped({"one": b"1", "two": b"2"})
    files = [RawFile(f"set/{m}", f"{server.url}/a.zip", None, (m,)) for m in ("one", "two")]
    assert [path.read_bytes() for path in obtain(files, None).paths.values()] == [b"1", b"2"]
    assert server.requests == ["/a.zip"]


@pytest.mark.parametrize("packed", [False, True])
def test_aborted_transfer_leaves_no_file_and_can_be_repeated(
    packed: bool, server: Server, fresh_cache: Path
) -> None:
    server.abort_after = [100_000]
    rejected(wanted(server, packed), fresh_cache, match=server.url)
    obtain([wanted(server, packed)], None)
    assert (fresh_cache / PATH).read_bytes() == CONTENT


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("other", [CONTENT[::-1], CONTENT[:-1]], ids=["content", "size"])
def test_other_content_than_published_is_rejected(
    packed: bool, other: bytes, server: Server, fresh_cache: Path
) -> None:
    server.files = {"/file": other, "/a.zip": zipped({"a/name": other})}
    rejected(wanted(server, packed), fresh_cache, match="checksum mismatch")


@pytest.mark.parametrize(
    "archive",
    [
        b"not a zip archive",
        zipped({"a/name": CONTENT})[:-9],
        zipped({"a/name": CONTENT}).replace(CONTENT[:512], CONTENT[512:1023] + b"\0", 1),
        zipped({"other": CONTENT}),
        zipped(dict.fromkeys(("../../evil", "a/../../../evil", "/evil"), b"evil")),
    ],
    ids=["text", "cut", "flipped", "without it", "outside its folder"],
)
def test_invalid_archive_is_rejected(archive: bytes, server: Server, fresh_cache: Path) -> None:
    server.files["/a.zip"] = archive
    rejected(wanted(server, packed=True), fresh_cache, match=r"a\.zip")
    assert "evil" not in names(fresh_cache.parent)


@pytest.mark.parametrize("address", ["{server.url}/none", "http://127.0.0.1:9/file"])
def test_error_of_a_missing_file_names_its_address_and_where_to_put_the_file(
    address: str, server: Server, fresh_cache: Path
) -> None:
    url = address.format(server=server)
    rejected(RawFile(PATH, url), fresh_cache, match=rf"{url}.*{PATH}.*CANET_DATA_ROOT")


def test_cache_that_cannot_be_written_is_an_error(
    server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fresh_cache: Path
) -> None:
    (tmp_path / "plain").touch()
    monkeypatch.setenv("CANET_CACHE", str(tmp_path / "plain" / "below"))
    with pytest.raises(CanetError, match="CANET_CACHE"):
        obtain([wanted(server, False)], None)


OBTAIN = """
import json, logging, sys
from canet.data.benchmarks.dataset import RawFile
from canet.data.benchmarks.files import obtain

logging.basicConfig()
path, url, sha256, members = json.loads(sys.argv[1])
print(obtain([RawFile(path, url, sha256, tuple(members))], None).paths[path])
"""


def obtain_in_process(file: RawFile, cache: Path) -> Popen:
    """Start a process that obtains a file."""
    return Popen(
        [sys.executable, "-c", OBTAIN, json.dumps(file)],
        stdout=PIPE,
        stderr=PIPE,
        text=True,
        env={**os.environ, "CANET_CACHE": str(cache), "CANET_DATA_ROOT": ""},
    )


@pytest.mark.parametrize(("packed", "killed"), [(False, False), (True, True)])
def test_a_waiting_process_gets_the_file_even_if_the_downloading_process_is_killed(
    packed: bool, killed: bool, server: Server, fresh_cache: Path
) -> None:
    file = wanted(server, packed)
    server.delay_after = [300_000]
    first = obtain_in_process(file, fresh_cache)
    while not server.requests:
        assert first.poll() is None
        time.sleep(0.01)
    second = obtain_in_process(file, fresh_cache)
    assert second.stderr is not None
    assert str(fresh_cache / "set") in second.stderr.readline()  # it waits
    if killed:
        first.kill()
    else:
        server.resume.set()
    first.communicate(timeout=60)
    out, _ = second.communicate(timeout=60)
    assert (second.returncode, out.strip()) == (0, str(fresh_cache / PATH))
    assert (fresh_cache / PATH).read_bytes() == CONTENT
    assert len(server.requests) == 1 + killed
    assert names(fresh_cache) == [".lock", "file"]


def test_twitch_is_unpacked_from_its_archive_into_the_cache(
    small_root: Path, fresh_cache: Path, server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    server.files["/twitch.zip"] = zipped(
        {
            str(path.relative_to(small_root)).replace("DE_features", "DE"): path.read_bytes()
            for path in (small_root / "twitch").rglob("*.*")
        }
    )
    files = tuple(f._replace(url=f"{server.url}/twitch.zip") for f in DATASETS["twitch"].files)
    monkeypatch.setattr(DATASETS["twitch"], "files", files)
    assert load_task("twitch").digest == load_task("twitch", small_root).digest
    assert {file.state for file in file_status("twitch")} == {"present"}


@pytest.mark.parametrize("name", ["cora", "airports", "webkb", "fb100", "election", "roads"])
def test_data_sets_are_downloaded_file_by_file_from_their_repositories(
    name: str,
    data_root: Path,
    fresh_cache: Path,
    server: Server,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    files = DATASETS[name].files
    if any(not (data_root / file.path).is_file() for file in files):
        pytest.skip(f"the files of {name} are not in CANET_DATA_ROOT")
    there = tuple(f._replace(url=f.url.replace("https:/", server.url)) for f in files)
    server.files = {
        new.url.removeprefix(server.url): (data_root / new.path).read_bytes() for new in there
    }
    assert {Path(unquote(url)).name for url in server.files} == {Path(f.path).name for f in files}
    monkeypatch.setattr(DATASETS[name], "files", there)
    load_task(name)
    assert {file.state for file in file_status(name)} == {"present"}
    for file in files:
        assert (fresh_cache / file.path).read_bytes() == (data_root / file.path).read_bytes()
