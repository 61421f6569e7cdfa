"""Predictions as a table with one row per node, and as a CSV or Parquet file."""

from __future__ import annotations

import csv
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from canet.data.graph_data import AnyGraph
from canet.data.labels import check_labels
from canet.errors import CanetError, InputError
from canet.estimator.classifier import NodeClassifier
from canet.estimator.predicting import probabilities_of
from canet.util.files import atomic_path

FILES = (".csv", ".parquet")


def predictions(model: NodeClassifier, data: AnyGraph) -> dict[str, np.ndarray]:
    """Return the predictions for a graph as columns $[N]$, in the order of its nodes.

    `id`; `prediction`, the most likely class; `probability_CLASS` for each class; and
    `novelty_score`, unless the model was saved without its reference sample.
    """
    found = model.forward(data)
    probabilities = probabilities_of(found.logits)
    ids = data.get("node_id")
    table = {
        "id": np.arange(len(probabilities)) if ids is None else np.asarray(ids),
        "prediction": model.classes_[probabilities.argmax(axis=1)],
    }
    table |= {f"probability_{c}": probabilities[:, i] for i, c in enumerate(model.classes_)}
    if model.reference_ is None:
        return table
    return table | {"novelty_score": model.reference_.novelty_score(found.embedding).numpy()}


def summarise(
    model: NodeClassifier, data: AnyGraph, table: Mapping[str, np.ndarray]
) -> dict[str, Any]:
    """Return counts of the predicted classes, mean novelty score, and the score if known."""
    names, counts = np.unique(table["prediction"], return_counts=True)
    probabilities = [table[f"probability_{c}"] for c in model.classes_]
    novelty = float(np.mean(table["novelty_score"])) if "novelty_score" in table else None
    summary: dict[str, Any] = {
        "nodes": len(table["id"]),
        "predictions": dict(zip(map(str, names), counts.tolist(), strict=True)),
        "mean_confidence": float(np.max(probabilities, axis=0).mean()),
        "novelty_score": novelty,
        "metric": model.metric,
        "score": None,
        "labelled": 0,
    }
    if data.get("y") is not None:
        summary["labelled"] = int(check_labels(data.y, len(table["id"])).known.sum())
        if summary["labelled"]:
            summary["score"] = model.score(data)
    return summary


def check_target(path: Path) -> None:
    """Raise an error if the file is neither .csv nor .parquet."""
    if path.suffix not in FILES:
        raise InputError(f"cannot write '{path.name}': the file name must end in .csv or .parquet")


def write_table(table: Mapping[str, np.ndarray], path: Path) -> None:
    """Write columns as CSV or Parquet, depending on the file name, atomically."""
    import pyarrow
    from pyarrow import parquet

    check_target(path)
    columns = {name: column.tolist() for name, column in table.items()}
    try:
        with atomic_path(path) as temporary:
            if path.suffix == ".parquet":
                parquet.write_table(pyarrow.table(columns), temporary)
                return
            with temporary.open("w", newline="", encoding="utf-8") as file:
                writer = csv.writer(file, lineterminator="\n")
                writer.writerow(columns)
                writer.writerows(zip(*columns.values(), strict=True))
    except OSError as error:
        raise CanetError(
            f"cannot write '{path}' ({error.strerror}): choose another file with --out"
        ) from error
