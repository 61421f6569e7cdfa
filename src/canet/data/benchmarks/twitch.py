"""Twitch: six friendship graphs of streamers, trained in three languages, tested in three others.

Labels belong to the user that `new_id` names. FR's target file repeats two users, so reading its
rows in order instead would shift almost every label; and the published statistics (34,120 nodes,
892,346 edges) count those two rows as nodes, with a self-loop each.
"""

from __future__ import annotations

import csv
import json
from pathlib import Path

import numpy as np
import scipy.sparse as sp
import torch
from torch_geometric.data import Data

from canet.data.benchmarks import sources
from canet.data.benchmarks.processed import Arrays, processed
from canet.data.benchmarks.raw import RawFiles, obtain
from canet.data.benchmarks.tables import read_table
from canet.data.splits import split_50_25_25
from canet.data.task import ShiftTask
from canet.errors import CanetError, first_line
from canet.util.sparse import from_scipy

READER_VERSION = 1
NUM_FEATURES = 3170
NUM_ID_REGIONS = 3
MULTI_HOT = "multi-hot"
FOLDERS = {"DE": "DE", "PT": "PTBR", "RU": "RU", "ES": "ES", "FR": "FR", "EN": "ENGB"}
"""Region → its folder; the first three are in distribution."""


def twitch_task(data_root: Path | None, data_seed: int, features: str | None) -> ShiftTask:
    """All regions as one disconnected graph; a node's environment is its region.

    Rows of features sum to one, as in the published loader; with `multi-hot` they hold ones.
    """
    raw = obtain(sources.FILES["twitch"], data_root)
    arrays = processed("twitch", f"{READER_VERSION} {raw.digest}", lambda: _parse(raw))
    region = torch.from_numpy(arrays["region"])
    shape = (region.numel(), NUM_FEATURES)
    values = np.ones(len(arrays["columns"]), dtype=np.float32)
    if features != MULTI_HOT:
        counts = np.diff(arrays["rows"])
        values /= np.repeat(counts, counts)
    in_distribution = region < NUM_ID_REGIONS
    train, valid, test_id = split_50_25_25(
        in_distribution.nonzero().flatten(), torch.Generator().manual_seed(data_seed)
    )
    regions = tuple(FOLDERS)
    return ShiftTask(
        name="twitch",
        data=Data(
            x=from_scipy(sp.csr_matrix((values, arrays["columns"], arrays["rows"]), shape=shape)),
            edge_index=torch.from_numpy(arrays["edge_index"]),
            y=torch.from_numpy(arrays["y"]),
            environment=region,
            num_nodes=region.numel(),
        ),
        train=train,
        valid=valid,
        test_id=test_id,
        test_ood={
            name: (region == index).nonzero().flatten()
            for index, name in enumerate(regions)
            if index >= NUM_ID_REGIONS
        },
        metric="roc_auc",
        in_distribution=in_distribution,
        shift="disconnected subgraphs",
        environments=regions,
        data_seed=data_seed,
        features=features or "original",
    )


def read_region(
    edges: Path, features: Path, target: Path
) -> tuple[np.ndarray, sp.csr_array, np.ndarray]:
    """One region's graph.

    Returns:
        Edges with both directions and one self-loop per node $[2, E]$, multi-hot features
        $[n, 3170]$, and labels (1: mature) $[n]$.
    """
    labels = _read_labels(target)
    n = len(labels)
    if set(labels) != set(range(n)):
        raise CanetError(f"'{target}' does not number its users 0 to {n - 1}: replace the file")
    y = np.array([labels[user] for user in range(n)], dtype=np.int64)

    listed = read_table(edges, 2, np.int64, header=True).T
    loops = np.tile(np.arange(n), (2, 1))
    edge_index = np.concatenate([listed, listed[::-1], loops], axis=1)

    games = _read_games(features)
    owned = [sorted(set(games.get(str(user), ()))) for user in range(n)]
    rows = np.concatenate([[0], np.cumsum([len(ids) for ids in owned])])
    columns = np.array([game for ids in owned for game in ids], dtype=np.int64)
    ones = np.ones(len(columns), dtype=np.float32)
    return edge_index, sp.csr_array((ones, columns, rows), shape=(n, NUM_FEATURES)), y


def _read_labels(path: Path) -> dict[int, bool]:
    """User → whether the stream is mature; of a user that is repeated, the last row."""
    try:
        with path.open(newline="", encoding="utf-8") as file:
            return {int(row["new_id"]): row["mature"] == "True" for row in csv.DictReader(file)}
    except (ValueError, KeyError, TypeError, csv.Error) as error:
        raise CanetError(f"'{path}' cannot be read ({first_line(error)}): replace it") from error


def _read_games(path: Path) -> dict[str, list[int]]:
    """User, as text → the games, by their number."""
    try:
        games = json.loads(path.read_text(encoding="utf-8"))
        known = range(NUM_FEATURES)
        if all(type(game) is int and game in known for owned in games.values() for game in owned):
            return dict(games)
        cause = f"games are numbered 0 to {NUM_FEATURES - 1}"
    except (ValueError, TypeError, AttributeError, RecursionError) as error:
        cause = first_line(error)
    raise CanetError(f"'{path}' cannot be read ({cause}): replace it")


def _parse(raw: RawFiles) -> Arrays:
    edges, features, labels, regions = [], [], [], []
    offset = 0
    for index, folder in enumerate(FOLDERS.values()):
        kinds = ("edges.csv", "features.json", "target.csv")
        paths = [raw.paths[f"twitch/{folder}/musae_{folder}_{kind}"] for kind in kinds]
        edge_index, x, y = read_region(*paths)
        edges.append(edge_index + offset)
        features.append(x)
        labels.append(y)
        regions.append(np.full(len(y), index))
        offset += len(y)
    x = sp.vstack(features).tocsr()
    return {
        "columns": x.indices,
        "rows": x.indptr,
        "edge_index": np.concatenate(edges, axis=1),
        "y": np.concatenate(labels),
        "region": np.concatenate(regions),
    }
