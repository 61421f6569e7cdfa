"""Elliptic: Bitcoin transactions in 49 time steps, trained on the first five.

Reads the published CSV files. The features file has no header and 167 columns: transaction, time
step, and 165 features. Each time step is a snapshot; there are no edges between snapshots.
"""

from collections.abc import Iterable
from pathlib import Path

import numpy as np
import torch
from torch import Tensor
from torch_geometric.data import Data

from canet.data.benchmarks.dataset import Dataset, RawFile, Request, Statistics, published_files
from canet.data.benchmarks.files import RawFiles, find, obtain
from canet.data.benchmarks.processed import Arrays, read_table
from canet.data.benchmarks.structural import read_arrays
from canet.data.task import ShiftTask
from canet.errors import CanetError

NUM_FEATURES = 165
NUM_STEPS = 49
NUM_ID_STEPS = 5
LABELS = {"1": 1, "2": 0, "unknown": -1}
"""Class in the file → label; illicit transactions are the positive class."""

OOD_STEPS = [range(first, first + 4) for first in range(11, 43, 4)]
LEFT_OUT_STEPS = [range(6, 11), range(43, 50)]
"""Later time steps, counted from 1: eight scored groups of four, and groups without a score."""

FEATURES, EDGES, CLASSES = published_files("elliptic/")
TIME_STEPS = RawFile("elliptic/time_steps.csv")
"""The time step of every transaction, for use without the large features file."""


class Elliptic(Dataset):
    """The transaction graph; the environment of a node is its snapshot, counted from 0."""

    name = "elliptic"
    description = "flows among Bitcoin transactions in 49 time steps: illicit or licit"
    shift = "dynamic snapshots"
    metric = "macro_f1"
    ood_sets = tuple(f"ood/steps {steps.start}-{steps.stop - 1}" for steps in OOD_STEPS)
    files = (FEATURES, EDGES, CLASSES)
    statistics = Statistics(nodes=203769, edges=234355, classes=2, features=165)
    features = ("structural",)
    has_single_split = True
    quick_epochs = 30
    shared_settings = {"direction": "against", "loss": "binary_cross_entropy"}

    def load(self, request: Request) -> ShiftTask:
        root = request.data_root
        files = self.files_for(request.features)
        if request.features is not None:
            timed = [file for file in (TIME_STEPS, FEATURES) if find(file, root)]
            if not timed:
                raise CanetError(
                    f"the time steps of elliptic are missing: put '{TIME_STEPS.path}' or "
                    f"'{FEATURES.path}' into the folder --data-root (CANET_DATA_ROOT), or load "
                    "the task once with its original features, which downloads them"
                )
            files += (timed[0],)
        raw = obtain(files, root)
        arrays = read_arrays(
            self.name, request, raw, _parse, lambda graph: graph["step"] <= NUM_ID_STEPS
        )
        names = ("x", "edge_index", "y", "step")
        x, edge_index, y, step = (torch.from_numpy(arrays[name]) for name in names)

        def labelled(steps: range) -> Tensor:
            return ((step >= steps.start) & (step < steps.stop) & (y >= 0)).nonzero().flatten()

        def named(groups: Iterable[range]) -> dict[str, Tensor]:
            return {f"steps {steps.start}-{steps.stop - 1}": labelled(steps) for steps in groups}

        return self.split_task(
            request,
            labelled(range(1, NUM_ID_STEPS + 1)),
            data=Data(x, edge_index, y=y, environment=step - 1),
            test_ood=named(OOD_STEPS),
            left_out=named(LEFT_OUT_STEPS),
            in_distribution=step <= NUM_ID_STEPS,
            environments=tuple(f"step {number}" for number in range(1, NUM_STEPS + 1)),
        )

    def files_for(self, features: str | None) -> tuple[RawFile, ...]:
        """Return the files that are read, except that of the time steps for structural features."""
        return self.files if features is None else (CLASSES, EDGES)


def _parse(raw: RawFiles) -> Arrays:
    """Return edges $[2, E]$, labels $[N]$, time steps $[N]$ and features (if their file exists)."""
    text = raw.paths[CLASSES.path].read_text(encoding="utf-8")
    rows = [line.split(",") for line in text.split()[1:]]
    transactions = np.array([int(transaction) for transaction, _ in rows], dtype=np.int64)
    y = np.array([LABELS[label] for _, label in rows])
    ends = read_table(raw.paths[EDGES.path], 2, np.int64, header=True)
    edge_index = _positions(transactions, ends.T, raw.paths[EDGES.path])
    has_features = FEATURES.path in raw.paths
    path = raw.paths[FEATURES.path if has_features else TIME_STEPS.path]
    width = 2 + NUM_FEATURES if has_features else 2
    table = read_table(path, width, np.float64, header=not has_features)
    table = table[_positions(table[:, 0].astype(np.int64), transactions, path)]
    return {
        "edge_index": edge_index,
        "y": y,
        "step": table[:, 1].astype(np.int64),
        "x": table[:, 2:].astype(np.float32),
    }


def _positions(transactions: np.ndarray, wanted: np.ndarray, path: Path) -> np.ndarray:
    """Return the index of each `wanted` transaction in `transactions`, in the shape of `wanted`."""
    order = np.argsort(transactions)
    nearest = np.searchsorted(transactions[order], wanted).clip(max=len(order) - 1)
    found = order[nearest]
    if (transactions[found] != wanted).any():
        raise CanetError(
            f"'{path}' and the classes file contain different transactions: replace both by the "
            "published files"
        )
    return found
