"""Many finished runs in one small file: everything that tables, figures and reports need.

An archive is a `.tar.xz` of run folders without their weights and, unless a run scored every split
at every epoch, without its curves. xz keeps a checksum of the whole; each run gets its record again
when it is unpacked. The same runs give the same file, byte for byte.
"""

from __future__ import annotations

import io
import lzma
import tarfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path, PurePosixPath
from tempfile import TemporaryDirectory

from canet.errors import CanetError, ChecksumError, MissingFileError
from canet.store.config import RunConfig
from canet.store.run_folder import METRICS, WEIGHTS, RunFolder
from canet.util.files import atomic_path, sha256

SUFFIX = ".tar.xz"


def write_archive(places: Sequence[RunFolder], target: Path) -> int:
    """Write finished runs to the file `target`, each under `NAME/seed-S`, sorted by that.

    Returns:
        Number of runs in it; only the first of several copies of a run is taken.
    """
    if not target.name.endswith(SUFFIX):
        raise CanetError(f"'{target}' is not a name for an archive: it must end in {SUFFIX}")
    chosen: dict[str, tuple[RunConfig, RunFolder]] = {}
    for place in places:
        config = place.read_config()
        chosen.setdefault(f"{config.name}/seed-{config.seed}", (config, place))
    with (
        atomic_path(target) as temporary,
        lzma.open(temporary, "wb", preset=9) as packed,
        tarfile.open(fileobj=packed, mode="w") as archive,
    ):
        for folder, (config, place) in sorted(chosen.items(), key=lambda item: item[0]):
            left_out = {WEIGHTS} if config.ood_curves else {WEIGHTS, METRICS}
            for name in sorted(place.files.keys() - left_out):
                content = place.read_bytes(name)
                member = tarfile.TarInfo(f"{folder}/{name}")
                member.size = len(content)
                archive.addfile(member, io.BytesIO(content))
    return len(chosen)


def unpack_archive(archive: Path, root: Path) -> None:
    """Unpack the runs that are not finished below `root` yet into their folders."""
    try:
        with tarfile.open(fileobj=io.BytesIO(_unpacked(archive))) as packed:
            runs: dict[PurePosixPath, list[tarfile.TarInfo]] = {}
            for member in packed.getmembers():
                if member.isfile():  # no links, so that checking the names is enough
                    safe = tarfile.data_filter(member, str(root))
                    runs.setdefault(PurePosixPath(safe.name).parent, []).append(safe)
            for folder, members in runs.items():
                place = RunFolder(root / folder)
                if not place.finished:
                    packed.extractall(root, members, filter="fully_trusted")
                    names = [PurePosixPath(member.name).name for member in members]
                    place.write_record({name: sha256(place.path / name) for name in names})
    except tarfile.TarError as error:
        raise CanetError(f"'{archive}' is not an archive of runs ({error})") from error


@contextmanager
def runs_at(path: Path) -> Iterator[Path]:
    """A folder of runs as it is, or an archive unpacked for as long as the block lasts."""
    if not path.is_file():
        yield path
        return
    with TemporaryDirectory(prefix="canet-runs-") as folder:
        unpack_archive(path, Path(folder))
        yield Path(folder)


def _unpacked(archive: Path) -> bytes:
    """The whole content: at its end xz compares it with the checksum."""
    try:
        with lzma.open(archive) as packed:
            return packed.read()
    except FileNotFoundError as error:
        raise MissingFileError(
            f"no archive at '{archive}': give the file that `canet archive` wrote"
        ) from error
    except (lzma.LZMAError, EOFError) as error:
        raise ChecksumError(
            f"checksum mismatch: '{archive}' was cut or changed, or is not a {SUFFIX} file"
        ) from error
