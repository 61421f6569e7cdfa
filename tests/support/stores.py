"""Small graph stores for tests."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from canet import GraphStore, GraphStoreWriter

NUM_NODES = 120
NAMES = np.array(["ant", "bee", "cat"])


def write_store(
    path: Path,
    *,
    kind: str = "dense",
    weighted: bool = False,
    splits: tuple[str, ...] = ("train", "valid", "test", "far"),
    num_classes: int = 3,
    undirected: bool = True,
    node_id: bool = False,
    **parts: Any,
) -> GraphStore:
    """Write a graph whose classes depend on the features, with self-loops and a hub.

    `kind` is that of the features: dense, half or sparse. Nodes are split in turns; every tenth has
    no label, and belongs to a split all the same.
    """
    random = np.random.default_rng(3)
    labels = np.arange(NUM_NODES) % num_classes
    x = np.eye(num_classes, 6, dtype=np.float32)[labels] + random.random((NUM_NODES, 6)) * 0.8
    x = x.astype(np.float16 if kind == "half" else np.float32)
    source, target = random.integers(NUM_NODES, size=(2, 5 * NUM_NODES))
    target[:60] = 7
    with GraphStoreWriter(path, NUM_NODES, undirected=undirected) as writer:
        loops = np.arange(0, NUM_NODES, 5)
        ends = np.concatenate([source, loops]), np.concatenate([target, loops])
        weight = (random.random(len(ends[0])) + 0.5).astype(np.float32) if weighted else None
        writer.add_edges(*ends, weight)
        dropped = np.where(x > 0.5, x, 0)
        writer.add_features(torch.from_numpy(dropped).to_sparse_csr() if kind == "sparse" else x)
        known = np.arange(NUM_NODES) % 10 != 9
        if num_classes:
            writer.set_labels(np.where(known, NAMES[labels], None))
        if splits:
            writer.set_split(np.array(splits)[np.arange(NUM_NODES) // 2 % len(splits)])
        if node_id:
            writer.set_node_id(np.array([f"node {i}" for i in range(NUM_NODES)]))
        for name, values in parts.items():
            getattr(writer, f"set_{name}")(values)
    return GraphStore(path)


def never_load(monkeypatch: pytest.MonkeyPatch) -> None:
    """From now on, reading a store into memory is an error."""

    def fail(store: GraphStore) -> None:
        raise AssertionError("the store was read into memory")

    monkeypatch.setattr(GraphStore, "load", fail)
