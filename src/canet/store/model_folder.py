"""A saved model is a folder: JSON that describes the model, and its tensors.

model.json                     the record: parameters, classes, settings, versions, and the SHA-256
                               of the files below; written last
NAME-DIGEST.safetensors        tensors; with the digest in the name, a model can be saved over
                               another one without a moment at which neither can be read
.lock                          empty; a writer holds it, readers do not need it
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, ClassVar

from torch import Tensor

from canet.errors import CanetError, MissingFileError
from canet.methods.base import Findings
from canet.store.result import Candidate
from canet.store.sealed import CONTENT, FILES, SealedFolder, parse
from canet.store.tensors import pack
from canet.util.files import digest_of, write_bytes
from canet.util.locks import exclusive_lock

MODEL = "model.json"
CARD = "MODEL_CARD.md"
TENSORS = re.compile(r"[a-z]+-[0-9a-f]{12}\.safetensors")


@dataclass(frozen=True)
class ModelFile:
    """The content of model.json.

    Args:
        params: The classifier's parameters by name; those of `class_weight` as pairs.
        classes: Labels of the classes, ascending.
        num_features: D.
        num_environment_labels: Environments that the method was made for.
        settings: All settings of the method by name.
        scores: `train`, `valid` and perhaps `test`, between 0 and 1.
        history: Loss and validation score of every epoch.
        selected_epoch: Counted from 1.
        environments_seen: Names of the environment labels that the method used; None if none.
        findings: What the method found in the training nodes.
        encoding: How columns of tables became features; None for a graph from arrays.
        versions: Of canet, Python and torch.
        candidates: The models that `auto` tried; empty for other methods.
        data: Size and digest of the training data.
        diagnosis: The text of a diagnosis, or None.
    """

    __pydantic_config__: ClassVar = {"extra": "forbid"}

    params: dict[str, Any]
    classes: list[bool] | list[int] | list[str]
    num_features: int
    num_environment_labels: int
    settings: dict[str, Any]
    scores: dict[str, float]
    history: dict[str, list[float]]
    selected_epoch: int
    environments_seen: list[str] | None
    findings: Findings | None
    encoding: dict[str, Any] | None
    versions: dict[str, str]
    data: dict[str, Any]
    diagnosis: str | None = None
    candidates: list[Candidate] = field(default_factory=list)


class ModelFolder(SealedFolder):
    """Reads and writes one saved model."""

    RECORD = MODEL


def write_model(
    folder: Path, model: ModelFile, tensors: Mapping[str, Mapping[str, Tensor]], card: str
) -> None:
    """Write a model, and replace the one in the folder if there is one.

    Args:
        folder: Created if missing. A folder with other files is rejected.
        model: The content of model.json.
        tensors: Name of each file → its tensors.
        card: The text of MODEL_CARD.md, which has no checksum: people may add to it.
    """
    try:
        check_target(folder)
        with exclusive_lock(folder, quiet=True):
            files = {}
            for name, named in tensors.items():
                raw = pack(named)
                digest = digest_of(raw)
                file = f"{name}-{digest[:12]}.safetensors"
                files[file] = write_bytes(folder / file, raw)
            write_bytes(folder / CARD, card.encode())
            ModelFolder(folder).write_record(files, asdict(model))
            for path in folder.iterdir():
                if TENSORS.fullmatch(path.name) and path.name not in files:
                    path.unlink(missing_ok=True)
    except OSError as error:
        raise CanetError(
            f"cannot write the model to '{folder}' ({error.strerror}): choose another folder"
        ) from error


def check_target(folder: Path) -> None:
    """Reject a folder that holds something else than a model."""
    if folder.exists() and not folder.is_dir():
        raise CanetError(f"'{folder}' is a file: choose a folder for the model")
    names = [path.name for path in folder.iterdir()] if folder.is_dir() else []
    others = [name for name in names if not (TENSORS.fullmatch(name) or name.startswith("."))]
    if others and MODEL not in names:
        raise CanetError(f"'{folder}' holds other files: choose another folder for the model")


def read_model(folder: Path) -> tuple[ModelFile, dict[str, dict[str, Tensor]]]:
    """What `write_model` wrote, checked against its checksums.

    If another model is saved while this one is read, that one is read.
    """
    place = ModelFolder(folder)
    if not place.finished:
        raise MissingFileError(f"no model at '{folder}': give the folder that save or --out named")
    while True:
        record = place.read_record()
        try:
            tensors = {name.split("-")[0]: place.read_tensors(name) for name in record[FILES]}
            return parse(ModelFile, record[CONTENT], folder / MODEL), tensors
        except CanetError:
            if place.read_record() == record:
                raise
