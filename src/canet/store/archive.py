"""Many finished runs in one small file: all that tables, figures and reports are made of.

An archive is a `.tar.xz` of run folders without their weights and, unless a run scored every split
at every epoch, without its curves. What is kept has the checksums that it had; a damaged file is
refused. The same runs give the same file, byte for byte.
"""

from __future__ import annotations

import io
import lzma
import tarfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path, PurePosixPath
from tempfile import TemporaryDirectory

from canet.errors import CanetError
from canet.store.config import grouped
from canet.store.record import MARKER, pack_record
from canet.store.run_folder import METRICS, WEIGHTS, RunFolder
from canet.store.states import is_state
from canet.util.files import atomic_path

SUFFIX = ".tar.xz"
DAMAGE = (
    *(tarfile.TarError, lzma.LZMAError, EOFError),
    *(ValueError, ArithmeticError, LookupError, RecursionError),
)
"""What reading a damaged or hostile archive ends in: tarfile checks few of the numbers in it."""


def write_archive(places: Sequence[RunFolder], target: Path) -> int:
    """Write finished runs to the file `target`, each under `NAME/seed-S`, sorted by that.

    Returns:
        Number of runs in it: of several copies of a run the first is taken.
    """
    if not target.name.endswith(SUFFIX):
        raise CanetError(f"'{target}' is no name for an archive: let it end in {SUFFIX}")
    configs = [(place.read_config(), place) for place in places]
    groups = grouped((config, (config, place)) for config, place in configs)
    kept = {
        f"{config.name}/seed-{seed}": (place, _kept(place, config.ood_curves))
        for group in groups
        for seed, (config, place) in group.items()
    }
    with (
        atomic_path(target) as temporary,
        lzma.open(temporary, "wb", preset=9) as packed,
        tarfile.open(fileobj=packed, mode="w") as archive,
    ):
        for folder, (place, names) in sorted(kept.items(), key=lambda item: item[0]):
            for name in names:
                content = _content(place, name, names)
                member = tarfile.TarInfo(f"{folder}/{name}")
                member.size = len(content)
                archive.addfile(member, io.BytesIO(content))
    return len(kept)


def unpack_archive(archive: Path, root: Path) -> None:
    """Unpack the runs that are not finished below `root` yet into their folders."""
    try:
        with tarfile.open(archive, "r:xz") as packed:
            members = packed.getmembers()
            folders = {str(PurePosixPath(member.name).parent) for member in members}
            known = {name for name in folders if RunFolder(root / name).finished}
            wanted = [m for m in members if str(PurePosixPath(m.name).parent) not in known]
            # A marker comes last: what a killed process left half unpacked is no finished run.
            wanted.sort(key=lambda member: PurePosixPath(member.name).name == MARKER)
            packed.extractall(root, wanted, filter="data")
    except FileNotFoundError:
        raise CanetError(
            f"no archive at '{archive}': give the file that `canet archive` wrote"
        ) from None
    except DAMAGE as error:
        raise CanetError(
            f"'{archive}' is not an archive of runs, or is damaged ({error})"
        ) from None


@contextmanager
def runs_at(path: Path) -> Iterator[Path]:
    """A folder of runs as it is, or an archive unpacked for as long as the block lasts."""
    if not path.is_file():
        yield path
        return
    with TemporaryDirectory(prefix="canet-runs-") as folder:
        unpack_archive(path, Path(folder))
        yield Path(folder)


def _kept(place: RunFolder, curves: bool) -> list[str]:
    """Names of a run's files that an archive holds, in their order."""
    left_out = {WEIGHTS} | (set() if curves else {METRICS})
    return sorted(
        file.name
        for file in place.path.iterdir()
        if file.is_file()
        and not file.name.startswith(".")
        and file.name not in left_out
        and not is_state(file.name)
    )


def _content(place: RunFolder, name: str, names: Sequence[str]) -> bytes:
    """A file as the archive holds it; the record is that of the files that are kept."""
    record = place.read_record() if name == MARKER else None
    if record is None:
        return place.read_bytes(name)
    return pack_record({kept: digest for kept, digest in record.items() if kept in names})
