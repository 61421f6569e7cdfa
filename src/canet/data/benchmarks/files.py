"""Raw files: found below the data root or the cache, else downloaded into the cache; verified.

A data root that the user gives is only read. What is missing there is looked up in, and downloaded
into, the cache folder, which has the same layout.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from canet.data.benchmarks.dataset import RawFile
from canet.errors import CanetError
from canet.util.files import cache_dir, sha256


@dataclass(frozen=True)
class RawFiles:
    """Verified files of a data set."""

    paths: dict[str, Path]  # path below the data root → where the file is
    digest: str  # SHA-256 over the contents of all: the identity of what is read from them


@dataclass(frozen=True)
class FileStatus:
    """Whether a file is there and has the published content; `location` is None where missing."""

    path: str
    state: Literal["present", "missing", "changed"]
    location: Path | None


def search_roots(data_root: Path | None) -> list[Path]:
    """Folders to look in: `data_root` or `CANET_DATA_ROOT`, then the cache."""
    given = data_root or os.environ.get("CANET_DATA_ROOT")
    if not given:
        return [cache_dir()]
    root = Path(given).expanduser()
    if not root.is_dir():
        raise CanetError(f"data root '{root}' is not a folder: correct --data-root/CANET_DATA_ROOT")
    return [root, cache_dir()]


def find(file: RawFile, data_root: Path | None) -> Path | None:
    """Where `file` is, or None."""
    places = [root / file.path for root in search_roots(data_root)]
    return next((place for place in places if place.is_file()), None)


def status(file: RawFile, data_root: Path | None) -> FileStatus:
    """State of `file` now; nothing is downloaded or written."""
    path = find(file, data_root)
    if path is None:
        return FileStatus(file.path, "missing", None)
    known = file.sha256 is None or file.sha256 == sha256(path)
    return FileStatus(file.path, "present" if known else "changed", path)


def obtain(files: Sequence[RawFile], data_root: Path | None) -> RawFiles:
    """Find every file, download what is missing, and reject what is not the published file."""
    missing = [file for file in files if file.url and find(file, data_root) is None]
    if missing:
        from canet.data.benchmarks.download import download

        download(missing)
    paths, digests = {}, []
    for file in files:
        path = find(file, data_root)
        if path is None:
            raise CanetError(
                f"'{file.path}' is missing and has no address to download it from: place it below "
                "--data-root/CANET_DATA_ROOT"
            )
        digest = sha256(path)
        if file.sha256 not in (None, digest):
            raise CanetError(
                f"checksum mismatch: '{path}' is not the published file; remove it, and it is "
                "downloaded again"
            )
        paths[file.path] = path
        digests.append(digest)
    return RawFiles(paths, hashlib.sha256("\n".join(digests).encode()).hexdigest())
