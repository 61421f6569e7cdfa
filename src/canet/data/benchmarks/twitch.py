"""Twitch: six friendship graphs of streamers, trained on three languages, tested on three others.

Protocols such as `without-de` train on all languages except one and test on that one, and those
such as `only-de` train on one and test on the others.

Labels are assigned by user id (`new_id`). The target file of FR contains two users twice, so
assigning labels in the order of its rows would give almost every user a wrong label. The published
statistics (34,120 nodes, 892,346 edges) count the two repeated rows as nodes with a self-loop.
"""

from __future__ import annotations

import csv
import json
from pathlib import Path

import numpy as np
import scipy.sparse as sp
import torch
from torch_geometric.data import Data

from canet.data.benchmarks.dataset import Dataset, RawFile, Request, Statistics
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

URL = "https://snap.stanford.edu/data/twitch.zip"
SHA256 = {
    "DE edges.csv": "54feaf3e3e70a485fe07f8611e4d2677841b97f77b8358204bcf4a48cc884d86",
    "DE features.json": "7b39c42570f05cd46017c765df8d8a1bc03f19787c3eb0f9684f50a52476ae3a",
    "DE target.csv": "2188f58a093bb9db363d3eaf7c3a52c2adc8ff6b23cbcb4f53875f87061c0321",
    "PTBR edges.csv": "b72d93a3c8a82883771a2f3822fce229885fa0d40367fb105c0535fb36c773b9",
    "PTBR features.json": "12ba6c60ce009b1bec8fd5ad110539775d14a2b96011df19ba9f72ad1393a406",
    "PTBR target.csv": "ecba7d1287e72ae7c3f42c922be475283288c0c67346245c72109690460444bd",
    "RU edges.csv": "fd307587a550289f746056ea12a7336171ab2053c9e08c42dba77499126ca5b2",
    "RU features.json": "c5357468471545a6169de463ef706f321446dc667d9d62d49e68c0b3feef9675",
    "RU target.csv": "db7617528355be994352e491e7b25d060fed466d0d81c09cadd90fa10f15c071",
    "ES edges.csv": "17801d2cc45fc4909a431ce7a190c0565d4af87b0548ca7705cf2bef7da4c884",
    "ES features.json": "598a610ef7e0469c5ad800c11f7ad89797e6a27d7d66b670782a5516cc344725",
    "ES target.csv": "f843427bae58289100e78c6c211fa4a1ae0d5fbf2c665841df9e390b00dcffb5",
    "FR edges.csv": "9924263f7e8edaa7278dcbc37bd90c8712cb0ea1726d85e054a5588b7959f887",
    "FR features.json": "b6ecbefd5606f46d30a9b4be7b574e5427d9e0314f1bd6a1861942ae718d3573",
    "FR target.csv": "dd0a9e7ba565cbb95ae66003892709742bd08c26387656e3e235fc25205663b4",
    "ENGB edges.csv": "5ea4d7f7267454e9523577eb2a9b4dcb7a22dd660a548240f01b815d08e0e3cc",
    "ENGB features.json": "efcd846f7b687d299c9c674f3cda43cd70de8307d2558895bddd3645eb38d500",
    "ENGB target.csv": "e9d51399878216d2dd662b0a152b602cccde7b5cbb8452cb91d9379f64114443",
}
"""Folder and kind of a raw file → its checksum."""


def _raw_file(key: str, sha256: str) -> RawFile:
    """Return the raw file of a key of `SHA256`.

    The name of DE's features in the archive does not contain `_features`.
    """
    folder, kind = key.split()
    path = f"twitch/{folder}/musae_{folder}_{kind}"
    return RawFile(path, URL, sha256, (path, path.replace("_features", "")))


class Twitch(Dataset):
    """All regions as one disconnected graph; the environment of a node is its region."""

    name = "twitch"
    description = "friends among streamers of six languages: explicit language or not"
    shift = "disconnected subgraphs"
    metric = "roc_auc"
    protocols = tuple(SHIFTED)
    ood_sets = tuple(f"ood/{region}" for region in SHIFTED["paper"])
    files = tuple(_raw_file(key, sha256) for key, sha256 in SHA256.items())
    statistics = Statistics(nodes=34118, edges=892344, classes=2, features=3170)
    features = (MULTI_HOT,)
    quick_epochs = 30
    shared_settings = {"loss": "binary_cross_entropy"}
    canet_settings = {
        "gcn": {"weight_decay": 5e-5, "tau": 3.0, "dropout": 0.0, **shared_settings},
        "gat": {"weight_decay": 5e-5, "tau": 2.0, "dropout": 0.0, **shared_settings},
    }

    def load(self, request: Request) -> ShiftTask:
        """Load the task. Rows of features sum to one, as in the published loader, or contain ones
        (`multi-hot`).
        """
        raw = obtain(self.files, request.data_root)
        arrays = processed("twitch", f"{READER_VERSION} {raw.digest}", lambda: _parse(raw))
        region = torch.from_numpy(arrays["region"])
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
            data=Data(
                x=from_scipy(x),
                edge_index=torch.from_numpy(arrays["edge_index"]),
                y=torch.from_numpy(arrays["y"]),
                environment=region,
                num_nodes=region.numel(),
            ),
            test_ood=test_ood,
            in_distribution=in_distribution,
            environments=REGIONS,
        )


def read_region(
    edges: Path, features: Path, target: Path
) -> tuple[np.ndarray, sp.csr_array, np.ndarray]:
    """Read the graph of one region.

    Returns:
        Edges with both directions and one self-loop per node $[2, E]$, multi-hot features
        $[n, 3170]$, and labels (1: mature) $[n]$.
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
