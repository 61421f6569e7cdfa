import os
import pickle
from collections import defaultdict
from pathlib import Path

import numpy as np
import pytest
import torch
from torch_geometric.data import Data
from torch_geometric.io import read_planetoid_data

from canet.data import DATASETS
from canet.data.benchmarks.dataset import Request
from canet.data.benchmarks.planetoid import Planetoid, load_pickle
from canet.errors import CanetError
from canet.util.files import sha256

NAMES = ["cora", "citeseer", "pubmed"]


def read_planetoid(name: str, data_root: Path) -> Data:
    dataset = DATASETS[name]
    assert isinstance(dataset, Planetoid)
    return dataset.read(Request(data_root, 0, "paper", None, False, "shared"))


@pytest.mark.parametrize("name", NAMES)
def test_graph_equals_that_of_pyg_with_row_normalised_features(name: str, data_root: Path) -> None:
    graph = read_planetoid(name, data_root)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("warnings.filterwarnings", lambda *_: None)
        oracle = read_planetoid_data(str(data_root / "planetoid"), name)
    assert graph.y.equal(oracle.y)
    assert graph.edge_index.equal(oracle.edge_index)
    totals = oracle.x.sum(dim=1, keepdim=True)
    torch.testing.assert_close(graph.x.to_dense(), oracle.x / totals.clamp(min=1e-9))


def test_citeseer_nodes_in_no_file_have_zero_features_and_label(data_root: Path) -> None:
    graph = read_planetoid("citeseer", data_root)
    listed = np.loadtxt(data_root / "planetoid" / "ind.citeseer.test.index", dtype=int)
    absent = sorted(set(range(listed.min(), listed.max() + 1)) - set(listed.tolist()))
    assert len(absent) == 15
    assert not graph.x.to_dense()[absent].any()
    assert not graph.y[absent].any()


class Malicious:
    def __init__(self, trace: Path) -> None:
        self.trace = trace

    def __reduce__(self) -> tuple:
        return os.system, (f"touch '{self.trace}'",)


def test_pickles_of_adjacency_lists_are_read(tmp_path: Path) -> None:
    path = tmp_path / "ind.cora.graph"
    path.write_bytes(pickle.dumps(defaultdict(list, {0: [1], 1: [0]}), protocol=2))
    assert load_pickle(path) == {0: [1], 1: [0]}


@pytest.mark.parametrize("forged", [True, False])
def test_data_root_with_malicious_pickles_is_rejected(
    forged: bool, tmp_path: Path, fresh_cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = DATASETS["cora"].files
    for file in files:
        path = tmp_path / file.path
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(pickle.dumps(Malicious(tmp_path / "trace")))
    (tmp_path / "planetoid" / "ind.cora.test.index").write_text("0\n")
    if forged:
        known = tuple(file._replace(sha256=sha256(tmp_path / file.path)) for file in files)
        monkeypatch.setattr(DATASETS["cora"], "files", known)
    with pytest.raises(CanetError, match="system" if forged else "checksum"):
        read_planetoid("cora", tmp_path)
    assert not (tmp_path / "trace").exists()
