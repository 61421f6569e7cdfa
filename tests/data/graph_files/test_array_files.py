import os
from collections import OrderedDict
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch_geometric.data import Data, HeteroData

from canet import read_graph
from canet.data.graph_files.arrays import open_arrays
from canet.errors import InputError
from canet.util import memory


def saved(folder: Path, content: Any) -> Path:
    torch.save(content, folder / "graph.pt")
    return folder / "graph.pt"


def test_pipes_and_archives_that_need_more_than_the_free_memory_are_rejected(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    np.savez_compressed(tmp_path / "graph.npz", x=np.zeros((1000, 1000)))
    torch.save(Data(x=torch.zeros(1000, 1000)), tmp_path / "graph.pt")
    monkeypatch.setattr("canet.util.memory.free_memory", lambda: 2**20)
    for name in ("graph.npz", "graph.pt"):
        with pytest.raises(InputError, match=f"{name}.* memory"):
            open_arrays(tmp_path / name)
        (tmp_path / name).unlink()
        os.mkfifo(tmp_path / name)
        with pytest.raises(InputError, match=name):
            open_arrays(tmp_path / name)


def test_a_data_object_with_tensors_is_loaded(tmp_path: Path) -> None:
    data = Data(x=torch.eye(2).to_sparse(), edge_index=torch.zeros(2, 0), names=["a", "b"])
    arrays = open_arrays(saved(tmp_path, data))
    assert arrays["x"].is_sparse
    assert arrays["names"] == ["a", "b"]


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        ((Data(x=torch.eye(2)), None), r"dataset\[0\]"),
        (OrderedDict(weight=torch.eye(2)), "OrderedDict"),
        (torch.eye(2), "Tensor"),
        (Data(y=np.array(["a"])), "numpy"),
        (HeteroData(), "to_homogeneous"),
    ],
)
def test_a_pt_file_with_other_content_is_rejected(
    tmp_path: Path, content: Any, problem: str
) -> None:
    path = saved(tmp_path, content)
    with pytest.raises(InputError, match=problem):
        open_arrays(path)


@pytest.mark.parametrize("name", ["x", "edge_index"])
def test_a_small_file_with_a_large_tensor_is_rejected(tmp_path: Path, name: str) -> None:
    parts = {"x": torch.ones(3, 2), "edge_index": torch.tensor([[0], [1]])}
    parts[name] = parts[name][:1, :1].expand(2**21, 2**21)  # one number in the file
    torch.save(Data(**parts), tmp_path / "graph.pt")
    with pytest.raises(InputError, match="memory"):
        read_graph(tmp_path / "graph.pt")


def test_features_that_do_not_fit_as_float32_are_rejected(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    edges = np.array([[0], [1]])
    np.savez_compressed(tmp_path / "graph.npz", x=np.ones((100, 100), bool), edge_index=edges)
    monkeypatch.setattr(memory, "free_memory", lambda: 20_000)
    with pytest.raises(InputError, match="float32"):
        read_graph(tmp_path / "graph.npz")
    monkeypatch.setattr(memory, "free_memory", lambda: 40_000)
    assert read_graph(tmp_path / "graph.npz").x.sum() == 10_000
