import hashlib
import zipfile
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread

import pytest

from canet.data.download import Member, download, download_members, extract
from canet.data.sources import Known
from canet.errors import CanetError

CONTENT = bytes(range(256)) * 2000
KNOWN = Known(len(CONTENT), hashlib.sha256(CONTENT).hexdigest())


class Server(ThreadingHTTPServer):
    """Serves `files`; can break off the next answers, and can be told not to know Range."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.files = {"/file": CONTENT}
        self.knows_range = True
        self.break_after: list[int] = []
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
        self.wfile.write(content[start:end])
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
        server.shutdown()
        thread.join()


def fetch(server: Server, target: Path, known: Known | None = KNOWN) -> None:
    download(f"{server.url}/file", target, known, "set/file")


def error_of(server: Server, target: Path, known: Known | None = KNOWN) -> str:
    with pytest.raises(CanetError) as caught:
        fetch(server, target, known)
    assert "\n" not in str(caught.value)
    return str(caught.value)


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
