"""The numbers of the paper, as data in `published.json`.

Tables 1 and 2 of "Graph Out-of-Distribution Generalization via Causal Intervention" (WWW '24): mean
and standard deviation over five runs on one draw of the data, in percent. The figures of the paper
(Elliptic, ablation, sensitivity) come with no numbers but the leads that its text names.
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
"""The paper's name of a method → ours, in the order of the tables."""

PAPER_METHODS = tuple(PAPER_NAMES.values())
PAPER_BACKBONES: tuple[str, ...] = tuple(_CONTENT["backbones"])

TABLES = {table: tuple(tasks) for table, tasks in _CONTENT["tables"].items()}
"""A table of the paper → its tasks."""

SPURIOUS = (OOD_MEAN, "test_id")
_TASKS = {
    task: {**numbers, "table": table}
    for table, tasks in _CONTENT["tables"].items()
    for task, numbers in tasks.items()
}
COLUMNS = {task: tuple(numbers["splits"]) for task, numbers in _TASKS.items()}
"""A task → the scores that its columns show: OOD 1, 2, 3 in the paper's words, or OOD, then ID.

Twitch's second column belongs to an extra test set, FR with shifted labels.
"""

ARXIV_LEAD: dict[str, float] = _CONTENT["leads"]["arxiv"]
"""Percent by which the paper's text puts CaNet above the runner-up on Arxiv's last period."""

ELLIPTIC_LEAD: float = _CONTENT["leads"]["elliptic"]
"""Percent by which, on average, the paper's text puts CaNet above the runner-ups on Elliptic."""


def published(config: RunConfig, split: str) -> Published | None:
    """What the paper says of such a run's score; None if nothing.

    `split` is a name in result.json or of an extra test set, or `ood`. There is no number for a run
    on other features (structural, without spurious columns) or under another protocol.
    """
    if (config.features, config.protocol, config.inductive) != ("original", "paper", False):
        return None
    task = _TASKS.get(config.task, {})
    cells = task.get(config.backbone, {}).get(config.method)
    if cells is None or split not in COLUMNS[config.task]:
        return None
    mean, std = cells[COLUMNS[config.task].index(split)] or (None, None)
    return Published(task["table"], mean, std)
