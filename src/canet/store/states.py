"""Checkpoints: states of an unfinished run, each in a file whose name holds its checksum.

A file is named `checkpoint-EPOCH-DIGEST.safetensors` and appears in one go, so that one whose
content is not what its name says was damaged later. The last two are kept: if the newest is
damaged, the run goes on from the one before.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

from torch import Tensor

from canet.errors import CanetError
from canet.store.tensors import pack, unpack
from canet.util.files import digest_of, write_bytes

START, SUFFIX = "checkpoint-", ".safetensors"
NAME = re.compile(rf"{START}(\d+)-([0-9a-f]{{16}}){re.escape(SUFFIX)}")
KEPT = 2


def save_state(folder: Path, tensors: Mapping[str, Tensor]) -> None:
    """Write a state, and remove all but the last two."""
    content = pack(tensors)
    epoch = int(tensors["epoch"])
    write_bytes(folder / f"{START}{epoch}-{digest_of(content)[:16]}{SUFFIX}", content)
    for old in saved_states(folder)[KEPT:]:
        old.unlink(missing_ok=True)


def saved_states(folder: Path) -> list[Path]:
    """The states of a folder, the last epoch first."""
    found = {path: NAME.fullmatch(path.name) for path in folder.glob(f"{START}*{SUFFIX}")}
    epochs = {path: int(match[1]) for path, match in found.items() if match}
    return sorted(epochs, key=lambda path: (-epochs[path], path.name))


def read_state(path: Path) -> dict[str, Tensor]:
    """The tensors of a state that is what its name says."""
    match = NAME.fullmatch(path.name)
    try:
        content = path.read_bytes()
    except OSError as error:
        raise CanetError(f"'{path}' cannot be read ({error.strerror})") from None
    if not match or digest_of(content)[:16] != match[2]:
        raise CanetError(f"'{path}' is damaged")
    return unpack(content, path)


def remove_states(folder: Path) -> None:
    """Remove every state, those of earlier versions too."""
    for path in [*folder.glob(f"{START}*{SUFFIX}"), folder / f"checkpoint{SUFFIX}"]:
        path.unlink(missing_ok=True)


def is_state(name: str) -> bool:
    """Whether a file of a run holds a state."""
    return name.startswith("checkpoint") and name.endswith(SUFFIX)
