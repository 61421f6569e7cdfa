"""Archives: many finished runs in one small file, with all data for tables, figures and reports.

An archive is a `.tar.xz` of run folders without their weights. It contains the curves of a run only
if the run scored every split at every epoch. The record of each run has the SHA-256 of its files.
The same runs give the same archive, byte for byte.
"""

import io
import lzma
import tarfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

from canet.errors import CanetError, ChecksumError, MissingFileError, first_line
from canet.store.checksums import pack_record
from canet.store.run_folder import CONFIG, MARKER, METRICS, WEIGHTS, RunFolder, find_runs
from canet.util.files import atomic_path, digest_of, read_regular, sha256, write_errors

SUFFIX = ".tar.xz"
MAX_BYTES, MAX_FILES = 2**30, 100_000
"""Limits of an unpacked archive; the largest of our archives has 3 % and 5 % of them."""
TOO_LARGE = f"it has more than {MAX_BYTES / 2**30:g} GiB or {MAX_FILES:,} files"
MAX_DECODER_BYTES = 2**27  # memory limit of the decoder; our archives need half of it


def write_archive(folders: Sequence[RunFolder], target: Path) -> int:
    """Write finished runs to a file, sorted by name, and return how many; copies count once."""
    if not target.name.endswith(SUFFIX):
        raise CanetError(f"'{target}' is not a valid name of an archive: it must end in {SUFFIX}")
    chosen: dict[str, RunFolder] = {}
    for folder in folders:
        config = folder.read_config()
        chosen.setdefault(f"{config.name}/seed-{config.seed}", folder)
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w", format=tarfile.USTAR_FORMAT) as tar:
        for path, folder in sorted(chosen.items()):
            left_out = {WEIGHTS} if folder.read_config().ood_curves else {WEIGHTS, METRICS}
            files = {name: folder.read_bytes(name) for name in folder.files if name not in left_out}
            record = pack_record({name: digest_of(files[name]) for name in files}, None)
            for name, content in sorted({**files, MARKER: record}.items()):
                member = tarfile.TarInfo(f"{path}/{name}")
                member.size = len(content)
                tar.addfile(member, io.BytesIO(content))
        _check_members(tar, target)
    with atomic_path(target) as temporary:
        temporary.write_bytes(lzma.compress(packed.getvalue(), preset=9))
    return len(chosen)


def unpack_archive(archive: Path, root: Path) -> None:
    """Unpack the runs that are not finished below `root`, after all checksums were compared."""
    files: dict[Path, dict[str, bytes]] = {}
    with TemporaryDirectory(prefix="canet-runs-") as folder:
        try:
            _extract(archive, Path(folder))
            for run in find_runs(Path(folder)):
                run.read_config()  # reject the folder of another run
                files[run.path.relative_to(folder)] = {n: run.read_bytes(n) for n in run.files}
        except CanetError as error:
            raise type(error)(str(error).replace(folder, str(archive))) from error
    for path, contents in files.items():
        place = RunFolder(root / path)
        if not place.finished:
            place.write_finished(contents)


@contextmanager
def open_runs(path: Path) -> Iterator[Path]:
    """Yield a folder of runs; an archive is unpacked into a temporary one during the block."""
    if not path.is_file():
        yield path
        return
    with TemporaryDirectory(prefix="canet-runs-") as folder:
        _extract(path, Path(folder))
        yield Path(folder)


def _extract(archive: Path, folder: Path) -> None:
    """Write the files of an archive into an empty folder."""
    try:
        with (
            write_errors(folder),
            tarfile.open(fileobj=io.BytesIO(_decompressed(archive)), mode="r:") as tar,
        ):
            _check_members(tar, archive)
            tar.extractall(folder, filter="data")
    except (tarfile.TarError, OSError, ValueError) as error:
        if isinstance(error, CanetError):
            raise
        raise _invalid_archive(archive, first_line(error)) from error
    for config in folder.glob(f"*/*/{CONFIG}"):
        run = RunFolder(config.parent)
        if not run.finished:  # in the first archives, runs have no record
            run.write_record({path.name: sha256(path) for path in config.parent.iterdir()})


def _check_members(tar: tarfile.TarFile, archive: Path) -> None:
    """Reject links, folders and devices, and too many or too large files."""
    members = tar.getmembers()
    if sum(member.size for member in members) > MAX_BYTES or len(members) > MAX_FILES:
        raise _invalid_archive(archive, TOO_LARGE)
    for member in members:
        if not member.isreg():
            raise _invalid_archive(archive, f"{member.name[:80]!r} is not a regular file")


def _decompressed(archive: Path) -> bytes:
    """Return the decompressed content; xz verifies its checksum."""
    try:
        raw = read_regular(archive, MAX_BYTES)
        decoder = lzma.LZMADecompressor(lzma.FORMAT_XZ, MAX_DECODER_BYTES)
        content = decoder.decompress(raw, MAX_BYTES + 1)
        if len(content) > MAX_BYTES:
            raise _invalid_archive(archive, TOO_LARGE)
        if not decoder.eof or decoder.unused_data:
            raise lzma.LZMAError("the file is incomplete or has additional data")
    except FileNotFoundError as error:
        raise MissingFileError(
            f"the archive '{archive}' does not exist: pass a file that `canet archive` wrote"
        ) from error
    except lzma.LZMAError as error:
        raise ChecksumError(
            f"checksum mismatch: '{archive}' was changed, is incomplete or is not a {SUFFIX} file; "
            "restore it from a copy"
        ) from error
    return content


def _invalid_archive(archive: Path, reason: str) -> CanetError:
    return CanetError(
        f"'{archive}' is not an archive of runs ({reason}): pass a file that `canet archive` wrote"
    )
