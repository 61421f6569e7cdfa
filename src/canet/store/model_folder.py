"""Model folders: a saved model as JSON and tensors.

model.json                     the record: parameters, classes, settings, versions, and the SHA-256
                               of the tensor files; written last
NAME-DIGEST.safetensors        tensors; because of the digest in the name, one of two models can
                               always be read while the second replaces the first
MODEL_CARD.md                  description of the model for people
.lock                          empty; locked by a writer, not needed by readers
"""

import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, ClassVar

from torch import Tensor

from canet.data.graph_files.encoding import Encoding, Roles
from canet.errors import CanetError, MissingFileError, VersionError
from canet.methods.base import Findings
from canet.scoring.calibration import Calibration
from canet.store.checksums import CONTENT, FILES, ChecksummedFolder
from canet.store.result import Candidate
from canet.store.tensors import pack
from canet.util.files import digest_of, write_bytes
from canet.util.locks import exclusive_lock
from canet.util.schema import parse

MODEL = "model.json"
CARD = "MODEL_CARD.md"
WEIGHTS, REFERENCE = "weights", "reference"  # beginnings of the names of the tensor files
TENSORS = re.compile(r"[a-z]+-[0-9a-f]{12}\.safetensors")


@dataclass(frozen=True)
class ModelFile:
    """The content of model.json; most entries are attributes of `NodeClassifier`."""

    __pydantic_config__: ClassVar = {"extra": "forbid"}

    params: dict[str, Any]  # parameters of the classifier by name; `class_weight` as pairs
    classes: list[bool] | list[int] | list[str]
    num_features: int  # number of features D
    model: dict[str, Any]  # the trained model apart from its tensors
    settings: dict[str, Any]
    scores: dict[str, float]
    baselines: dict[str, float]
    history: dict[str, list[float]]
    selected_epoch: int
    environments_seen: list[str] | None
    findings: Findings | None
    encoding: Encoding | None
    left_out: list[int]
    versions: dict[str, str]  # versions of canet, Python and torch
    data: dict[str, int | str]
    both_ways: bool  # whether edges are used in both directions
    array_names: Roles = field(default_factory=Roles)  # of a file with other names than PyG
    diagnosis: str | None = None
    calibration: Calibration = field(default_factory=Calibration)
    candidates: list[Candidate] = field(default_factory=list)


class ModelFolder(ChecksummedFolder):
    """Reads and writes one saved model."""

    RECORD = MODEL


def write_model(
    folder: Path,
    model: ModelFile,
    tensors: Mapping[str, Mapping[str, Tensor]],
    card: str,
    overwrite: bool = True,
) -> None:
    """Write a model, or replace one if `overwrite`; its card has no checksum: it may be edited."""
    try:
        check_target(folder, overwrite)
        with exclusive_lock(folder, quiet=True):
            files = {}
            for name, named in tensors.items():
                raw = pack(named)
                digest = digest_of(raw)
                file = f"{name}-{digest[:12]}.safetensors"
                files[file] = write_bytes(folder / file, raw)
            ModelFolder(folder).write_record(files, asdict(model))
            write_bytes(folder / CARD, card.encode())
            for path in folder.iterdir():
                if TENSORS.fullmatch(path.name) and path.name not in files:
                    path.unlink(missing_ok=True)
    except OSError as error:
        raise CanetError(
            f"cannot write the model to '{folder}' ({error.strerror}): choose another folder"
        ) from error


def check_target(folder: Path, overwrite: bool = True) -> None:
    """Reject a file, a folder with other files and, unless `overwrite`, a folder with a model."""
    if folder.exists() and not folder.is_dir():
        raise CanetError(f"'{folder}' is a file: choose a folder for the model")
    names = [path.name for path in folder.iterdir()] if folder.is_dir() else []
    others = [
        name
        for name in names
        if not (TENSORS.fullmatch(name) or name == CARD or name.startswith("."))
    ]
    if MODEL in names and not overwrite:
        raise CanetError(
            f"'{folder}' already contains a model: choose another, or overwrite=True (--overwrite)"
        )
    if others and MODEL not in names:
        raise CanetError(
            f"'{folder}' contains other files, such as '{others[0]}': choose an empty folder"
        )


def read_model(folder: Path) -> tuple[ModelFile, dict[str, dict[str, Tensor]]]:
    """Read a model and verify its checksums; if it is replaced meanwhile, the new one is read."""
    saved = ModelFolder(folder)
    if not saved.finished:
        raise MissingFileError(
            f"'{folder}' contains no model: pass the folder that model.save() or canet fit --out "
            "wrote (on the command line, the model comes before the graph)"
        )
    while True:
        record = saved.read_record()
        try:
            model = parse(ModelFile, record[CONTENT], folder / MODEL)
            names = {name.partition("-")[0]: name for name in record[FILES]}
            if WEIGHTS not in names or not all(map(TENSORS.fullmatch, names.values())):
                raise VersionError(f"'{folder / MODEL}' must name the file of the {WEIGHTS}")
            return model, {kind: saved.read_tensors(name) for kind, name in names.items()}
        except CanetError:
            if saved.read_record() == record:
                raise
