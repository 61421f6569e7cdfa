"""Graph stores that were changed after they were written, with checksums that fit the change."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from canet.data.graph_store.index import HEADER_BYTES, INDEX
from canet.util.files import sha256
from canet.util.schema import CHECKSUM, pack_json

MISSING = object()
HUGE = 2**70
NUMBERS = ("num_nodes", "num_edges", "num_loops", "num_features")
NAMES = ("classes", "splits", "environments")
ARRAY_FIELDS = ("dtype", "shape", "offset", "bytes", "sha256")
WRONG_VALUES: dict[str, list[Any]] = {
    **{name: [-1, HUGE, "many", 1.5, None] for name in NUMBERS},
    "classes": [None, "abc", [None], [0.5], [[1]], [HUGE], {}],
    "splits": [None, [1]],
    "environments": [[HUGE], [None]],
    "encoding": ["x", [], {"columns": 3}, {"columns": [], "future": 1}, {"columns": []}],
    "arrays": [None, [], {}],
    "future": [1],
    "a\nline": [1],
    "arrays.features.future": [1],
    "arrays.features.dtype": ["|O", "<f8", "nonsense", 5],
    "arrays.node_id.dtype": ["<U0", "<U99999999999999999999"],
    "arrays.labels.shape": [[], [-1], [2**62], "x", [0.5], [120, 1], 7],
    "arrays.rowptr.offset": [-4, 0, 3, HUGE],
    "arrays.neighbours.bytes": [-1, 0],
    **{f"arrays.{name}": [{}] for name in ("labels", "")},
}
"""Entry of an index → values that are not valid there."""
WRONG_NAMES = ("../features", "/etc/passwd", "a\nb", "x" * 9999, "Features")


def rewrite_index(store: Path, change: Callable[[dict[str, Any]], object]) -> None:
    """Change the content of an index, and its checksum too."""
    index = json.loads((store / INDEX).read_bytes())
    del index[CHECKSUM]
    change(index)
    (store / INDEX).write_bytes(pack_json(index))


def rewrite_array(store: Path, name: str, place: int, value: int) -> None:
    """Change one number of an array, and its checksum in the index too."""
    path = store / f"{name}.npy"
    array = np.load(path)
    array[place] = value
    path.write_bytes(path.read_bytes()[:HEADER_BYTES] + array.tobytes())
    rewrite_index(store, lambda index: index["arrays"][name].update(sha256=sha256(path)))


def set_entry(index: dict[str, Any], entry: str, value: Any) -> None:
    *outer, name = entry.split(".")
    for part in outer:
        index = index[part]
    index[name] = value
    if value is MISSING:
        del index[name]


def lying_indexes() -> dict[str, Callable[[dict[str, Any]], object]]:
    """Description → change of the index of a store with dense features, labels and names."""
    missing = ("format", "version", *NUMBERS, *NAMES, "encoding", "arrays", "arrays.rowptr")
    missing += tuple(f"arrays.features.{field}" for field in ARRAY_FIELDS)
    wrong = [(entry, MISSING) for entry in missing]
    wrong += [(entry, value) for entry, values in WRONG_VALUES.items() for value in values]
    lies: dict[str, Callable[[dict[str, Any]], object]] = {
        f"{entry}: {'missing' if value is MISSING else repr(value)}": partial(
            set_entry, entry=entry, value=value
        )
        for entry, value in wrong
    }
    for name in WRONG_NAMES:
        lies[f"array named {name[:20]!r}"] = lambda index, name=name: index["arrays"].update(
            {name: index["arrays"].pop("features")}
        )
    return lies
