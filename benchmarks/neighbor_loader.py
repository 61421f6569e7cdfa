"""Compare our sampler with PyG's `NeighborLoader`: `python -m benchmarks.neighbor_loader`.

`NeighborLoader` needs torch-sparse, which has no wheels on PyPI and is built from source for this
comparison only: `pip install --no-build-isolation torch-scatter torch-sparse`. Both draw the same
numbers of neighbours of the same nodes, in this process, and read their features.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterable, Iterator
from statistics import median
from typing import Any

import torch
from torch_geometric.data import Data
from torch_geometric.loader import NeighborLoader

from benchmarks.rmat import RMat
from benchmarks.scale import BATCH, CPU_FANOUT, DEGREE, FEATURES
from canet.nn import NormalisedGraph, Operator
from canet.util.sparse import Csr

NUM_BATCHES = 60


def main(num_nodes: int = 1_000_000) -> None:
    """Print the median milliseconds per batch for one and two threads."""
    graph = RMat(num_nodes, DEGREE * num_nodes, FEATURES)
    rowptr, source = graph.neighbours()
    y = graph.labels()
    x = torch.cat(list(graph.features(y)))
    seeds = torch.randperm(num_nodes, generator=torch.Generator().manual_seed(0))
    seeds = seeds[: NUM_BATCHES * BATCH]
    target = torch.arange(num_nodes).repeat_interleave(rowptr.diff())
    data = Data(x=x, edge_index=torch.stack([source.long(), target]), y=y)
    sampled = NormalisedGraph(Csr(rowptr, source), num_nodes, [Operator("mean")])

    def ours() -> Iterator[Any]:
        for number, nodes in enumerate(seeds.split(BATCH)):
            field = sampled.sampled_field(nodes, CPU_FANOUT, number)
            yield field, x[field.nodes], y[nodes]

    def pyg(replace: bool) -> Iterable[Any]:
        options = {"batch_size": BATCH, "input_nodes": seeds, "replace": replace}
        return NeighborLoader(data, list(CPU_FANOUT), **options)

    for threads in (1, 2):
        torch.set_num_threads(threads)
        times = {
            "canet": milliseconds(ours()),
            "NeighborLoader with replacement": milliseconds(pyg(True)),
            "NeighborLoader without replacement": milliseconds(pyg(False)),
        }
        print(f"{threads} thread(s), ms per batch:", {k: round(v, 1) for k, v in times.items()})


def milliseconds(batches: Iterable[Any]) -> float:
    """Return the median time per batch."""
    found, begin = [], time.perf_counter()
    for _ in batches:
        found.append(time.perf_counter() - begin)
        begin = time.perf_counter()
    return 1000 * median(found)


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
