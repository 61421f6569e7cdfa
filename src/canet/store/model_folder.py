"""A saved model is a folder: JSON that says what it is, and tensors beside it.

model.json                     parameters, classes, settings, versions, the files below with their
                               SHA-256, and a SHA-256 of all it says; written last
NAME-DIGEST.safetensors        tensors; the digest in the name lets a model be saved over another
                               one without a moment at which neither can be read
.lock                          empty; whoever writes holds it, readers need none
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from safetensors import SafetensorError
from safetensors.torch import load, save
from torch import Tensor

from canet.errors import CanetError
from canet.util.files import SEAL, digest_of, pack_sealed, unpack_sealed, write_bytes
from canet.util.locks import alone_in

MODEL = "model.json"
FORMAT, UNSEALED = 2, 1
"""Today's format, and that of models whose model.json has no checksum of its own."""
SUFFIX = ".safetensors"
TENSORS = re.compile(rf"[a-z]+-[0-9a-f]{{12}}{re.escape(SUFFIX)}")


def write_model(
    folder: Path, content: Mapping[str, Any], tensors: Mapping[str, Mapping[str, Tensor]]
) -> None:
    """Write a model, in place of the one that lies there; of several processes one at a time.

    Args:
        folder: Where; made where it is missing. One that holds something else is refused.
        content: What model.json tells, besides format and files.
        tensors: Name of each file → its tensors.
    """
    try:
        check_target(folder)
        with alone_in(folder, quiet=True):
            _write(folder, content, tensors)
    except OSError as error:
        raise CanetError(
            f"cannot write the model to '{folder}' ({error.strerror}): choose another folder"
        ) from None


def check_target(folder: Path) -> None:
    """Refuse a folder that holds something else than a model."""
    if folder.exists() and not folder.is_dir():
        raise CanetError(f"'{folder}' is a file: choose a folder for the model")
    if folder.is_dir() and _holds_something_else(folder):
        raise CanetError(f"'{folder}' holds other files: choose another folder for the model")


def read_model(folder: Path) -> tuple[dict[str, Any], dict[str, dict[str, Tensor]]]:
    """What `write_model` wrote, checked against its digests.

    A model that another one takes the place of while it is read is no damage: that one is read.
    """
    while True:
        which = _which(folder)
        try:
            content = _content(folder)
            files = content["files"].items()
            return content, {name: _tensors(folder, file) for name, file in files}
        except CanetError:
            if _which(folder) == which:
                raise


def damaged(folder: Path) -> CanetError:
    """The error for a model that cannot be what was saved."""
    return CanetError(f"the model at '{folder}' is damaged: save or fit it again")


def _write(
    folder: Path, content: Mapping[str, Any], tensors: Mapping[str, Mapping[str, Tensor]]
) -> None:
    """The tensors, then model.json, which names them; then no others are needed."""
    files = {}
    for name, named in tensors.items():
        raw = save({key: t.detach().cpu().contiguous() for key, t in named.items()})
        digest = digest_of(raw)
        files[name] = {"file": f"{name}-{digest[:12]}{SUFFIX}", "sha256": digest}
        write_bytes(folder / files[name]["file"], raw)
    written = {file["file"] for file in files.values()}
    sealed = pack_sealed({"format": FORMAT, **content, "files": files})
    write_bytes(folder / MODEL, sealed)
    for path in folder.iterdir():
        if TENSORS.fullmatch(path.name) and path.name not in written:
            path.unlink(missing_ok=True)


def _holds_something_else(folder: Path) -> bool:
    """Whether a folder without a model has files that no stopped save left; hidden ones may be."""
    names = [path.name for path in folder.iterdir() if not path.name.startswith(".")]
    return MODEL not in names and not all(TENSORS.fullmatch(name) for name in names)


def _which(folder: Path) -> tuple[int, int] | None:
    """What tells a model.json from one that was written later in its place."""
    try:
        found = (folder / MODEL).stat()
    except (OSError, ValueError):
        return None
    return found.st_ino, found.st_mtime_ns


def _content(folder: Path) -> dict[str, Any]:
    """What model.json says, whole and of a format that is known."""
    try:
        raw = (folder / MODEL).read_bytes()
        content = json.loads(raw)
    except (FileNotFoundError, NotADirectoryError):
        raise CanetError(
            f"no model at '{folder}': give the folder that save or --out named"
        ) from None
    except OSError as error:
        raise CanetError(f"cannot read '{folder / MODEL}' ({error.strerror})") from None
    except (ValueError, RecursionError):
        raise damaged(folder) from None
    if not isinstance(content, dict) or not isinstance(content.get("files"), dict):
        raise damaged(folder)
    if content.get("format") not in (FORMAT, UNSEALED):
        raise CanetError(
            f"'{folder}' holds a model of format {content.get('format')!r:.40}, this version reads "
            f"{FORMAT}: update canet, or save the model again"
        )
    try:
        if content["format"] == FORMAT:
            content = unpack_sealed(raw)
        elif SEAL in content:
            raise damaged(folder)
    except ValueError:
        raise damaged(folder) from None
    return content


def _tensors(folder: Path, file: Any) -> dict[str, Tensor]:
    """The tensors of one file, whose name must not lead out of the folder."""
    try:
        name, digest = file["file"], file["sha256"]
        if Path(name).name != name:
            raise damaged(folder)
        raw = (folder / name).read_bytes()
        if digest_of(raw) != digest:
            raise damaged(folder)
        tensors: dict[str, Tensor] = load(raw)
    except (KeyError, TypeError, ValueError, OSError, SafetensorError):
        raise damaged(folder) from None
    return tensors
