"""Cora, Citeseer and Pubmed from the raw Planetoid files, as spurious-feature tasks.

The files are pickles, which can run code. For security, only published files are read, which are
identified by their SHA-256. The unpickler accepts only arrays, sparse matrices and dicts of lists.
"""

import pickle
import warnings
from collections import defaultdict
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp
import torch
from torch_geometric.data import Data
from torch_geometric.utils import coalesce, remove_self_loops

from canet.data.benchmarks.dataset import Request, Statistics, published_files
from canet.data.benchmarks.files import RawFiles, obtain
from canet.data.benchmarks.processed import Arrays, processed
from canet.data.benchmarks.spurious import SpuriousDataset
from canet.errors import CanetError
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
"""All classes in the published pickles, under their old names."""


class Planetoid(SpuriousDataset):
    """A citation graph with bags of words, whose rows sum to one or are all zero.

    Edges have both directions, without duplicates and self-loops.
    """

    def read(self, request: Request) -> Data:
        raw = obtain(self.files, request.data_root)
        identity = f"{READER_VERSION} {raw.digest}"
        arrays = processed(self.name, identity, lambda: self._parse(raw))
        parts = (arrays["values"], arrays["columns"], arrays["rows"])
        x = from_scipy(sp.csr_matrix(parts, shape=tuple(arrays["shape"])))
        edge_index, y = torch.from_numpy(arrays["edge_index"]), torch.from_numpy(arrays["y"])
        return Data(x, edge_index, y=y)

    def _parse(self, raw: RawFiles) -> Arrays:
        def path(kind: str) -> Path:
            return raw.paths[f"planetoid/ind.{self.name}.{kind}"]

        def part(kind: str) -> Any:
            return load_pickle(path(kind))

        test = np.loadtxt(path("test.index"), dtype=np.int64)
        x, y = _arrange(part("allx"), part("tx"), test), _arrange(part("ally"), part("ty"), test)
        totals = np.asarray(x.sum(axis=1)).ravel()
        x = sp.diags_array(1 / np.where(totals > 0, totals, 1)).dot(x).tocsr()
        x.sort_indices()

        pairs = [(node, other) for node, others in part("graph").items() for other in others]
        edge_index, _ = remove_self_loops(torch.tensor(pairs).T)
        edge_index = coalesce(edge_index, num_nodes=x.shape[0], sort_by_row=False)
        return {
            "values": x.data.astype(np.float32),
            "columns": x.indices,
            "rows": x.indptr,
            "shape": np.array(x.shape),
            "edge_index": edge_index.numpy(),
            "y": y.toarray().argmax(axis=1),
        }


class Cora(Planetoid):
    name = "cora"
    description = "Cora citations, six domains with spurious features"
    files = published_files("planetoid/ind.cora.")
    statistics = Statistics(nodes=2708, edges=5429, classes=7, features=1433)


class Citeseer(Planetoid):
    name = "citeseer"
    description = "Citeseer citations, six domains with spurious features"
    files = published_files("planetoid/ind.citeseer.")
    statistics = Statistics(nodes=3327, edges=4732, classes=6, features=3703)


class Pubmed(Planetoid):
    name = "pubmed"
    description = "Pubmed citations, six domains with spurious features"
    files = published_files("planetoid/ind.pubmed.")
    statistics = Statistics(nodes=19717, edges=44338, classes=3, features=500)


def load_pickle(path: Path) -> Any:
    """Unpickle a published file."""
    with warnings.catch_warnings(), path.open("rb") as file:
        warnings.simplefilter("ignore")  # old names of dtypes
        return _Unpickler(file, encoding="latin1").load()


class _Unpickler(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        if (module, name) not in ALLOWED:
            raise CanetError(
                f"a pickle contains '{module}.{name}', which is not allowed: replace the file by "
                "the published one"
            )
        return ALLOWED[module, name]


def _arrange(known: sp.csr_matrix, test: sp.csr_matrix, test_index: np.ndarray) -> sp.csr_array:
    """Return the rows of all nodes: first `known`, then row i of `test` for node `test_index[i]`.

    Fifteen test nodes of Citeseer are in no file: their features and labels are zero.
    """
    start = known.shape[0]
    size = test_index.max() + 1 - start
    permutation = sp.csr_array(
        (np.ones(len(test_index)), (test_index - start, np.arange(len(test_index)))),
        shape=(size, len(test_index)),
    )
    return sp.vstack([sp.csr_array(known), permutation @ sp.csr_array(test)]).tocsr()
