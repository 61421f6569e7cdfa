"""Saved models whose checksums are right and whose content is wrong."""

from __future__ import annotations

from collections.abc import Callable
from functools import reduce
from operator import getitem
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from canet.store.checksums import CONTENT, FILES
from canet.store.model_folder import ModelFolder
from canet.store.tensors import pack
from canet.util.files import digest_of

Tensors = dict[str, Tensor]


class Sealed:
    """The content of a model folder, to be changed and sealed again with valid checksums.

    `json` is the content of model.json, `weights` and `reference` the tensors, `parts` those that
    are written, `bytes` replaces them, and `files` are more file names and checksums of the record.
    """

    def __init__(self, folder: Path) -> None:
        place = ModelFolder(folder)
        record = place.read_record()
        read = {name.split("-")[0]: place.read_tensors(name) for name in record[FILES]}
        self.json: Any = record[CONTENT]
        self.weights, self.reference = read["weights"], read["reference"]
        self.files: dict[str, Any] = {}
        self.bytes: dict[str, bytes] = {}
        self.parts = ["weights", "reference"]

    def write(self, folder: Path) -> None:
        """Write the folder of a model with this content."""
        folder.mkdir()
        files = {}
        for name in self.parts:
            raw = self.bytes.get(name) or pack(getattr(self, name))
            file = f"{name}-{digest_of(raw)[:12]}.safetensors"
            (folder / file).write_bytes(raw)
            files[file] = digest_of(raw)
        ModelFolder(folder).write_record(files | self.files, self.json)


Lie = Callable[[Sealed], Any]


def entry(value: Any, *path: str | int) -> Lie:
    """Replace an entry of model.json."""
    return lambda model: reduce(getitem, path[:-1], model.json).__setitem__(path[-1], value)


def weights(change: Callable[[Tensor], Tensor]) -> Lie:
    """Change all weights."""
    return lambda model: model.weights.update({n: change(t) for n, t in model.weights.items()})


def sample(name: str, change: Callable[[Tensor], Tensor]) -> Lie:
    """Change a tensor of the reference sample."""
    return lambda model: model.reference.update({name: change(model.reference[name])})


def nested(depth: int) -> Lie:
    """An average of an average of ... of the model."""

    def change(model: Sealed) -> None:
        for _ in range(depth):
            one = model.json["model"]
            model.json["model"] = {"kind": "average", "weights": [1.0], "members": [one]}

    return change


def both(*lies: Lie) -> Lie:
    return lambda model: [lie(model) for lie in lies]


NAN, HUGE = float("nan"), 2**62
COLUMN = ("encoding", "columns", 0)
AVERAGE = {"kind": "average", "weights": [0.5, 0.5]}
LIES: dict[str, Lie] = {
    # The record
    "no weights": lambda m: m.parts.remove("weights"),
    "path as file name": lambda m: m.files.update({"../model.json": "0" * 64}),
    "number as checksum": lambda m: m.files.update({"weights-000000000000.safetensors": 3}),
    "other file name": lambda m: m.files.update({"notes.txt": "0" * 64}),
    "content is a list": lambda m: setattr(m, "json", []),
    "weights are no safetensors": lambda m: m.bytes.update(weights=b"weights"),
    # Parameters
    "method is unknown": entry("magic", "params", "method"),
    "device is a number": entry(-7, "params", "device"),
    "metric for two classes": entry("roc_auc", "params", "metric"),
    "class_weight of wrong pairs": entry([3], "params", "class_weight"),
    # Classes and features
    "too many classes": entry(["ant", "bee", "cat", "dog"], "classes"),
    "repeated classes": entry(["ant", "ant", "cat"], "classes"),
    "classes of different types": entry([1, "bee", None], "classes"),
    "huge classes": entry([1, 2, 10**40], "classes"),
    "other number of features": entry(2, "num_features"),
    # The trained model
    "kind is unknown": entry("oracle", "model", "kind"),
    "model with huge sizes": entry(HUGE, "model", "num_features"),
    "model with many environments": entry(HUGE, "model", "num_environment_labels"),
    "average without members": entry({**AVERAGE, "members": []}, "model"),
    "average of numbers": entry({**AVERAGE, "members": [1, 2]}, "model"),
    "deep averages": nested(300),
    "weights of another type": weights(lambda t: t.double()),
    "weights are integers": weights(lambda t: t.long()),
    "weights of another shape": weights(lambda t: t[:1]),
    "weights are NaN": weights(lambda t: t * NAN),
    "weights are huge": weights(lambda t: torch.full_like(t, 3e38)),
    "weights are missing": lambda m: m.weights.popitem(),
    # Results
    "score of an unknown split": entry(0.5, "scores", "moon"),
    "left out column is unknown": entry([99], "left_out"),
    "findings beyond the features": entry(
        {"num_columns": 5, "shifted_columns": [99], "share": []}, "findings"
    ),
    "candidates without names": entry([{"validation": 1}], "candidates"),
    # Calibration
    "temperature is zero": entry(0.0, "calibration", "temperature"),
    "bias of another length": entry([1.0], "calibration", "bias"),
    "bias is NaN": entry([NAN, NAN, NAN], "calibration", "bias"),
    "rarer class of three": entry(7, "calibration", "positive"),
    # The encoding
    "encoding of an unknown kind": entry("sound", *COLUMN, "kind"),
    "encoding with deviation 0": entry(0.0, *COLUMN, "std"),
    "encoding with mean NaN": entry(NAN, *COLUMN, "mean"),
    "encoding with more columns": lambda m: m.json["encoding"]["columns"].append(
        {"name": "z", "kind": "number"}
    ),
    "classes that are not Unicode": entry(["ant", "bee", "\ud800"], "classes"),
    "encoding with repeated columns": entry("b", *COLUMN, "name"),
    "category without values": entry("category", *COLUMN, "kind"),
    "role is a missing column": entry("moon", "encoding", "roles", "id"),
    "layout is unknown": entry("round", "encoding", "layout"),
    "category that is not Unicode": both(
        entry("category", *COLUMN, "kind"), entry(["\ud800"], *COLUMN, "categories")
    ),
    # The reference sample
    "sample without x": lambda m: m.reference.pop("x"),
    "sample with other features": sample("x", lambda t: t[:, :2]),
    "sample with NaN": sample("x", lambda t: t * NAN),
    "sample with other classes": sample("y", lambda t: t + 9),
    "sample with negative classes": sample("valid_y", lambda t: t - 9),
    "sample with labels as numbers": sample("y", lambda t: t.double()),
    "sample with fewer labels": sample("y", lambda t: t[:-1]),
    "sample without validation nodes": both(
        *(
            sample(f"valid_{name}", lambda t: t[:0])
            for name in ("nodes", "y", "logits", "embedding")
        )
    ),
    "sample with other logits": sample("logits", lambda t: t[:, :1]),
    "sample with other widths": both(
        *(sample(f"{name}embedding", lambda t: t[:, :2].clone()) for name in ("", "valid_"))
    ),
    "sample with counts of one class": sample("train_label_counts", lambda t: t[:1]),
    "sample with a matrix as homophily": sample("homophily", lambda t: torch.ones(2, 2)),
    "sample with few ids": sample("node_ids", lambda t: torch.ones(2, dtype=torch.long)),
    "sample of sparse features that are wrong": lambda m: (
        m.reference.pop("x"),
        m.reference.update(
            {
                f"x.{part}": torch.arange(3)
                for part in ("crow_indices", "col_indices", "values", "shape")
            }
        ),
    ),
}
"""What is wrong → a function that changes a model of three classes and five table columns."""
