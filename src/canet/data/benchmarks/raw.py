"""Raw files: found below the data root or the cache, else downloaded into the cache; verified.

A data root that the user gives is only ever read. Whatever is missing there is looked up in, and
downloaded into, the cache folder, which has the same layout.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from canet.data.benchmarks import sources
from canet.data.benchmarks.sources import Known, RawFile
from canet.errors import CanetError
from canet.util.files import cache_dir, read_json, sha256, write_json

CHECKSUMS = "checksums.json"
"""In each data set's folder of the cache: the SHA-256 at first use of files not known to us."""


@dataclass(frozen=True)
class RawFiles:
    """Verified files of a data set.

    Args:
        paths: Path below the data root → where the file is.
        digest: SHA-256 over the contents of all of them: the identity of what is read from them.
    """

    paths: dict[str, Path]
    digest: str


@dataclass(frozen=True)
class FileStatus:
    """Whether a file is there and is what it should be; `location` is None where missing."""

    path: str
    state: Literal["present", "missing", "damaged"]
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


def obtain(files: Sequence[RawFile], data_root: Path | None) -> RawFiles:
    """Find every file, download what is missing, and refuse what is damaged."""
    _download_missing(files, data_root)
    paths, digests = {}, []
    for file in files:
        path = find(file, data_root)
        if path is None:
            raise CanetError(
                f"'{file.path}' is missing and has no address to download it from: place it below "
                "--data-root/CANET_DATA_ROOT"
            )
        paths[file.path] = path
        digests.append(_verified(file, path))
    return RawFiles(paths, hashlib.sha256("\n".join(digests).encode()).hexdigest())


def status(file: RawFile, data_root: Path | None) -> FileStatus:
    """State of `file` now; nothing is downloaded or written."""
    path = find(file, data_root)
    if path is None:
        return FileStatus(file.path, "missing", None)
    expected = _expected(file, path)
    intact = expected is None or (
        path.stat().st_size == expected.size and sha256(path) == expected.sha256
    )
    return FileStatus(file.path, "present" if intact else "damaged", path)


def _download_missing(files: Sequence[RawFile], data_root: Path | None) -> None:
    """Fetch what no folder has, one process at a time: whoever waited finds the other's files."""
    missing = [file for file in files if find(file, data_root) is None and file.url is not None]
    if not missing:
        return
    from canet.data.benchmarks.download import downloading_into

    with downloading_into(_dataset_folder(missing[0], cache_dir() / missing[0].path)):
        _download(file for file in missing if find(file, data_root) is None)


def _download(files: Iterable[RawFile]) -> None:
    """Fetch files into the cache, each archive once for all of its members."""
    from canet.data.benchmarks.download import Member, download, download_members

    archives: dict[str, list[RawFile]] = {}
    for file in files:
        if file.url is not None and file.members:
            archives.setdefault(file.url, []).append(file)
        elif file.url is not None:
            download(file.url, cache_dir() / file.path, sources.KNOWN.get(file.path), file.path)
    for url, held in archives.items():
        archive = _dataset_folder(held[0], cache_dir() / held[0].path) / url.rpartition("/")[2]
        members = [
            Member(cache_dir() / file.path, file.members, sources.KNOWN.get(file.path))
            for file in held
        ]
        others = f" and {len(held) - 1} more of its files" if len(held) > 1 else ""
        download_members(url, archive, members, f"{held[0].path}{others}")


def _verified(file: RawFile, path: Path) -> str:
    """SHA-256 of `path` once it is known to be right; in the cache, recorded at first use."""
    expected, digest = _expected(file, path), sha256(path)
    if expected is None:
        if path == cache_dir() / file.path:
            _record(file, path, digest)
    elif digest != expected.sha256:
        raise CanetError(
            f"'{path}' is damaged (its SHA-256 is not the known one): remove it, and it is "
            "downloaded again"
        )
    return digest


def _expected(file: RawFile, path: Path) -> Known | None:
    """What `path` must be: the published file, or the one recorded at first use."""
    if file.path in sources.KNOWN:
        return sources.KNOWN[file.path]
    return _recorded(_dataset_folder(file, path)).get(file.path)


def _record(file: RawFile, path: Path, digest: str) -> None:
    from canet.data.benchmarks.download import downloading_into

    folder = _dataset_folder(file, path)
    entry = Known(path.stat().st_size, digest)
    try:
        with downloading_into(folder):
            entries = {**_recorded(folder), file.path: entry}
            content = {name: known._asdict() for name, known in entries.items()}
            write_json(folder / CHECKSUMS, content)
    except (CanetError, OSError):
        return  # a read-only cache holds files but no record of them


def _recorded(folder: Path) -> dict[str, Known]:
    """What was recorded at first use; nothing of a record that is damaged."""
    try:
        content = read_json(folder / CHECKSUMS)
        return {name: Known(int(e["size"]), str(e["sha256"])) for name, e in content.items()}
    except (OSError, ValueError, TypeError, KeyError, AttributeError, RecursionError):
        return {}


def _dataset_folder(file: RawFile, path: Path) -> Path:
    """The folder of the data set that holds `path`, such as ROOT/twitch."""
    parts = Path(file.path).parts
    return path.parents[len(parts) - 2]
