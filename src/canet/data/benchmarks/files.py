"""Find raw files in the data root or the cache, download missing files, and verify checksums.

The data root of the user is only read. Files that are missing there are searched in the cache, and
then downloaded into it. The cache has the same layout.
"""

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from canet.data.benchmarks.dataset import RawFile
from canet.errors import CanetError
from canet.util.files import cache_dir, digest_of, sha256


@dataclass(frozen=True)
class RawFiles:
    """Verified files of a data set."""

    paths: dict[str, Path]  # path below the data root → location of the file
    digest: str  # SHA-256 of the contents of all files


@dataclass(frozen=True)
class FileStatus:
    """State of a file: present, missing or changed; `location` is None if it is missing."""

    path: str
    state: Literal["present", "missing", "changed"]
    location: Path | None


def search_roots(data_root: str | Path | None) -> list[Path]:
    """Return the folders to search: `data_root` or `CANET_DATA_ROOT`, then the cache."""
    given = data_root or os.environ.get("CANET_DATA_ROOT")
    if not given:
        return [cache_dir()]
    root = Path(given).expanduser()
    if not root.is_dir():
        raise CanetError(
            f"the data root '{root}' is not a folder: correct --data-root (CANET_DATA_ROOT)"
        )
    return [root, cache_dir()]


def find(file: RawFile, data_root: str | Path | None) -> Path | None:
    """Return the location of a file; None if it is missing."""
    candidates = [root / file.path for root in search_roots(data_root)]
    return next((path for path in candidates if path.is_file()), None)


def status(file: RawFile, data_root: str | Path | None) -> FileStatus:
    """Return the state of a file, without downloading it."""
    path = find(file, data_root)
    if path is None:
        return FileStatus(file.path, "missing", None)
    is_valid = file.sha256 is None or file.sha256 == sha256(path)
    return FileStatus(file.path, "present" if is_valid else "changed", path)


def obtain(files: Sequence[RawFile], data_root: Path | None) -> RawFiles:
    """Find all files, download missing ones, and reject files with a wrong checksum."""
    missing = [file for file in files if file.url and find(file, data_root) is None]
    if missing:
        from canet.data.benchmarks.download import download

        download(missing)
    paths, digests = {}, []
    for file in files:
        path = find(file, data_root)
        if path is None:
            raise CanetError(
                f"'{file.path}' is missing and cannot be downloaded: put it into the folder "
                "--data-root (CANET_DATA_ROOT)"
            )
        digest = sha256(path)
        if file.sha256 not in (None, digest):
            raise CanetError(
                f"checksum mismatch: '{path}' is not the published file; remove it to download it "
                "again"
            )
        paths[file.path] = path
        digests.append(digest)
    return RawFiles(paths, digest_of("\n".join(digests).encode()))
