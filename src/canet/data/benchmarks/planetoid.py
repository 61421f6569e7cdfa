"""Cora, Citeseer and Pubmed from the raw Planetoid files, as spurious-feature tasks.

The files are pickles, which can run code. For security, only published files are read, which are
identified by their SHA-256. The unpickler accepts only arrays, sparse matrices and dicts of lists.
"""

from __future__ import annotations

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

from canet.data.benchmarks.dataset import RawFile, Request, Statistics
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

URL = "https://github.com/kimiyoung/planetoid/raw/master/data/"
SHA256 = {
    "cora allx": "9419ba2f26f5c35243db64aba110e0f35a04851609e0dc5433450676ca6b8543",
    "cora ally": "2b998f5cc7fedc86e7f97ca2498f47a1ffc1462c29e2d578b23bf3f62b6e7d71",
    "cora tx": "b9afbaa4a400df991f6f02ef677e1e44da55ffc04801fd02f9e673987829226a",
    "cora ty": "41f5ac76596a1699cc33f53084a2419e92961c42bb75f36fc38e616d348532ad",
    "cora graph": "58f13302f39dde8852dad6fe6d15b89b077b6d7f837626bce671ef80344b383d",
    "cora test.index": "297ce89af2b51a6a194181c7dbe1796c6a1cf9cd9349a88383b1b1e227867875",
    "citeseer allx": "2ac30345d95c9ec933a817ee0bdd6a5f077f8c184a20e696910192d534414668",
    "citeseer ally": "f704b2d986dde6c2669934de1f3ae5696a6cf9455c0f6b2646a2d135ea0a1c95",
    "citeseer tx": "539a8906a2da97628d212f2fdd668c109a8b3f0d36574b59e5d3fd5b5303da21",
    "citeseer ty": "55e5bd1ba1e733a04598753ad1a8d57957f4b8f89e74519f41f4f4938767e4ce",
    "citeseer graph": "d79a4ef9d3e7169aee8946145f6b7306e35bc79bffad26346cfb94e10e9912a7",
    "citeseer test.index": "2af990671580b6b2df5d158d1038f8292e30c9cd821b5453f399659b25b723d4",
    "pubmed allx": "508e538e2abdccdd54c4d3e9f49d638b4af7107d85845f66ddea5a5152658b7e",
    "pubmed ally": "0c37bbe3b5014ec365e9d393cf4791925e5ed94fb194305d74f064a8d7b50f0e",
    "pubmed tx": "4eb5f5d0f30f26497eb0ac6ac9719d09c67e284f1ed0385c93f3ef27a671da3d",
    "pubmed ty": "ee2e0d4819d9fbcc403689c3bf2e49face401b605932f093bc58ab6461130fdd",
    "pubmed graph": "5b89f0036ca22909471f1e6558eb42fa06e0c730a577bde5b058b40638f81dc9",
    "pubmed test.index": "b101d421688bbaecbd82e8a18f1e282378d6830f3a37666f28ebc47f844341b5",
}
"""Graph and part → checksum of the file.

The published files `x` and `y` are not needed: they repeat rows of `allx` and `ally`.
"""


def raw_files(name: str) -> tuple[RawFile, ...]:
    """Return the files of one graph."""
    return tuple(
        RawFile(f"planetoid/{file}", URL + file, sha256)
        for part, sha256 in SHA256.items()
        if part.startswith(f"{name} ")
        for file in [f"ind.{part.replace(' ', '.')}"]
    )


class Planetoid(SpuriousDataset):
    """A citation graph.

    Features are bags of words whose rows sum to one or are all zero. Edges have both directions,
    without duplicates and self-loops.
    """

    def read(self, request: Request) -> Data:
        raw = obtain(self.files, request.data_root)
        identity = f"{READER_VERSION} {raw.digest}"
        arrays = processed(self.name, identity, lambda: self._parse(raw))
        parts = (arrays["values"], arrays["columns"], arrays["rows"])
        return Data(
            x=from_scipy(sp.csr_matrix(parts, shape=tuple(arrays["shape"]))),
            edge_index=torch.from_numpy(arrays["edge_index"]),
            y=torch.from_numpy(arrays["y"]),
        )

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
        }


class Cora(Planetoid):
    name = "cora"
    description = "Cora citations, six domains with spurious features"
    files = raw_files("cora")
    statistics = Statistics(nodes=2708, edges=5429, classes=7, features=1433)
    canet_settings = {
        "gcn": {"weight_decay": 5e-5, "tau": 1.0, "dropout": 0.2},
        "gat": {"weight_decay": 0.0, "tau": 3.0, "dropout": 0.2},
    }


class Citeseer(Planetoid):
    name = "citeseer"
    description = "Citeseer citations, six domains with spurious features"
    files = raw_files("citeseer")
    statistics = Statistics(nodes=3327, edges=4732, classes=6, features=3703)
    canet_settings = {
        "gcn": {"weight_decay": 5e-5, "tau": 1.0, "dropout": 0.1},
        "gat": {"weight_decay": 0.0, "tau": 3.0, "dropout": 0.2},
    }


class Pubmed(Planetoid):
    name = "pubmed"
    description = "Pubmed citations, six domains with spurious features"
    files = raw_files("pubmed")
    statistics = Statistics(nodes=19717, edges=44338, classes=3, features=500)
    canet_settings = {
        "gcn": {"weight_decay": 5e-5, "tau": 2.0, "dropout": 0.2},
        "gat": {"weight_decay": 5e-5, "tau": 1.0, "dropout": 0.2},
    }


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


def _arrange(known: Any, test: Any, test_index: np.ndarray) -> sp.csr_array:
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
