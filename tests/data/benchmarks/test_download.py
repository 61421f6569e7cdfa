import hashlib
import json
import os
import sys
import time
import zipfile
from collections.abc import Iterator
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from subprocess import PIPE, Popen
from threading import Event, Thread

import pytest

from canet.data.benchmarks.download import Member, download, download_members, extract
from canet.data.benchmarks.sources import Known
from canet.errors import CanetError

CONTENT = bytes(range(256)) * 2000
KNOWN = Known(len(CONTENT), hashlib.sha256(CONTENT).hexdigest())


class Server(ThreadingHTTPServer):
    """Serves `files`; can break off the next answers, or hold them until it may `go_on`, and
    can be told not to know Range.
    """

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.files = {"/file": CONTENT}
        self.knows_range = True
        self.break_after: list[int] = []
        self.hold_after: list[int] = []
        self.go_on = Event()
        self.asked: list[str | None] = []

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"


class Handler(BaseHTTPRequestHandler):
    server: Server

    def do_GET(self) -> None:
        wanted = self.headers.get("Range")
        self.server.asked.append(wanted)
        content = self.server.files.get(self.path)
        if content is None:
            return self.send_error(404)
        start = 0
        if wanted and self.server.knows_range:
            start = int(wanted.removeprefix("bytes=").removesuffix("-"))
            if start >= len(content):
                self.send_response(416)
                self.send_header("Content-Range", f"bytes */{len(content)}")
                self.send_header("Content-Length", "0")
                return self.end_headers()
            self.send_response(206)
            self.send_header("Content-Range", f"bytes {start}-{len(content) - 1}/{len(content)}")
        else:
            self.send_response(200)
        self.send_header("Content-Length", str(len(content) - start))
        self.end_headers()
        end = start + self.server.break_after.pop(0) if self.server.break_after else len(content)
        pause = start + self.server.hold_after.pop(0) if self.server.hold_after else end
        self.wfile.write(content[start:pause])
        if pause < end:
            self.server.go_on.wait(60)
            with suppress(ConnectionError):
                self.wfile.write(content[pause:end])
        return None

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    with Server() as server:
        thread = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield server
        server.go_on.set()
        server.shutdown()
        thread.join()


def fetch(server: Server, target: Path, known: Known | None = KNOWN) -> None:
    download(f"{server.url}/file", target, known, "set/file")


def error_of(server: Server, target: Path, known: Known | None = KNOWN) -> str:
    with pytest.raises(CanetError) as caught:
        fetch(server, target, known)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_file_arrives_in_a_process_without_standard_error(
    server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "stderr", None)
    fetch(server, tmp_path / "file")
    assert (tmp_path / "file").read_bytes() == CONTENT


def test_file_arrives_complete_and_alone(server: Server, tmp_path: Path) -> None:
    target = tmp_path / "new" / "folder" / "file"
    fetch(server, target)
    assert target.read_bytes() == CONTENT
    assert [path.name for path in target.parent.iterdir()] == ["file"]


def test_broken_off_transfer_goes_on_where_it_stopped(server: Server, tmp_path: Path) -> None:
    target = tmp_path / "file"
    server.break_after = [100_000, 50_000]
    assert "broke off after 100000 of 512000 bytes" in error_of(server, target)
    assert not target.exists()
    assert "broke off after 150000 of 512000 bytes" in error_of(server, target)
    fetch(server, target)
    assert target.read_bytes() == CONTENT
    assert server.asked == [None, "bytes=100000-", "bytes=150000-"]


def test_server_without_range_starts_over(server: Server, tmp_path: Path) -> None:
    server.knows_range = False
    server.break_after = [1000]
    error_of(server, tmp_path / "file")
    fetch(server, tmp_path / "file")
    assert (tmp_path / "file").read_bytes() == CONTENT


def test_part_that_is_already_complete_is_taken(server: Server, tmp_path: Path) -> None:
    (tmp_path / "file.part").write_bytes(CONTENT)
    fetch(server, tmp_path / "file")
    assert (tmp_path / "file").read_bytes() == CONTENT
    assert server.asked == [f"bytes={len(CONTENT)}-"]


