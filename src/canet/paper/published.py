"""The scores that the paper reports, read from `published.json`.

Tables 1 and 2 of "Graph Out-of-Distribution Generalization via Causal Intervention" (WWW '24): mean
and standard deviation over five runs on one draw of the data, between 0 and 1. The figures of the
paper (Elliptic, ablation, sensitivity) have no numbers; its text states some leads.
"""

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
SHIFTED_FR = "FR, labels shifted"
"""The published column of Twitch FR, whose labels were most likely shifted by two repeated rows.

It is not comparable with scores on `ood/FR`, so it is shown by `experiments/french_labels.py` only.
"""
COLUMNS = {
    task: tuple("ood/FR" if split == SHIFTED_FR else split for split in numbers["splits"])
    for task, numbers in _TASKS.items()
}
"""Task → scores in its columns: OOD (in the paper OOD 1, 2, 3), then ID."""

ARXIV_LEAD: dict[str, float] = _CONTENT["leads"]["arxiv"]
"""Relative lead of CaNet over the second best method on Arxiv 2018-2020, from the paper's text."""

ELLIPTIC_LEAD: float = _CONTENT["leads"]["elliptic"]
"""Mean relative lead of CaNet over the second best method on Elliptic, from the paper's text."""


def published(config: RunConfig, split: str) -> Published | None:
    """The published score of such a run; None if the paper has none.

    `split` is a name in result.json, `ood`, or `SHIFTED_FR`. Runs with other features
    (structural, without spurious columns) or another protocol have no published score.
    """
    if (config.features, config.protocol, config.inductive) != ("original", "paper", False):
        return None
    task = _TASKS.get(config.task, {})
    cells = task.get(config.backbone, {}).get(config.method)
    if cells is None or split not in task["splits"]:
        return None
    mean, std = cells[task["splits"].index(split)] or (None, None)
    return Published(task["table"], mean, std)
