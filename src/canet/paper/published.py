"""The numbers of the paper, as data.

Tables 1 and 2 of "Graph Out-of-Distribution Generalization via Causal Intervention" (WWW '24): mean
and standard deviation over five runs on one draw of the data, in percent. The figures of the paper
(Elliptic, ablation, sensitivity) come with no numbers but the ones at the end of this file.
"""

from __future__ import annotations

from typing import NamedTuple

from canet.report.results import OOD_MEAN
from canet.training import RunConfig

PAPER_NAMES = {
    "ERM": "erm",
    "IRM": "irm",
    "Coral": "coral",
    "DANN": "dann",
    "GroupDRO": "group_dro",
    "Mixup": "mixup",
    "SRGNN": "sr_gnn",
    "EERM": "eerm",
    "CaNet": "canet",
}
"""The paper's name of a method → ours, in the order of the tables."""

PAPER_METHODS = tuple(PAPER_NAMES.values())
PAPER_BACKBONES = ("gcn", "gat")

TABLES = {"Table 1": ("cora", "citeseer", "pubmed"), "Table 2": ("arxiv", "twitch")}
"""A table of the paper → its tasks."""

SPURIOUS = (OOD_MEAN, "test_id")
COLUMNS = {
    "cora": SPURIOUS,
    "citeseer": SPURIOUS,
    "pubmed": SPURIOUS,
    "arxiv": ("ood/2014-2015", "ood/2016-2017", "ood/2018-2020", "test_id"),
    "twitch": ("ood/ES", "ood/FR", "ood/EN", "test_id"),
}
"""A task → the splits that its columns show: OOD 1, 2, 3 in the paper's words, or OOD, then ID."""


class Published(NamedTuple):
    """A number of the paper in percent; mean and std are None where it ran out of memory."""

    table: str
    mean: float | None
    std: float | None


def published(config: RunConfig, split: str) -> Published | None:
    """What the paper says of such a run's split, a name in result.json or `ood`; None if nothing.

    It has no number for a run on other features (structural, without spurious columns) or under
    another protocol than its own.
    """
    cells = _NUMBERS.get((config.task, config.backbone), {}).get(config.method)
    if (config.features, config.protocol, config.inductive) != ("original", "paper", False):
        return None
    if cells is None or split not in COLUMNS[config.task]:
        return None
    table = next(name for name, tasks in TABLES.items() if config.task in tasks)
    return Published(table, *(cells[COLUMNS[config.task].index(split)] or (None, None)))


ARXIV_LEAD = {"gcn": 14.1, "gat": 27.4}
"""Percent by which the paper's text puts CaNet above the runner-up on Arxiv's last period."""

ELLIPTIC_LEAD = 12.16
"""Percent by which, on average, the paper's text puts CaNet above the runner-ups on Elliptic."""

Cell = tuple[float, float] | None
OOM: Cell = None

