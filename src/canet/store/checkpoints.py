"""Checkpoints: states of an unfinished run, each in a file whose name holds its checksum.

A file is named `checkpoint-EPOCH-DIGEST.safetensors` and is written atomically. The last two are
kept: if the newest does not match its checksum, the run resumes from the one before.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

from safetensors.torch import load
from torch import Tensor

from canet.errors import CanetError
from canet.store.sealed import mismatch
from canet.store.tensors import pack
from canet.util.files import digest_of, write_bytes

NAME = re.compile(r"checkpoint-(\d+)-([0-9a-f]{16})\.safetensors")
KEPT = 2


def save_checkpoint(folder: Path, tensors: Mapping[str, Tensor]) -> None:
    """Write a checkpoint, and remove all but the last two."""
    content = pack(tensors)
    name = f"checkpoint-{int(tensors['epoch'])}-{digest_of(content)[:16]}.safetensors"
    write_bytes(folder / name, content)
    for old in saved_checkpoints(folder)[KEPT:]:
        old.unlink(missing_ok=True)


def saved_checkpoints(folder: Path) -> list[Path]:
    """The checkpoints of a folder, the last epoch first."""
    found = {path: NAME.fullmatch(path.name) for path in folder.glob("checkpoint-*")}
    epochs = {path: int(match[1]) for path, match in found.items() if match}
    return sorted(epochs, key=lambda path: (-epochs[path], path.name))


def read_checkpoint(path: Path) -> dict[str, Tensor]:
    """The tensors of a checkpoint, checked against the digest in its name."""
    match = NAME.fullmatch(path.name)
    try:
        content = path.read_bytes()
    except OSError as error:
        raise CanetError(f"cannot read '{path}' ({error.strerror})") from error
    if not match or digest_of(content)[:16] != match[2]:
        raise mismatch(path)
    tensors: dict[str, Tensor] = load(content)
    return tensors


def remove_checkpoints(folder: Path) -> None:
    for path in saved_checkpoints(folder):
        path.unlink(missing_ok=True)
