"""Predictions as a CSV or Parquet file with one row per node."""

import csv
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import torch

from canet.data.checks import check_nodes
from canet.data.graph import Graph, split_sets
from canet.data.raw_graph import GraphLike, GraphObject
from canet.errors import CanetError, InputError, check_name, warn_user
from canet.estimator.classifier import NodeClassifier
from canet.scoring.calibration import Threshold
from canet.scoring.metrics import Outcome, check_scorable
from canet.util.files import atomic_path, check_regular

FILES = (".csv", ".parquet")
VALID = ("val", "valid", "validation")  # names of the validation split


def write_predictions(
    model: NodeClassifier,
    data: GraphLike,
    out: Path,
    nodes: np.ndarray | None = None,
    calibrated: bool = False,
    threshold: Threshold | None = None,
    recall_at: int | None = None,
) -> dict[str, Any]:
    """Write a table of predictions, and return counts, mean confidence and scores.

    The table has the columns `id`; `prediction`, the most likely class; `probability_CLASS` for
    each class; and `novelty_score`, unless the model was saved without its reference sample. A
    graph store is predicted in parts, in the order of its rows. The score is that of the
    predictions in the table. `nodes` are rows $[n]$; other arguments are as for `predict` and
    `recall_at_k` of `NodeClassifier`.
    """
    reader, num_classes, calibration = model.prepare(data), len(model.classes_), model.calibration_
    graph, rows = reader.data, None if nodes is None else torch.from_numpy(nodes)
    y = model.labels(reader) if rows is None else model.labels(reader)[rows]
    labelled = y >= 0
    is_scored = bool(labelled.any())
    try:
        check_scorable(model.metric, y, num_classes)
    except InputError as error:
        warn_user(f"the predictions have no score: {error}")
        is_scored = False
    if recall_at is not None and not (y == calibration.rarer()).any():
        warn_user("no labelled node has the rarer class, so there is no recall")
        recall_at = None
    predicted, margin = torch.empty_like(y), torch.empty(len(y))
    confidence = novelty = 0.0
    with table_writer(out) as write:
        for where, found in reader.parts(rows):
            ids = where if rows is None else rows[where]
            probabilities = model.probabilities(found.logits, calibrated)
            chosen = calibration.choose_classes(probabilities, threshold, calibrated)
            table = {"id": graph.names(ids.numpy())} | model.columns_of(probabilities, chosen)
            if model.reference_ is not None:
                scores = model.reference_.novelty_score(found.representation).numpy()
                table["novelty_score"] = scores
                novelty += float(scores.sum())
            write(table)
            predicted[where] = torch.from_numpy(chosen)
            margin[where] = found.logits[:, -1] - found.logits[:, 0]
            confidence += float(probabilities.max(axis=1).sum())
    model.warn_many(predicted.numpy(), threshold, calibrated)
    counts = torch.bincount(predicted, minlength=num_classes).tolist()
    outcome = Outcome(
        predicted[labelled], margin[labelled], y[labelled], num_classes, calibration.positive
    )
    summary: dict[str, Any] = {
        "nodes": len(y),
        "predictions": {str(c): n for c, n in zip(model.classes_, counts, strict=True) if n},
        "mean_confidence": confidence / max(1, len(y)),
        "novelty_score": None if model.reference_ is None else novelty / max(1, len(y)),
        "metric": model.metric,
        "score": outcome.score(model.metric) if is_scored else None,
        "baseline": model.baseline(outcome.y) if is_scored else None,
        "labelled": int(labelled.sum()),
    }
    if recall_at is not None:
        summary["recall_at_k"] = {"k": recall_at, "recall": outcome.recall_at_k(recall_at)}
    return summary


def choose_nodes(data: GraphObject, wanted: str) -> np.ndarray:
    """Return the rows $[n]$ of the nodes in `split=NAME`, or with the ids in a file.

    The file has one id per line; of a CSV file, the first column or the column `id` is read.
    """
    kind, _, name = wanted.partition("=")
    if kind == "split":
        sets = split_sets(data)
        if not sets:
            raise InputError(
                "the graph has no column of splits: pass a file with the ids of the nodes"
            )
        name = "valid" if name.lower() in VALID else name
        check_name("split", name, sets)
        return check_nodes(sets[name], data.x.shape[0], name).numpy()
    try:
        check_regular(Path(wanted))
        with Path(wanted).open(newline="", encoding="utf-8-sig") as file:
            rows = [[cell.strip() for cell in row] for row in csv.reader(file) if row]
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise InputError(
            f"cannot read the node ids in '{wanted}': pass a file with one per line, or split=test"
        ) from error
    heads = [cell.lower() for cell in rows[0]] if rows else []
    column = heads.index("id") if "id" in heads else 0
    names = [row[column] for row in (rows[1:] if "id" in heads else rows)]
    if not names:
        raise InputError(f"'{wanted}' has no node ids: write one id per line")
    return Graph(data.x, node_id=data.node_id).rows(names, f"'{wanted}'").numpy()


def check_target(path: Path) -> None:
    """Raise an error if the file is neither .csv nor .parquet."""
    if path.suffix not in FILES:
        raise InputError(f"cannot write '{path.name}': the file name must end in .csv or .parquet")


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
        writer: parquet.ParquetWriter | None = None

        def write(columns: dict[str, list[Any]]) -> None:
            nonlocal writer
            table = pyarrow.table(columns)
            if writer is None:
                writer = stack.enter_context(parquet.ParquetWriter(path, table.schema))
            writer.write_table(table)

        yield write