_NUMBERS: dict[tuple[str, str], dict[str, tuple[Cell, ...]]] = {
    ("cora", "gcn"): {
        "erm": ((74.30, 2.66), (94.83, 0.25)),
        "irm": ((74.19, 2.60), (94.88, 0.18)),
        "coral": ((74.26, 2.28), (94.89, 0.18)),
        "dann": ((73.09, 3.24), (95.03, 0.16)),
        "group_dro": ((74.25, 2.61), (94.87, 0.25)),
        "mixup": ((92.77, 1.27), (94.84, 0.30)),
        "sr_gnn": ((81.91, 2.64), (95.09, 0.32)),
        "eerm": ((83.00, 0.77), (89.17, 0.23)),
        "canet": ((96.12, 1.04), (97.87, 0.23)),
    },
    ("citeseer", "gcn"): {
        "erm": ((74.93, 2.39), (85.76, 0.26)),
        "irm": ((75.34, 1.61), (85.34, 0.46)),
        "coral": ((74.97, 2.53), (85.64, 0.28)),
        "dann": ((74.74, 2.78), (85.75, 0.49)),
        "group_dro": ((75.02, 2.05), (85.33, 0.36)),
        "mixup": ((77.28, 5.28), (85.00, 0.50)),
        "sr_gnn": ((76.10, 4.04), (85.84, 0.37)),
        "eerm": ((74.76, 1.15), (83.81, 0.17)),
        "canet": ((94.57, 1.92), (95.18, 0.17)),
    },
    ("pubmed", "gcn"): {
        "erm": ((81.36, 1.78), (92.76, 0.10)),
        "irm": ((81.14, 1.72), (92.80, 0.12)),
        "coral": ((81.56, 2.35), (92.78, 0.11)),
        "dann": ((80.77, 1.43), (93.20, 0.42)),
        "group_dro": ((81.07, 1.89), (92.76, 0.08)),
        "mixup": ((79.76, 4.44), (92.68, 0.13)),
        "sr_gnn": ((84.75, 2.38), (93.52, 0.31)),
        "eerm": (OOM, OOM),
        "canet": ((88.82, 2.30), (97.37, 0.11)),
    },
    ("cora", "gat"): {
        "erm": ((91.10, 2.26), (95.57, 0.40)),
        "irm": ((91.63, 1.27), (95.72, 0.31)),
        "coral": ((91.82, 1.30), (95.74, 0.39)),
        "dann": ((92.40, 2.05), (95.66, 0.28)),
        "group_dro": ((90.54, 0.94), (95.38, 0.23)),
        "mixup": ((92.94, 1.21), (94.66, 0.10)),
        "sr_gnn": ((91.77, 2.43), (95.36, 0.24)),
        "eerm": ((91.80, 0.73), (91.37, 0.30)),
        "canet": ((97.30, 0.25), (95.94, 0.29)),
    },
    ("citeseer", "gat"): {
        "erm": ((82.60, 0.51), (89.02, 0.32)),
        "irm": ((82.73, 0.37), (89.11, 0.36)),
        "coral": ((82.44, 0.58), (89.05, 0.37)),
        "dann": ((82.49, 0.67), (89.02, 0.31)),
        "group_dro": ((82.64, 0.61), (89.13, 0.27)),
        "mixup": ((82.77, 0.30), (89.05, 0.05)),
        "sr_gnn": ((82.72, 0.35), (89.10, 0.15)),
        "eerm": ((74.07, 0.75), (83.53, 0.56)),
        "canet": ((95.33, 0.33), (89.57, 0.65)),
    },
    ("pubmed", "gat"): {
        "erm": ((84.80, 1.47), (93.98, 0.24)),
        "irm": ((84.95, 1.06), (93.89, 0.26)),
        "coral": ((85.07, 0.95), (94.05, 0.23)),
        "dann": ((83.94, 0.84), (93.46, 0.31)),
        "group_dro": ((85.17, 0.86), (94.00, 0.18)),
        "mixup": ((81.58, 0.65), (92.79, 0.18)),
        "sr_gnn": ((83.40, 0.67), (93.21, 0.29)),
        "eerm": (OOM, OOM),
        "canet": ((89.89, 1.92), (95.04, 0.16)),
    },
    ("arxiv", "gcn"): {
        "erm": ((56.33, 0.17), (53.53, 0.44), (45.83, 0.47), (59.94, 0.45)),
        "irm": ((55.92, 0.24), (53.25, 0.49), (45.66, 0.83), (60.28, 0.23)),
        "coral": ((56.42, 0.26), (53.53, 0.54), (45.92, 0.52), (60.16, 0.12)),
        "dann": ((56.35, 0.11), (53.81, 0.33), (45.89, 0.37), (60.22, 0.29)),
        "group_dro": ((56.52, 0.27), (53.40, 0.29), (45.76, 0.59), (60.35, 0.27)),
        "mixup": ((56.67, 0.46), (54.02, 0.51), (46.09, 0.58), (60.09, 0.15)),
        "sr_gnn": ((56.79, 1.35), (54.33, 1.78), (46.24, 1.90), (60.02, 0.52)),
        "eerm": (OOM, OOM, OOM, OOM),
        "canet": ((59.01, 0.30), (56.88, 0.70), (56.27, 1.21), (61.42, 0.10)),
    },
    ("twitch", "gcn"): {
        "erm": ((66.07, 0.14), (52.62, 0.01), (63.15, 0.08), (75.40, 0.01)),
        "irm": ((66.95, 0.27), (52.53, 0.02), (62.91, 0.08), (74.88, 0.02)),
        "coral": ((66.15, 0.14), (52.67, 0.02), (63.18, 0.03), (75.40, 0.01)),
        "dann": ((66.15, 0.13), (52.66, 0.02), (63.20, 0.06), (75.40, 0.02)),
        "group_dro": ((66.82, 0.26), (52.69, 0.02), (62.95, 0.11), (75.03, 0.01)),
        "mixup": ((65.76, 0.30), (52.78, 0.04), (63.15, 0.08), (75.47, 0.06)),
        "sr_gnn": ((65.83, 0.45), (52.47, 0.06), (62.74, 0.23), (75.75, 0.09)),
        "eerm": ((67.50, 0.74), (51.88, 0.07), (62.56, 0.02), (74.85, 0.05)),
        "canet": ((67.47, 0.32), (53.59, 0.19), (64.24, 0.18), (75.10, 0.08)),
    },
    ("arxiv", "gat"): {
        "erm": ((57.15, 0.25), (55.07, 0.58), (46.22, 0.82), (59.72, 0.35)),
        "irm": ((56.55, 0.18), (54.53, 0.32), (46.01, 0.33), (59.94, 0.18)),
        "coral": ((57.40, 0.51), (55.14, 0.71), (46.71, 0.61), (60.59, 0.30)),
        "dann": ((57.23, 0.18), (55.13, 0.46), (46.61, 0.57), (59.72, 0.14)),
        "group_dro": ((56.69, 0.27), (54.51, 0.49), (46.00, 0.59), (60.03, 0.32)),
        "mixup": ((57.17, 0.33), (55.33, 0.37), (47.17, 0.84), (59.84, 0.50)),
        "sr_gnn": ((56.69, 0.38), (55.01, 0.55), (46.88, 0.58), (59.39, 0.17)),
        "eerm": (OOM, OOM, OOM, OOM),
        "canet": ((60.44, 0.27), (58.54, 0.72), (59.61, 0.28), (62.91, 0.35)),
    },
    ("twitch", "gat"): {
        "erm": ((65.67, 0.02), (52.00, 0.10), (61.85, 0.05), (75.75, 0.15)),
        "irm": ((67.27, 0.19), (52.85, 0.15), (62.40, 0.24), (75.30, 0.09)),
        "coral": ((67.12, 0.03), (52.61, 0.01), (63.41, 0.01), (75.20, 0.01)),
        "dann": ((66.59, 0.38), (52.88, 0.12), (62.47, 0.32), (75.82, 0.27)),
        "group_dro": ((67.41, 0.04), (52.99, 0.08), (62.29, 0.03), (75.74, 0.02)),
        "mixup": ((65.58, 0.13), (52.04, 0.04), (61.75, 0.13), (75.72, 0.07)),
        "sr_gnn": ((66.17, 0.03), (52.84, 0.04), (62.07, 0.04), (75.45, 0.03)),
        "eerm": ((66.80, 0.46), (52.39, 0.20), (62.07, 0.68), (75.19, 0.50)),
        "canet": ((68.08, 0.19), (53.49, 0.14), (63.76, 0.17), (76.14, 0.07)),
    },
}
