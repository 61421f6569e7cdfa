"""Predictions of a graph store, written to a file part by part."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from sklearn.metrics import accuracy_score, f1_score
from torch import Tensor

from canet.data.graph_store import GraphStore
from canet.data.metrics import RANKING_METRICS
from canet.data.stored_graph import StoredGraph
from canet.errors import InputError
from canet.estimator.classifier import NodeClassifier
from canet.estimator.predictions import prediction_table, table_writer
from canet.training import METRICS


def write_predictions(
    model: NodeClassifier,
    store: GraphStore,
    out: Path,
    nodes: np.ndarray | None = None,
    calibrated: bool = False,
    threshold: float | Literal["best"] | None = None,
    recall_at: int | None = None,
) -> dict[str, Any]:
    """Write the table of `predictions` in the order of the rows, and return its summary.

    Arguments as for `predictions` and `summarise`.
    """
    reader, graph = model.prepare(store), StoredGraph(store)
    rows = None if nodes is None else torch.from_numpy(np.unique(nodes))
    count = store.num_nodes if rows is None else rows.numel()
    predicted, margin = np.empty(count, dtype=np.int64), np.empty(count, dtype=np.float32)
    confidence = novelty = 0.0
    scored = _Scored(model, graph, rows, recall_at)
    with table_writer(out) as write:
        for where, found in reader.parts(rows):
            ids = where if rows is None else rows[where]
            table = prediction_table(model, found, graph.names(ids.numpy()), calibrated, threshold)
            write(table)
            at = where.numpy()
            predicted[at] = np.searchsorted(model.classes_, table["prediction"])
            margin[at] = found.logits[:, -1] - found.logits[:, 0]  # of the second of two classes
            columns = [table[f"probability_{name}"] for name in model.classes_]
            confidence += float(np.max(columns, axis=0).sum())
            novelty += float(np.sum(table.get("novelty_score", np.nan)))
    counts = np.bincount(predicted, minlength=len(model.classes_)).tolist()
    names = map(str, model.classes_)
    return {
        "nodes": count,
        "predictions": {name: n for name, n in zip(names, counts, strict=True) if n},
        "mean_confidence": confidence / max(1, count),
        "novelty_score": None if model.reference_ is None else novelty / max(1, count),
        "metric": model.metric,
        **scored.scores(predicted, margin),
    }


class _Scored:
    """The labels of the predicted nodes, if the store has labels."""

    def __init__(
        self, model: NodeClassifier, graph: StoredGraph, rows: Tensor | None, recall_at: int | None
    ) -> None:
        self._model, self._recall_at = model, recall_at
        self._y: np.ndarray | None = None
        if "labels" in graph.store:
            y, known = graph.match_classes(model.classes_)
            chosen = slice(None) if rows is None else rows.numpy()
            self._known = np.flatnonzero(known[chosen])
            self._y = y.numpy()[chosen][self._known]
        if recall_at is not None and (self._y is None or len(model.classes_) != 2):
            raise InputError("recall needs labels of two classes")
        if self._y is not None and model.metric in RANKING_METRICS and (self._y < 0).any():
            raise InputError(f"y contains a third class, but {model.metric} is for two classes")

    def scores(self, predicted: np.ndarray, margin: np.ndarray) -> dict[str, Any]:
        """Return the scores of predicted classes and margins $[n]$ of the nodes."""
        if self._y is None or not self._y.size:
            return {"score": None, "labelled": 0}
        y, model = self._y, self._model
        predicted, margin = predicted[self._known], margin[self._known]
        if model.metric in RANKING_METRICS:
            logits = torch.from_numpy(np.stack([np.zeros_like(margin), margin], axis=1))
            score = float(METRICS[model.metric](logits, torch.from_numpy(y)))
        elif model.metric == "accuracy":
            score = float(accuracy_score(y, predicted))
        else:
            score = float(f1_score(y, predicted, average="macro"))
        found: dict[str, Any] = {"score": score, "labelled": len(y)}
        if self._recall_at is not None:
            positive = model.calibration_.positive
            is_positive = y == positive
            if not is_positive.any():
                raise InputError("no node has the rarer class: recall needs one")
            top = np.argsort(-margin if positive else margin, kind="stable")[: self._recall_at]
            recall = float(is_positive[top].sum() / is_positive.sum())
            found["recall_at_k"] = {"k": self._recall_at, "recall": recall}
        return found
