"""Many finished runs in one small file: everything that tables, figures and reports need.

An archive is a `.tar.xz` of run folders without their weights and, unless a run scored every split
at every epoch, without its curves. Its first file, the manifest, has the SHA-256 of every other.
The same runs give the same archive, byte for byte. Only what `write_archive` writes is read: plain
files `NAME/seed-S/FILE`, each compared with the manifest before the first one is written.
"""

from __future__ import annotations

import json
import lzma
import re
import tarfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

from canet.errors import CanetError, ChecksumError, MissingFileError
from canet.store.config import RunConfig, RunStart
from canet.store.run_folder import CONFIG, METRICS, WEIGHTS, RunFolder, check_folder
from canet.store.sealed import pack_record, parse
from canet.util.files import atomic_path, digest_of, read_regular

SUFFIX = ".tar.xz"
MANIFEST = "manifest.json"
MEMBER = re.compile(r"\w[\w .,+=()-]*/seed-\d{1,10}/\w[\w-]*\.(json|safetensors)")
"""What a file in an archive may be called."""
MAX_BYTES, MAX_FILES = 2**30, 100_000
"""Of an archive when it is unpacked; the largest of ours has 3 % and 5 % of these."""
DECODER_BYTES = 2**27  # what we write takes half of that


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
    files = {}
    for folder, (config, place) in sorted(chosen.items(), key=lambda item: item[0]):
        left_out = {WEIGHTS} if config.ood_curves else {WEIGHTS, METRICS}
        for name in sorted(place.files.keys() - left_out):
            files[f"{folder}/{name}"] = place.read_bytes(name)
    packed = b"".join(_member(name, content) for name, content in _with_manifest(files).items())
    packed += bytes(2 * tarfile.BLOCKSIZE)
    _files(packed, target)  # what could not be read is not written
    with atomic_path(target) as temporary:
        temporary.write_bytes(lzma.compress(packed, preset=9))
    return len(chosen)


def unpack_archive(archive: Path, root: Path) -> None:
    """Unpack the runs that are not finished below `root` yet into their folders."""
    runs: dict[str, dict[str, bytes]] = {}
    for path, content in _files(_decompressed(archive), archive).items():
        folder, _, name = path.rpartition("/")
        runs.setdefault(folder, {})[name] = content
    for folder, files in runs.items():
        try:
            start = parse(RunStart, json.loads(files[CONFIG]), archive / folder / CONFIG)
        except (LookupError, ValueError, RecursionError) as error:
            raise _unknown(archive, f"{folder} has no {CONFIG}") from error
        check_folder(archive / folder, start.config)
    for folder, files in runs.items():
        place = RunFolder(root / folder)
        if not place.finished:
            place.write_finished(files)


@contextmanager
def runs_at(path: Path) -> Iterator[Path]:
    """A folder of runs as it is, or an archive unpacked for as long as the block lasts."""
    if not path.is_file():
        yield path
        return
    with TemporaryDirectory(prefix="canet-runs-") as folder:
        unpack_archive(path, Path(folder))
        yield Path(folder)


def _with_manifest(files: dict[str, bytes]) -> dict[str, bytes]:
    digests = {name: digest_of(content) for name, content in files.items()}
    return {MANIFEST: pack_record(digests, None), **files}


def _member(name: str, content: bytes) -> bytes:
    """A plain file in a tar."""
    return _header(name, len(content)) + content + bytes(-len(content) % tarfile.BLOCKSIZE)


def _header(name: str, size: int) -> bytes:
    member = tarfile.TarInfo(name)
    member.size = size
    return member.tobuf(tarfile.USTAR_FORMAT)


def _files(packed: bytes, archive: Path) -> dict[str, bytes]:
    """Path → content of the files in a tar that has nothing else, checked against its manifest."""
    if len(packed) > MAX_BYTES:
        raise _unknown(archive, f"it has more than {MAX_BYTES / 2**30:g} GiB")
    found: dict[str, bytes] = {}
    for name, content in _members(packed, archive):
        if name in found or not (MEMBER.fullmatch(name) or (name == MANIFEST and not found)):
            raise _unknown(archive, f"{name[:80]!r} is not a file of a run, or is in it twice")
        if len(found) > MAX_FILES:
            raise _unknown(archive, f"more than {MAX_FILES:,} files")
        found[name] = content
    manifest = found.pop(MANIFEST, b"")
    if manifest != _with_manifest(found)[MANIFEST]:
        raise ChecksumError(
            f"checksum mismatch: files of '{archive}' are missing, were added or changed, or it "
            "was written by another version of canet"
        )
    return found


def _members(packed: bytes, archive: Path) -> Iterator[tuple[str, bytes]]:
    """Name and content of each file; a header that `_header` does not write is an error."""
    at = 0
    while any(header := packed[at : at + tarfile.BLOCKSIZE]):
        try:
            member = tarfile.TarInfo.frombuf(header, "utf-8", "strict")
            plain = _header(member.name, member.size) == header
        except (tarfile.TarError, ValueError) as error:
            raise _unknown(archive, "its headers cannot be read") from error
        begin = at + tarfile.BLOCKSIZE
        content = packed[begin : begin + member.size]
        if not plain or len(content) != member.size:
            raise _unknown(archive, f"{member.name[:80]!r} is not a plain, complete file")
        yield member.name, content
        at = begin + member.size + -member.size % tarfile.BLOCKSIZE
    if any(packed[at:]):
        raise _unknown(archive, "it goes on after its end")


def _decompressed(archive: Path) -> bytes:
    """The whole content: at its end xz compares it with a checksum."""
    try:
        raw = read_regular(archive, MAX_BYTES)
        unpacker = lzma.LZMADecompressor(lzma.FORMAT_XZ, DECODER_BYTES)
        content = unpacker.decompress(raw, MAX_BYTES + 1)
    except FileNotFoundError as error:
        raise MissingFileError(
            f"no archive at '{archive}': give the file that `canet archive` wrote"
        ) from error
    except lzma.LZMAError as error:
        raise ChecksumError(
            f"checksum mismatch: '{archive}' was changed, or is not a {SUFFIX} file"
        ) from error
    if len(content) <= MAX_BYTES and (not unpacker.eof or unpacker.unused_data):
        raise ChecksumError(f"checksum mismatch: '{archive}' was cut, or something was added")
    return content


def _unknown(archive: Path, reason: str) -> CanetError:
    return CanetError(f"'{archive}' is not an archive of runs ({reason})")
