"""Archives: many finished runs in one small file, with all data for tables, figures and reports.

An archive is a `.tar.xz` of run folders without their weights. It contains the curves of a run only
if the run scored every split at every epoch. The first file of an archive is the manifest with the
SHA-256 of all other files. The same runs give the same archive, byte for byte. Only regular files
`NAME/seed-S/FILE` are read, and all are compared with the manifest before any file is written.
"""

from __future__ import annotations

import io
import json
import lzma
import re
import tarfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

from canet.errors import CanetError, ChecksumError, MissingFileError, first_line
from canet.store.checksums import pack_record
from canet.store.config import RunConfig, RunStart
from canet.store.run_folder import CONFIG, METRICS, WEIGHTS, RunFolder, check_folder
from canet.util.files import atomic_path, digest_of, read_regular
from canet.util.schema import parse

SUFFIX = ".tar.xz"
MANIFEST = "manifest.json"
MEMBER = re.compile(r"\w[\w .,+=()-]*/seed-\d{1,10}/\w[\w-]*\.(json|safetensors)")
"""Valid names of files in an archive."""
MAX_BYTES, MAX_FILES = 2**30, 100_000
"""Limits of an unpacked archive; the largest of our archives has 3 % and 5 % of them."""
MAX_DECODER_BYTES = 2**27
"""Memory limit of the decoder; our archives need half of it."""


def write_archive(folders: Sequence[RunFolder], target: Path) -> int:
    """Write finished runs to the file `target`, sorted by their names `NAME/seed-S`.

    Returns:
        Number of runs in the archive; copies of a run count once.
    """
    if not target.name.endswith(SUFFIX):
        raise CanetError(f"'{target}' is not a valid name of an archive: it must end in {SUFFIX}")
    chosen: dict[str, tuple[RunConfig, RunFolder]] = {}
    for folder in folders:
        config = folder.read_config()
        chosen.setdefault(f"{config.name}/seed-{config.seed}", (config, folder))
    files = {}
    for path, (config, folder) in sorted(chosen.items(), key=lambda item: item[0]):
        left_out = {WEIGHTS} if config.ood_curves else {WEIGHTS, METRICS}
        for name in sorted(folder.files.keys() - left_out):
            files[f"{path}/{name}"] = folder.read_bytes(name)
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w", format=tarfile.USTAR_FORMAT) as tar:
        for name, content in _with_manifest(files).items():
            member = tarfile.TarInfo(name)
            member.size = len(content)
            tar.addfile(member, io.BytesIO(content))
    _files(packed.getvalue(), target)  # check that the archive can be read
    with atomic_path(target) as temporary:
        temporary.write_bytes(lzma.compress(packed.getvalue(), preset=9))
    return len(chosen)


def unpack_archive(archive: Path, root: Path) -> None:
    """Unpack all runs into their folders below `root`, except runs that are finished there."""
    runs: dict[str, dict[str, bytes]] = {}
    for path, content in _files(_decompressed(archive), archive).items():
        folder, _, name = path.rpartition("/")
        runs.setdefault(folder, {})[name] = content
    for folder, files in runs.items():
        try:
            start = parse(RunStart, json.loads(files[CONFIG]), archive / folder / CONFIG)
        except (LookupError, ValueError, RecursionError) as error:
            raise _invalid_archive(archive, f"{folder} has no {CONFIG}") from error
        check_folder(archive / folder, start.config)
    for folder, files in runs.items():
        run = RunFolder(root / folder)
        if not run.finished:
            run.write_finished(files)


@contextmanager
def open_runs(path: Path) -> Iterator[Path]:
    """Yield a folder of runs; an archive is unpacked into a temporary folder during the block."""
    if not path.is_file():
        yield path
        return
    with TemporaryDirectory(prefix="canet-runs-") as folder:
        unpack_archive(path, Path(folder))
        yield Path(folder)


def _with_manifest(files: dict[str, bytes]) -> dict[str, bytes]:
    digests = {name: digest_of(content) for name, content in files.items()}
    return {MANIFEST: pack_record(digests, None), **files}


def _files(packed: bytes, archive: Path) -> dict[str, bytes]:
    """Return path and content of the files in a tar archive, compared with its manifest."""
    if len(packed) > MAX_BYTES:
        raise _invalid_archive(archive, f"it is larger than {MAX_BYTES / 2**30:g} GiB")
    found: dict[str, bytes] = {}
    try:
        with tarfile.open(fileobj=io.BytesIO(packed), mode="r:") as tar:
            for member in tar:
                name = member.name
                is_known = MEMBER.fullmatch(name) or (name == MANIFEST and not found)
                if name in found or not is_known or not member.isreg() or member.issparse():
                    raise _invalid_archive(
                        archive, f"{name[:80]!r} is not a file of a run, or occurs twice"
                    )
                if len(found) > MAX_FILES:
                    raise _invalid_archive(archive, f"it has more than {MAX_FILES:,} files")
                found[name] = tar.extractfile(member).read()  # type: ignore[union-attr]
    except (tarfile.TarError, ValueError) as error:
        raise _invalid_archive(archive, first_line(error)) from error
    manifest = found.pop(MANIFEST, b"")
    if manifest != _with_manifest(found)[MANIFEST]:
        raise ChecksumError(
            f"checksum mismatch: files of '{archive}' are missing, added or changed, or another "
            "version of canet wrote it; restore it from a copy, or write it again with canet "
            "archive"
        )
    return found


def _decompressed(archive: Path) -> bytes:
    """Return the decompressed content; xz verifies its checksum."""
    try:
        raw = read_regular(archive, MAX_BYTES)
        decoder = lzma.LZMADecompressor(lzma.FORMAT_XZ, MAX_DECODER_BYTES)
        content = decoder.decompress(raw, MAX_BYTES + 1)
        if len(content) <= MAX_BYTES and (not decoder.eof or decoder.unused_data):
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
