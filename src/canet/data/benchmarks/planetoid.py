"""Cora, Citeseer and Pubmed from the raw Planetoid files, as spurious-feature tasks.

The files are pickles, which can run code. So each is read once, compared with the SHA-256 of the
published file, and unpickled by a reader that knows arrays, sparse matrices and dicts of lists and
nothing else.
"""

from __future__ import annotations

import hashlib
import io
import pickle
import warnings
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp
import torch
from torch import Tensor
from torch_geometric.utils import coalesce, remove_self_loops

from canet.data.benchmarks import sources
from canet.data.benchmarks.processed import Arrays, processed
from canet.data.benchmarks.raw import RawFiles, obtain
from canet.data.benchmarks.spurious import spurious_task
from canet.data.task import ShiftTask
from canet.errors import CanetError, first_line
from canet.util.sparse import from_scipy

READER_VERSION = 1

ALLOWED: dict[tuple[str, str], Any] = {
    ("numpy.core.multiarray", "_reconstruct"): np.empty(0).__reduce__()[0],
    ("numpy", "ndarray"): np.ndarray,
    ("numpy", "dtype"): np.dtype,
    ("scipy.sparse.csr", "csr_matrix"): sp.csr_matrix,
    ("collections", "defaultdict"): defaultdict,
    ("__builtin__", "list"): list,
}
"""All that the published pickles name, under the names of the time they were written."""


@dataclass(frozen=True)
class PlanetoidGraph:
    """One citation graph.

    Args:
        x: Bag of words, rows sum to one or are all zero, sparse CSR $[N, D]$.
        edge_index: Both directions of every edge, without duplicates and self-loops, $[2, E]$.
        y: Class ids $[N]$.
        num_listed_edges: Half the entries of the raw adjacency lists, duplicates and self-loops
            included: the count that publications give.
    """

    x: Tensor
    edge_index: Tensor
    y: Tensor
    num_listed_edges: int


def planetoid_task(
    name: str, data_root: Path | None, data_seed: int, protocol: str, generator: str = "shared"
) -> ShiftTask:
    """`cora`, `citeseer` or `pubmed` in six domains."""
    graph = read_planetoid(name, data_root)
    return spurious_task(name, graph.x, graph.edge_index, graph.y, data_seed, protocol, generator)


def read_planetoid(name: str, data_root: Path | None) -> PlanetoidGraph:
    """The graph `name`, parsed or from its processed copy."""
    raw = obtain(sources.FILES[name], data_root)
    arrays = processed(name, f"{READER_VERSION} {raw.digest}", lambda: _parse(name, raw))
    parts = (arrays["values"], arrays["columns"], arrays["rows"])
    return PlanetoidGraph(
        x=from_scipy(sp.csr_matrix(parts, shape=tuple(arrays["shape"]))),
        edge_index=torch.from_numpy(arrays["edge_index"]),
        y=torch.from_numpy(arrays["y"]),
        num_listed_edges=int(arrays["num_listed_edges"]),
    )


def load_pickle(path: Path, digest: str | None) -> Any:
    """Unpickle a published file, or refuse it if its SHA-256 is not `digest`."""
    content = path.read_bytes()
    if hashlib.sha256(content).hexdigest() != digest:
        raise CanetError(
            f"'{path}' is a pickle with an unknown checksum and is not opened: replace it by the "
            "published file"
        )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # dtypes spelt as in old pickles
        try:
            return _Unpickler(io.BytesIO(content), encoding="latin1").load()
        except Exception as error:  # what is damaged fails in many ways
            raise CanetError(f"'{path}' is not opened: {first_line(error)}; replace it") from error


class _Unpickler(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        if (module, name) not in ALLOWED:
            raise pickle.UnpicklingError(f"it names '{module}.{name}', which no data file needs")
        return ALLOWED[module, name]


def _parse(name: str, raw: RawFiles) -> Arrays:
    def part(kind: str) -> Any:
        path = f"planetoid/ind.{name}.{kind}"
        known = sources.KNOWN.get(path)
        return load_pickle(raw.paths[path], known.sha256 if known else None)

    test = np.loadtxt(raw.paths[f"planetoid/ind.{name}.test.index"], dtype=np.int64)
    x, y = _arrange(part("allx"), part("tx"), test), _arrange(part("ally"), part("ty"), test)
    totals = np.asarray(x.sum(axis=1)).ravel()
    x = sp.diags_array(1 / np.where(totals > 0, totals, 1)).dot(x).tocsr()
    x.sort_indices()

    neighbours = part("graph")
    lengths = [len(listed) for listed in neighbours.values()]
    listed = np.stack(
        [np.repeat(list(neighbours), lengths), np.concatenate(list(neighbours.values()))]
    )
    edge_index, _ = remove_self_loops(torch.from_numpy(listed.astype(np.int64)))
    edge_index = coalesce(edge_index, num_nodes=x.shape[0], sort_by_row=False)
    return {
        "values": x.data.astype(np.float32),
        "columns": x.indices,
        "rows": x.indptr,
        "shape": np.array(x.shape),
        "edge_index": edge_index.numpy(),
        "y": y.toarray().argmax(axis=1),
        "num_listed_edges": np.array(sum(lengths) // 2),
    }


def _arrange(known: Any, test: Any, test_index: np.ndarray) -> sp.csr_array:
    """Rows of nodes in their order: `known` first, then row i of `test` for node `test_index[i]`.

    Fifteen of Citeseer's test nodes are in no file: their rows are zero, and so is their label.
    """
    start = known.shape[0]
    size = test_index.max() + 1 - start
    place = sp.csr_array(
        (np.ones(len(test_index)), (test_index - start, np.arange(len(test_index)))),
        shape=(size, len(test_index)),
    )
    return sp.vstack([sp.csr_array(known), place @ sp.csr_array(test)]).tocsr()
