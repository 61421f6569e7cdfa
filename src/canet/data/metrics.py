"""The metrics of a task and their names in reports."""

from __future__ import annotations

from typing import Literal

Metric = Literal["accuracy", "roc_auc", "macro_f1", "average_precision"]
METRIC_NAMES: dict[str, str] = {
    "accuracy": "accuracy",
    "roc_auc": "ROC-AUC",
    "macro_f1": "macro F1",
    "average_precision": "average precision",
}
RANKING_METRICS = ("roc_auc", "average_precision")
"""Metrics for two classes, which rank the nodes. They are undefined if a class is absent."""
