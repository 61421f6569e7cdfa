"""Many finished runs in one small file: all that tables, figures and reports are made of.

An archive is a `.tar.xz` of run folders without their weights and, unless a run scored every split
at every epoch, without its curves. The same runs give the same file, byte for byte.
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
from canet.files import atomic_path
from canet.training.checkpoint import CHECKPOINT, MARKER, METRICS, WEIGHTS, RunFolder

SUFFIX = ".tar.xz"


def write_archive(places: Sequence[RunFolder], target: Path) -> None:
    """Write finished runs to the file `target`, each under `NAME/seed-S`, sorted by that.

    Of several copies of a run the first is taken.
    """
    if not target.name.endswith(SUFFIX):
        raise CanetError(f"'{target}' is no name for an archive: let it end in {SUFFIX}")
    kept: dict[str, list[Path]] = {}
    for place in places:
        config = place.read_config()
        kept.setdefault(f"{config.name}/seed-{config.seed}", _kept(place, config.ood_curves))
    with (
        atomic_path(target) as temporary,
        lzma.open(temporary, "wb", preset=9) as packed,
        tarfile.open(fileobj=packed, mode="w") as archive,
    ):
        for name, files in sorted(kept.items()):
            for file in files:
                content = file.read_bytes()
                member = tarfile.TarInfo(f"{name}/{file.name}")
                member.size = len(content)
                archive.addfile(member, io.BytesIO(content))


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
    except (tarfile.TarError, lzma.LZMAError, EOFError) as error:
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


def _kept(place: RunFolder, curves: bool) -> list[Path]:
    """A run's files that an archive holds, by name."""
    left_out = {WEIGHTS, CHECKPOINT} | (set() if curves else {METRICS})
    return sorted(
        file
        for file in place.path.iterdir()
        if file.is_file() and not file.name.startswith(".") and file.name not in left_out
    )
