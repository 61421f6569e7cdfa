"""The scores that the paper reports, read from `published.json`.

Tables 1 and 2 of "Graph Out-of-Distribution Generalization via Causal Intervention" (WWW '24): mean
and standard deviation over five runs on one draw of the data, between 0 and 1. The figures of the
paper (Elliptic, ablation, sensitivity) have no numbers; its text states some leads.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from canet.report.score import Published
from canet.store import RunConfig
from canet.store.summary import OOD_MEAN
from canet.util.files import read_json

_CONTENT: dict[str, Any] = read_json(Path(__file__).with_name("published.json"))

PAPER_NAMES: dict[str, str] = _CONTENT["methods"]
"""Name of a method in the paper → name in this package, in the order of the tables."""

PAPER_METHODS = tuple(PAPER_NAMES.values())
PAPER_BACKBONES: tuple[str, ...] = tuple(_CONTENT["backbones"])

TABLES = {table: tuple(tasks) for table, tasks in _CONTENT["tables"].items()}
"""Table of the paper → its tasks."""

SPURIOUS = (OOD_MEAN, "test_id")
_TASKS = {
    task: {**numbers, "table": table}
    for table, tasks in _CONTENT["tables"].items()
    for task, numbers in tasks.items()
}
COLUMNS = {task: tuple(numbers["splits"]) for task, numbers in _TASKS.items()}
"""Task → scores in its columns: OOD (in the paper OOD 1, 2, 3), then ID.

The second column of Twitch is an extra test set, FR with shifted labels.
"""

ARXIV_LEAD: dict[str, float] = _CONTENT["leads"]["arxiv"]
"""Relative lead of CaNet over the second best method on Arxiv 2018-2020, from the paper's text."""

ELLIPTIC_LEAD: float = _CONTENT["leads"]["elliptic"]
"""Mean relative lead of CaNet over the second best method on Elliptic, from the paper's text."""


def published(config: RunConfig, split: str) -> Published | None:
    """The published score of such a run; None if the paper has none.

    `split` is a name in result.json or of an extra test set, or `ood`. Runs with other features
    (structural, without spurious columns) or another protocol have no published score.
    """
    if (config.features, config.protocol, config.inductive) != ("original", "paper", False):
        return None
    task = _TASKS.get(config.task, {})
    cells = task.get(config.backbone, {}).get(config.method)
    if cells is None or split not in COLUMNS[config.task]:
        return None
    mean, std = cells[COLUMNS[config.task].index(split)] or (None, None)
    return Published(task["table"], mean, std)
