"""Predictions as a table with one row per node, and as a CSV or Parquet file."""

from __future__ import annotations

import csv
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, Literal

import numpy as np
from sklearn.metrics import accuracy_score, f1_score

from canet.data.arrays import as_array
from canet.data.checks import check_nodes
from canet.data.graph_data import AnyGraph
from canet.data.graph_store import GraphStore
from canet.data.labels import check_labels
from canet.data.metrics import RANKING_METRICS
from canet.data.stored_graph import StoredGraph
from canet.errors import CanetError, InputError
from canet.estimator.calibration import probabilities_of
from canet.estimator.classifier import NodeClassifier
from canet.nn.model import Prediction
from canet.util.files import atomic_path

FILES = (".csv", ".parquet")
SPLITS = {"valid": "val", "validation": "val"}
"""Name of a split → prefix of its mask, if they differ."""


def predictions(
    model: NodeClassifier,
    data: AnyGraph,
    nodes: np.ndarray | None = None,
    calibrated: bool = False,
    threshold: float | Literal["best"] | None = None,
) -> dict[str, np.ndarray]:
    """Return the predictions for the nodes with these rows $[n]$, or all, as columns $[n]$.

    `id`; `prediction`, the most likely class; `probability_CLASS` for each class; and
    `novelty_score`, unless the model was saved without its reference sample. Other arguments as
    for `NodeClassifier.predict` and `predict_proba`.
    """
    found = model.forward(data, nodes)
    ids = data.get("node_id")
    ids = np.arange(data.x.shape[0]) if ids is None else np.asarray(ids)
    return prediction_table(
        model, found, ids if nodes is None else ids[nodes], calibrated, threshold
    )


def prediction_table(
    model: NodeClassifier,
    found: Prediction,
    ids: np.ndarray,
    calibrated: bool,
    threshold: float | Literal["best"] | None,
) -> dict[str, np.ndarray]:
    """Return the columns of `predictions` for nodes with these ids $[n]$."""
    probabilities = probabilities_of(found.logits, model.calibration_ if calibrated else None)
    table = {
        "id": ids,
        "prediction": model.classes_[model.choose_classes(probabilities, threshold, calibrated)],
    }
    table |= {f"probability_{c}": probabilities[:, i] for i, c in enumerate(model.classes_)}
    if model.reference_ is None:
        return table
    return table | {"novelty_score": model.reference_.novelty_score(found.embedding).numpy()}


def summarise(
    model: NodeClassifier,
    data: AnyGraph,
    table: Mapping[str, np.ndarray],
    nodes: np.ndarray | None = None,
    recall_at: int | None = None,
) -> dict[str, Any]:
    """Return counts of the predicted classes, mean novelty score, and scores if they are known.

    `nodes` are the rows $[n]$ of the table in the graph; None: all nodes.
    """
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
        labels = check_labels(data.y, data.x.shape[0])
        rows = np.arange(len(labels.values)) if nodes is None else nodes
        known = labels.known[rows]
        summary["labelled"] = int(known.sum())
        if summary["labelled"] and model.metric in RANKING_METRICS:
            summary["score"] = model.score(data, nodes)
        elif summary["labelled"]:  # of the predictions in the table
            pair = labels.values[rows][known].astype(str), table["prediction"][known].astype(str)
            is_accuracy = model.metric == "accuracy"
            score = accuracy_score(*pair) if is_accuracy else f1_score(*pair, average="macro")
            summary["score"] = float(score)
    if recall_at is not None:
        summary["recall_at_k"] = {
            "k": recall_at,
            "recall": model.recall_at_k(data, recall_at, nodes),
        }
    return summary


def choose_nodes(data: AnyGraph | GraphStore, wanted: str) -> np.ndarray:
    """Return the rows $[n]$ of the nodes in `split=NAME`, or with the ids in a file.

    The file has one id per line; a CSV file may have more columns, and its first column, or the
    column `id`, is read.
    """
    kind, _, name = wanted.partition("=")
    if kind == "split":
        if isinstance(data, GraphStore):
            return data.nodes("valid" if name.lower() in ("val", *SPLITS) else name).numpy()
        mask = f"{SPLITS.get(name.lower(), name)}_mask"
        if data.get(mask) is None:
            raise InputError(
                "the graph has no column of splits: pass a file with the ids of the nodes"
            )
        return np.flatnonzero(as_array(data[mask], mask))
    try:
        with Path(wanted).open(newline="", encoding="utf-8-sig") as file:
            rows = [[cell.strip() for cell in row] for row in csv.reader(file) if row]
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise InputError(
            f"cannot read the node ids in '{wanted}': pass a text file with one id per line, or "
            "split=test"
        ) from error
    heads = [cell.lower() for cell in rows[0]] if rows else []
    column = heads.index("id") if "id" in heads else 0
    names = [row[column] for row in (rows[1:] if "id" in heads else rows)]
    if not names:
        raise InputError(f"'{wanted}' has no node ids: write one id per line")
    if isinstance(data, GraphStore):
        return StoredGraph(data).rows(names, f"'{wanted}'").numpy()
    row_of = {str(node): row for row, node in enumerate(data.node_id)}
    return check_nodes(names, len(row_of), f"'{wanted}'", lambda: row_of).numpy()


def check_target(path: Path) -> None:
    """Raise an error if the file is neither .csv nor .parquet."""
    if path.suffix not in FILES:
        raise InputError(f"cannot write '{path.name}': the file name must end in .csv or .parquet")


def write_table(table: Mapping[str, np.ndarray], path: Path) -> None:
    """Write columns as CSV or Parquet, depending on the file name, atomically."""
    with table_writer(path) as write:
        write(table)


@contextmanager
def table_writer(path: Path) -> Iterator[Callable[[Mapping[str, np.ndarray]], None]]:
    """Open a CSV or Parquet file for a table that is written in parts; it appears at the end."""
    check_target(path)
    try:
        opened = _parquet if path.suffix == ".parquet" else _csv
        with atomic_path(path) as temporary, opened(temporary) as write:
            yield lambda part: write({name: values.tolist() for name, values in part.items()})
    except OSError as error:
        raise CanetError(
            f"cannot write '{path}' ({error.strerror}): choose another file with --out"
        ) from error


@contextmanager
def _csv(path: Path) -> Iterator[Callable[[dict[str, list[Any]]], None]]:
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file, lineterminator="\n")

        def write(columns: dict[str, list[Any]]) -> None:
            if not file.tell():
                writer.writerow(columns)
            writer.writerows(zip(*columns.values(), strict=True))

        yield write


@contextmanager
def _parquet(path: Path) -> Iterator[Callable[[dict[str, list[Any]]], None]]:
    import pyarrow
    from pyarrow import parquet

    with ExitStack() as stack:
        writer: Any = None

        def write(columns: dict[str, list[Any]]) -> None:
            nonlocal writer
            table = pyarrow.table(columns)
            if writer is None:
                writer = stack.enter_context(parquet.ParquetWriter(path, table.schema))
            writer.write_table(table)

        yield write