def test_part_that_is_longer_than_the_file_starts_over(server: Server, tmp_path: Path) -> None:
    (tmp_path / "file.part").write_bytes(CONTENT + b"more")
    fetch(server, tmp_path / "file")
    assert (tmp_path / "file").read_bytes() == CONTENT
    assert server.asked == [f"bytes={len(CONTENT) + 4}-", None]


def test_wrong_checksum_deletes_what_arrived(server: Server, tmp_path: Path) -> None:
    server.files["/file"] = CONTENT[::-1]
    assert "another SHA-256" in error_of(server, tmp_path / "file")
    assert list(tmp_path.iterdir()) == []


def test_wrong_size_deletes_what_arrived(server: Server, tmp_path: Path) -> None:
    server.files["/file"] = CONTENT[:-1]
    assert "511999 bytes instead of 512000" in error_of(server, tmp_path / "file")
    assert list(tmp_path.iterdir()) == []


def test_missing_address_names_itself_and_the_way_by_hand(server: Server, tmp_path: Path) -> None:
    server.files.clear()
    message = error_of(server, tmp_path / "file")
    assert f"{server.url}/file (HTTP Error 404" in message
    assert "place set/file by hand below --data-root/CANET_DATA_ROOT" in message


def test_no_server_is_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    with Server() as server:
        pass
    assert "Connection refused" in error_of(server, tmp_path / "file")


def archive_of(path: Path, members: dict[str, bytes]) -> Path:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in members.items():
            archive.writestr(name, content)
    return path


def test_only_wanted_members_leave_the_archive(server: Server, tmp_path: Path) -> None:
    archive = archive_of(tmp_path / "a.zip", {"a/other-name": CONTENT, "a/unwanted": b"x"})
    server.files["/a.zip"] = archive.read_bytes()
    target = tmp_path / "cache" / "a" / "file"
    member = Member(target, ("a/name", "a/other-name"), KNOWN)
    download_members(f"{server.url}/a.zip", tmp_path / "cache" / "a.zip", [member], "a/file")
    assert target.read_bytes() == CONTENT
    assert sorted(p.name for p in (tmp_path / "cache").rglob("*")) == ["a", "file"]


@pytest.mark.parametrize("name", ["../evil", "a/../../evil", "/evil"])
def test_archive_with_names_that_point_outside_is_refused(name: str, tmp_path: Path) -> None:
    archive = archive_of(tmp_path / "a.zip", {"file": CONTENT, name: b"evil"})
    with pytest.raises(CanetError, match="points outside"):
        extract(archive, [Member(tmp_path / "out" / "file", ("file",), None)])
    assert [path.name for path in tmp_path.iterdir()] == ["a.zip"]


def test_member_that_is_not_the_published_file_is_refused(tmp_path: Path) -> None:
    archive = archive_of(tmp_path / "a.zip", {"file": CONTENT[::-1]})
    with pytest.raises(CanetError, match=r"a\.zip:file has another SHA-256"):
        extract(archive, [Member(tmp_path / "file", ("file",), KNOWN)])
    assert [path.name for path in tmp_path.iterdir()] == ["a.zip"]


def test_archive_without_a_wanted_member_says_so(tmp_path: Path) -> None:
    archive = archive_of(tmp_path / "a.zip", {"other": b""})
    with pytest.raises(CanetError, match="holds no 'file'"):
        extract(archive, [Member(tmp_path / "file", ("file",), None)])


