"""Twitch: six friendship graphs of streamers, trained on three languages, tested on three others.

Protocols such as `without-de` train on all languages except one and test on that one, and those
such as `only-de` train on one and test on the others.

Labels are assigned by user id (`new_id`). The target file of FR contains two users twice, so
assigning labels in the order of its rows would give almost every user a wrong label. The published
statistics (34,120 nodes, 892,346 edges) count the two repeated rows as nodes with a self-loop.
"""

import csv
import json
from pathlib import Path

import numpy as np
import scipy.sparse as sp
import torch
from torch_geometric.data import Data

from canet.data.benchmarks.dataset import Dataset, Request, Statistics, published_files
from canet.data.benchmarks.files import RawFiles, obtain
from canet.data.benchmarks.processed import Arrays, processed, read_table
from canet.data.task import ShiftTask
from canet.util.sparse import from_scipy

READER_VERSION = 1
NUM_FEATURES = 3170
NUM_ID_REGIONS = 3
MULTI_HOT = "multi-hot"
FOLDERS = {"DE": "DE", "PT": "PTBR", "RU": "RU", "ES": "ES", "FR": "FR", "EN": "ENGB"}
"""Region → its folder; the first three are in distribution."""
REGIONS = tuple(FOLDERS)
SHIFTED = {
    "paper": REGIONS[NUM_ID_REGIONS:],
    **{f"without-{region.lower()}": (region,) for region in REGIONS},
    **{f"only-{one.lower()}": tuple(r for r in REGIONS if r != one) for one in REGIONS},
}
"""Protocol → its test regions."""


class Twitch(Dataset):
    """All regions as one disconnected graph; the environment of a node is its region."""

    name = "twitch"
    description = "friends among streamers of six languages: explicit language or not"
    shift = "disconnected subgraphs"
    metric = "roc_auc"
    protocols = tuple(SHIFTED)
    ood_sets = tuple(f"ood/{region}" for region in SHIFTED["paper"])
    files = published_files("twitch/")
    statistics = Statistics(nodes=34118, edges=892344, classes=2, features=3170)
    features = (MULTI_HOT,)
    quick_epochs = 30
    shared_settings = {"loss": "binary_cross_entropy"}

    def load(self, request: Request) -> ShiftTask:
        """Load the task. Rows of features sum to one, as published, or are ones (`multi-hot`)."""
        raw = obtain(self.files, request.data_root)
        arrays = processed("twitch", f"{READER_VERSION} {raw.digest}", lambda: _parse(raw))
        names = ("region", "edge_index", "y")
        region, edge_index, y = (torch.from_numpy(arrays[name]) for name in names)
        shape = (region.numel(), NUM_FEATURES)
        values = np.ones(len(arrays["columns"]), dtype=np.float32)
        if request.features != MULTI_HOT:
            counts = np.diff(arrays["rows"])
            values /= np.repeat(counts, counts)
        x = sp.csr_matrix((values, arrays["columns"], arrays["rows"]), shape=shape)
        test_ood = {
            name: (region == REGIONS.index(name)).nonzero().flatten()
            for name in SHIFTED[request.protocol]
        }
        in_distribution = torch.ones_like(region, dtype=torch.bool)
        in_distribution[torch.cat(list(test_ood.values()))] = False
        return self.split_task(
            request,
            in_distribution.nonzero().flatten(),
            data=Data(from_scipy(x), edge_index, y=y, environment=region),
            test_ood=test_ood,
            in_distribution=in_distribution,
            environments=REGIONS,
        )


def read_region(
    edges: Path, features: Path, target: Path
) -> tuple[np.ndarray, sp.csr_array, np.ndarray]:
    """Return the edges $[2, E]$, multi-hot features $[n, 3170]$ and labels $[n]$ of a region.

    Edges have both directions, and each node has a self-loop. Label 1 means mature.
    """
    with target.open(newline="", encoding="utf-8") as file:  # the last row of a user counts
        labels = {int(row["new_id"]): row["mature"] == "True" for row in csv.DictReader(file)}
    n = len(labels)
    y = np.array([labels[user] for user in range(n)], dtype=np.int64)

    listed = read_table(edges, 2, np.int64, header=True).T
    loops = np.tile(np.arange(n), (2, 1))
    edge_index = np.concatenate([listed, listed[::-1], loops], axis=1)

    games = json.loads(features.read_text(encoding="utf-8"))
    owned = [sorted(set(games.get(str(user), ()))) for user in range(n)]
    rows = np.concatenate([[0], np.cumsum([len(ids) for ids in owned])])
    columns = np.array([game for ids in owned for game in ids], dtype=np.int64)
    ones = np.ones(len(columns), dtype=np.float32)
    return edge_index, sp.csr_array((ones, columns, rows), shape=(n, NUM_FEATURES)), y


def _parse(raw: RawFiles) -> Arrays:
    kinds = ("edges.csv", "features.json", "target.csv")
    regions = [
        read_region(*(raw.paths[f"twitch/{folder}/musae_{folder}_{kind}"] for kind in kinds))
        for folder in FOLDERS.values()
    ]
    edges, features, labels = zip(*regions, strict=True)
    sizes = [len(y) for y in labels]
    starts = np.cumsum([0, *sizes[:-1]])
    x = sp.vstack(features).tocsr()
    return {
        "columns": x.indices,
        "rows": x.indptr,
        "edge_index": np.concatenate([e + s for e, s in zip(edges, starts, strict=True)], axis=1),
        "y": np.concatenate(labels),
        "region": np.repeat(np.arange(len(sizes)), sizes),
    }
