"""Downloads into the cache (pooch); only complete and verified files are moved there."""

import shutil
import sys
import zipfile
import zlib
from collections.abc import Sequence
from pathlib import Path

import pooch

from canet.data.benchmarks.dataset import RawFile
from canet.errors import CanetError
from canet.util.files import cache_dir, sha256
from canet.util.locks import exclusive_lock

TIMEOUT = 60.0  # seconds without data from the server
CHUNK = 1 << 18  # bytes


def download(files: Sequence[RawFile]) -> None:
    """Download files into the cache; an archive is downloaded once for all of its members.

    A lock lets one process at a time download a data set. The next process finds the files.
    """
    by_url: dict[str, list[RawFile]] = {}
    for file in files:
        assert file.url is not None
        by_url.setdefault(file.url, []).append(file)
    for url, group in by_url.items():
        folder = cache_dir() / Path(group[0].path).parts[0]
        try:
            with exclusive_lock(folder):
                missing = [file for file in group if not (cache_dir() / file.path).is_file()]
                if missing:
                    _fetch(url, missing, folder / ".download")
        except (OSError, EOFError, RuntimeError, zipfile.BadZipFile, zlib.error) as error:
            raise CanetError(
                f"cannot download {url} into '{folder}' ({' '.join(str(error).split())}): try "
                "again, set CANET_CACHE to another folder, or put the file "
                f"'{group[0].path}' into the folder --data-root (CANET_DATA_ROOT)"
            ) from error


def _fetch(url: str, files: Sequence[RawFile], scratch: Path) -> None:
    """Download one address into the temporary folder `scratch`; move its files into the cache."""
    shutil.rmtree(scratch, ignore_errors=True)
    pooch.get_logger().setLevel("WARNING")
    packed = bool(files[0].members)
    on_terminal = bool(sys.stderr and sys.stderr.isatty())
    try:
        pooch.retrieve(
            url,
            known_hash=None,  # the checksum of an archive is unknown; its files are verified below
            fname="file",
            path=scratch,
            processor=pooch.Unzip() if packed else None,
            downloader=pooch.HTTPDownloader(on_terminal, CHUNK, timeout=TIMEOUT),
        )
        for file in files:
            names = [f"file.unzip/{member}" for member in file.members] if packed else ["file"]
            found = next((p for name in names if (p := scratch / name).is_file()), None)
            if found is None or file.sha256 not in (None, sha256(found)):
                problem = "missing file" if found is None else "checksum mismatch"
                raise CanetError(
                    f"{problem}: the download from {url} is not the published one; try again, or "
                    f"put the file '{file.path}' into the folder --data-root (CANET_DATA_ROOT)"
                )
            target = cache_dir() / file.path
            target.parent.mkdir(parents=True, exist_ok=True)
            found.replace(target)
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