def test_damaged_archive_says_so(tmp_path: Path) -> None:
    archive = archive_of(tmp_path / "a.zip", {"file": CONTENT})
    content = bytearray(archive.read_bytes())
    content[len(content) // 4] ^= 255
    archive.write_bytes(content)
    with pytest.raises(CanetError, match="is damaged"):
        extract(archive, [Member(tmp_path / "file", ("file",), None)])
    assert not (tmp_path / "file").exists()


def test_folder_that_cannot_be_written_is_one_line(server: Server, tmp_path: Path) -> None:
    (tmp_path / "plain").touch()
    assert "plain" in error_of(server, tmp_path / "plain" / "file")
    archive = archive_of(tmp_path / "a.zip", {"file": CONTENT})
    with pytest.raises(CanetError, match="set CANET_CACHE to another folder"):
        extract(archive, [Member(tmp_path / "plain" / "file", ("file",), None)])


OBTAIN = """
import json, sys
from canet.data.benchmarks import raw
from canet.data.benchmarks import sources
from canet.data.benchmarks.sources import Known, RawFile

path, url, members, size, digest = json.loads(sys.argv[1])
sources.KNOWN[path] = Known(size, digest)
print(raw.obtain([RawFile(path, url, tuple(members))], None).paths[path])
"""


def obtain_elsewhere(server: Server, cache: Path, packed: bool) -> Popen:
    """Another process that obtains set/file into a cache, as it is or out of an archive."""
    url, members = (f"{server.url}/a.zip", ["file"]) if packed else (f"{server.url}/file", [])
    wanted = json.dumps(["set/file", url, members, *KNOWN])
    return Popen(
        [sys.executable, "-c", OBTAIN, wanted],
        stdout=PIPE,
        stderr=PIPE,
        text=True,
        env={**os.environ, "CANET_CACHE": str(cache), "CANET_DATA_ROOT": ""},
    )


def two_at_once(server: Server, tmp_path: Path, packed: bool) -> tuple[Popen, Popen, Path]:
    """Two processes that obtain the same file: one in the middle of it, one that waits for it."""
    archive = tmp_path / "a.zip"
    with zipfile.ZipFile(archive, "w") as file:  # not compressed: as long as its content
        file.writestr("file", CONTENT)
    server.files["/a.zip"] = archive.read_bytes()
    server.hold_after = [300_000]
    cache = tmp_path / "cache"
    part = cache / "set" / ("a.zip.part" if packed else "file.part")
    first = obtain_elsewhere(server, cache, packed)
    while not (part.exists() and part.stat().st_size):
        assert first.poll() is None
        time.sleep(0.01)
    second = obtain_elsewhere(server, cache, packed)
    assert second.stderr is not None
    assert "another process downloads into" in second.stderr.readline()
    return first, second, cache / "set" / "file"


@pytest.mark.parametrize("packed", [False, True])
def test_two_first_downloads_at_once_fetch_one_intact_file(
    packed: bool, server: Server, tmp_path: Path
) -> None:
    first, second, target = two_at_once(server, tmp_path, packed)
    server.go_on.set()
    for process in (first, second):
        out, err = process.communicate(timeout=60)
        assert (process.returncode, out.strip(), err) == (0, str(target), "")
    assert target.read_bytes() == CONTENT
    assert len(server.asked) == 1
    assert sorted(p.name for p in target.parent.iterdir()) == [".lock", "file"]


@pytest.mark.parametrize("packed", [False, True])
def test_whoever_waits_goes_on_where_a_killed_download_stopped(
    packed: bool, server: Server, tmp_path: Path
) -> None:
    first, second, target = two_at_once(server, tmp_path, packed)
    first.kill()
    first.communicate(timeout=60)
    out, err = second.communicate(timeout=60)
    assert (second.returncode, out.strip(), err) == (0, str(target), "")
    assert target.read_bytes() == CONTENT
    whole, rest = server.asked
    assert whole is None
    assert rest is not None
    assert sorted(p.name for p in target.parent.iterdir()) == [".lock", "file"]


def test_a_member_larger_than_the_disk_is_refused_before_it_fills_it(tmp_path: Path) -> None:
    archive = archive_of(tmp_path / "a.zip", {"file": CONTENT})
    content = archive.read_bytes()
    entry = content.rindex(b"PK\x01\x02")
    sizes = b"\xff" * 8  # both are looked up in the entry's extra field
    extra = b"\x01\x00\x10\x00" + (2**60).to_bytes(8, "little") + (100).to_bytes(8, "little")
    name = content[entry + 46 : entry + 50]
    end = content[content.rindex(b"PK\x05\x06") :]
    forged = content[entry : entry + 20] + sizes + content[entry + 28 : entry + 30]
    forged += len(extra).to_bytes(2, "little") + content[entry + 32 : entry + 46] + name + extra
    end = end[:12] + len(forged).to_bytes(4, "little") + end[16:]
    archive.write_bytes(content[:entry] + forged + end)
    with pytest.raises(CanetError, match=r"takes 1,073,741,824\.0 GiB"):
        extract(archive, [Member(tmp_path / "file", ("file",), None)])
    assert not (tmp_path / "file").exists()
