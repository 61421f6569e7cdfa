"""Files that are either complete or absent: atomic writes, checksums, and where our cache is."""

from __future__ import annotations

import glob
import hashlib
import json
import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any


def cache_dir() -> Path:
    """Folder for downloads and processed copies: `CANET_CACHE`, or `~/.cache/canet`."""
    return Path(os.environ.get("CANET_CACHE") or Path.home() / ".cache" / "canet")


@contextmanager
def atomic_path(path: Path) -> Iterator[Path]:
    """Yield a temporary path beside `path` and move it into place when the block succeeds.

    A reader sees the old file or the new one, never a part; a failed block leaves nothing, and what
    a killed process left is gone with the next write.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    prefix = f".{path.name}.{socket.gethostname()}."
    _clear_leftovers(path.parent, prefix)
    temporary = path.with_name(f"{prefix}{os.getpid()}.tmp")
    try:
        yield temporary
        with temporary.open("rb") as file:
            os.fsync(file.fileno())
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)


def _clear_leftovers(folder: Path, prefix: str) -> None:
    """Remove the temporaries with this prefix whose process is gone, where /proc can tell."""
    if Path("/proc/self").exists():
        for leftover in folder.glob(f"{glob.escape(prefix)}*.tmp"):
            pid = leftover.name.removeprefix(prefix).removesuffix(".tmp")
            if pid.isdigit() and not Path("/proc", pid).exists():
                leftover.unlink(missing_ok=True)


def write_json(path: Path, content: Any) -> None:
    """Write `content` as indented JSON, atomically."""
    with atomic_path(path) as temporary:
        temporary.write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")


def read_json(path: Path) -> Any:
    return json.loads(path.read_text(encoding="utf-8"))


def sha256(path: Path) -> str:
    """SHA-256 of a file's content, in hexadecimal."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def digest_of(content: bytes) -> str:
    """SHA-256 of some bytes, in hexadecimal."""
    return hashlib.sha256(content).hexdigest()
