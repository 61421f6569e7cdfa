"""Claims: who works on a job, told by files that many processes and machines can share.

Claims of a job are files named 1, 2, 3, … in its folder `claims`; the last one counts. A claim is
taken by creating the next number, which a disk allows once, so of many who try one succeeds. No
file is replaced or removed before the job is finished: a claim that looked dead and is renewed at
the last moment is either still the last, or its owner sees a higher number and stops.
"""

from __future__ import annotations

import errno
import json
import os
import shutil
import socket
import threading
import uuid
from contextlib import suppress
from functools import cache
from pathlib import Path
from types import TracebackType
from typing import Any

CLAIMS = "claims"
HEARTBEAT_SECONDS = 15.0
STALE_SECONDS = 180.0  # after which a silent owner on another machine counts as dead
RELEASED = 0.0  # modification time of a claim that its owner gave back
CLEARED = (errno.ENOENT, errno.ESTALE)  # another process, or machine, has finished the job


class Claim:
    """A job that this process holds; as a context it keeps the claim fresh and gives it back.

    Args:
        path: The claim's file.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.lost = False  # somebody took this process for dead: it must stop working on the job
        self._next = path.with_name(str(int(path.name) + 1))
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._beat, daemon=True)

    def __enter__(self) -> Claim:
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._ended.set()
        self._thread.join()
        _release(self.path)

    def _beat(self) -> None:
        while not self._ended.wait(HEARTBEAT_SECONDS):
            try:
                os.utime(self.path)
                self.lost = self._next.exists()
            except FileNotFoundError:
                self.lost = True
            except OSError:
                continue  # a disk that is away for a moment; others wait for minutes
            if self.lost:
                return


def take_claim(job: Path) -> Claim | None:
    """Claim the job of this folder; None if somebody alive has it or was faster."""
    folder = job / CLAIMS
    folder.mkdir(parents=True, exist_ok=True)
    last = _last(folder)
    if last and _alive(last):
        return None
    path = folder / str(int(last.name) + 1 if last else 1)
    try:
        return Claim(path) if _create(path) else None
    except OSError as error:
        if error.errno in CLEARED:
            return None
        raise


def is_claimed(job: Path) -> bool:
    """Whether somebody alive works on the job of this folder."""
    last = _last(job / CLAIMS)
    return last is not None and _alive(last)


def release_if_dead(job: Path) -> None:
    """Spare other machines the wait where a process of this machine died holding the job."""
    last = _last(job / CLAIMS)
    if last and not _alive(last):
        _release(last)


def clear_claims(job: Path) -> None:
    """Remove all claims of a finished job, which nobody runs again."""
    shutil.rmtree(job / CLAIMS, ignore_errors=True)


def _last(folder: Path) -> Path | None:
    try:
        numbers = [int(name) for name in os.listdir(folder) if name.isdigit()]
    except FileNotFoundError:
        return None
    return folder / str(max(numbers)) if numbers else None


def _create(path: Path) -> bool:
    """Create a claim of this process, complete from its first moment; False if there is one."""
    content = json.dumps(_owner()) + "\n"
    draft = _draft(path.parent)
    try:
        draft.write_text(content, encoding="utf-8")
        try:
            os.link(draft, path)
        except FileExistsError:
            return draft.stat().st_nlink == 2  # NFS may repeat a request that had succeeded
        except FileNotFoundError:
            raise
        except OSError:  # a disk without hard links
            with path.open("x", encoding="utf-8") as file:
                file.write(content)
    except FileExistsError:
        return False
    finally:
        draft.unlink(missing_ok=True)
    return True


def _alive(path: Path) -> bool:
    try:
        beat = path.stat().st_mtime
        owner = _read(path)
        if beat == RELEASED:
            return False
        if owner.get("host") == _host():
            return _started(owner["pid"]) == owner["started"]
        return _time_of_disk(path.parent) - beat < STALE_SECONDS
    except OSError as error:
        if error.errno in CLEARED:
            return False
        raise


def _release(path: Path) -> None:
    with suppress(FileNotFoundError):  # cleared by another process
        os.utime(path, (RELEASED, RELEASED))


def _read(path: Path) -> dict[str, Any]:
    """The owner, or nothing where the file was torn by a crash: then its age alone counts."""
    try:
        owner: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    except ValueError:
        return {}
    return owner


def _time_of_disk(folder: Path) -> float:
    """Now by the clock that stamps files there, whatever this machine's own clock says."""
    draft = _draft(folder)
    try:
        draft.touch()
        return draft.stat().st_mtime
    finally:
        draft.unlink(missing_ok=True)


def _draft(folder: Path) -> Path:
    return folder / f".{uuid.uuid4().hex}.tmp"


def _owner() -> dict[str, Any]:
    return {"host": _host(), "pid": os.getpid(), "started": _started(os.getpid())}


@cache
def _host() -> str:
    """This machine since it was started, and the container in which its process numbers hold."""
    parts = [socket.gethostname()]
    try:
        parts.append(Path("/proc/sys/kernel/random/boot_id").read_text().strip())
        parts.append(os.readlink("/proc/self/ns/pid"))
    except OSError:
        pass  # not Linux: the name alone
    return " ".join(parts)


def _started(pid: int) -> str | None:
    """When a process of this machine began, which tells it from later ones; None if it is gone."""
    try:
        if Path("/proc/self/stat").exists():
            # After the name in brackets: state, then 18 fields more, then the start.
            fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
            return None if fields[0] in "ZX" else fields[19]
        os.kill(pid, 0)
    except (FileNotFoundError, ProcessLookupError):
        return None
    except PermissionError:
        pass  # alive, of another user
    return "unknown"
