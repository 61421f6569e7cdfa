"""Downloads that resume, are checked, and appear as complete files or not at all."""

from __future__ import annotations

import shutil
import sys
import zipfile
import zlib
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from email.message import Message
from http.client import HTTPException
from pathlib import Path, PurePosixPath
from typing import NamedTuple
from urllib.error import HTTPError
from urllib.request import Request, urlopen

from canet.data.benchmarks.sources import Known
from canet.errors import CanetError
from canet.util.files import atomic_path, sha256
from canet.util.locks import exclusive_lock
from canet.util.progress import Display

TIMEOUT = 60.0  # seconds without any answer
CHUNK = 1 << 18


class Member(NamedTuple):
    """A file to take out of an archive: where to, its possible names there, what it must be."""

    target: Path
    names: tuple[str, ...]
    known: Known | None


@contextmanager
def downloading_into(folder: Path) -> Iterator[None]:
    """Keep other processes out while downloading: two that share a `.part` would spoil it."""
    with ExitStack() as stack:
        try:
            stack.enter_context(exclusive_lock(folder))
        except OSError as error:
            raise CanetError(
                f"cannot write to '{folder}' ({error.strerror}): set CANET_CACHE to another folder"
            ) from error
        yield


def download(url: str, target: Path, known: Known | None, by_hand: str) -> None:
    """Fetch `url` as `target`; `by_hand` is what to place below a data root where that fails.

    What has arrived of a broken-off transfer stays beside it in a `.part` file, from which the next
    call goes on. A complete file that is not the `known` one is deleted. Whoever calls this is
    `downloading_into` the folder.
    """
    part = target.with_name(f"{target.name}.part")
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        _transfer(url, part)
        _check(part, known, url)
        part.replace(target)
    except (OSError, HTTPException) as error:
        reason = error if isinstance(error, HTTPError) else getattr(error, "reason", error)
        raise CanetError(
            f"cannot download {url} ({reason}): run again to go on, or place {by_hand} by hand "
            "below --data-root/CANET_DATA_ROOT"
        ) from error


def download_members(url: str, archive: Path, members: Sequence[Member], by_hand: str) -> None:
    """Fetch the zip archive `url` as `archive`, take `members` out, and delete it again."""
    download(url, archive, None, by_hand)
    try:
        extract(archive, members)
    finally:
        archive.unlink()


def extract(archive: Path, members: Sequence[Member]) -> None:
    """Take `members`, and nothing else, out of a zip archive; each appears complete or not."""
    try:
        with zipfile.ZipFile(archive) as content:
            names = content.namelist()
            for name in names:
                if PurePosixPath(name).is_absolute() or ".." in PurePosixPath(name).parts:
                    raise CanetError(
                        f"archive '{archive}' is refused: its member '{name}' points outside: get "
                        "the official one"
                    )
            for member in members:
                held = [name for name in member.names if name in names]
                if not held:
                    raise CanetError(
                        f"archive '{archive}' holds no '{member.names[0]}': place that file by "
                        f"hand as '{member.target}'"
                    )
                with atomic_path(member.target) as temporary:
                    _check_room(content.getinfo(held[0]), archive)
                    with content.open(held[0]) as source, temporary.open("wb") as file:
                        shutil.copyfileobj(source, file, CHUNK)
                    _check(temporary, member.known, f"{archive.name}:{held[0]}")
    except (zipfile.BadZipFile, zlib.error, EOFError, RuntimeError) as error:
        raise CanetError(f"archive '{archive}' is damaged ({error}): download it again") from error
    except OSError as error:
        raise CanetError(
            f"cannot take files out of '{archive}' ({error}): make room, or set CANET_CACHE to "
            "another folder"
        ) from error


def _check_room(member: zipfile.ZipInfo, archive: Path) -> None:
    """Refuse a member that says it is larger than the disk before it fills it."""
    free = shutil.disk_usage(archive.parent).free
    if member.file_size > free:
        raise CanetError(
            f"'{member.filename}' of '{archive}' takes {member.file_size / 2**30:,.1f} GiB and "
            f"{free / 2**30:,.1f} GiB of the disk are free: get the official archive, or make room"
        )


def _transfer(url: str, part: Path) -> None:
    """Append to `part` what is missing of `url`; write it anew where the server cannot resume."""
    done = part.stat().st_size if part.exists() else 0
    headers = {"User-Agent": "canet"} | ({"Range": f"bytes={done}-"} if done else {})
    try:
        response = urlopen(Request(url, headers=headers), timeout=TIMEOUT)
    except HTTPError as error:
        error.close()
        if error.code != 416 or not done:
            raise
        # Nothing follows what we have: it is all of the file, or not a part of this file.
        if _total(error.headers) != done:
            part.unlink()
            _transfer(url, part)
        return
    with response:
        resumes = response.status == 206
        length = response.headers.get("Content-Length", "")
        whole = int(length) if length.isdecimal() else None
        total = _total(response.headers) if resumes else whole
        quiet = total is None or not (sys.stderr and sys.stderr.isatty())
        megabytes = Display(_megabytes(total or 0), unit="MB", quiet=quiet)
        with part.open("ab" if resumes else "wb") as file, megabytes as display:
            while chunk := response.read(CHUNK):
                file.write(chunk)
                display.update(_megabytes(file.tell()), text=part.stem)
    if total is not None and part.stat().st_size < total:
        raise ConnectionError(
            f"the transfer broke off after {part.stat().st_size} of {total} bytes"
        )


def _megabytes(size: int) -> int:
    return -(-size // 2**20)


def _total(headers: Message) -> int | None:
    """Size of the whole file from `Content-Range: bytes 5-9/10` or `bytes */10`."""
    total = headers.get("Content-Range", "").rpartition("/")[2]
    return int(total) if total.isdecimal() else None


def _check(path: Path, known: Known | None, origin: str) -> None:
    """Delete `path` and raise if it is not the `known` file."""
    if known is None:
        return
    size = path.stat().st_size
    if size != known.size:
        cause = f"has {size} bytes instead of {known.size}"
    elif sha256(path) != known.sha256:
        cause = "has another SHA-256 than the published file"
    else:
        return
    path.unlink()
    raise CanetError(
        f"{origin} {cause} and was deleted: run again, or place the published file below "
        "--data-root/CANET_DATA_ROOT"
    )
