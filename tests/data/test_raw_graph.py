import pickle

import pytest
import torch
from torch_geometric.data import Data

from canet.data.graph import is_graph
from canet.data.raw_graph import RawGraph


def test_columns_are_accessed_as_in_pyg() -> None:
    for graph in (RawGraph(x=torch.ones(2, 1), name="mine"), Data(torch.ones(2, 1), name="mine")):
        graph.y = torch.tensor([0, 1])
        graph["time"] = 3
        assert graph.y is graph["y"] is graph.get("y")
        assert graph.get("batch") is None
        assert graph.get("batch", 5) == 5
        assert "time" in graph
        assert "batch" not in graph
        assert {"x", "y", "name", "time"} <= set(graph.to_dict())
        assert is_graph(graph)
    assert not is_graph({"x": 1})
    assert pickle.loads(pickle.dumps(RawGraph(x=torch.ones(2)))).x.equal(torch.ones(2))


def test_a_missing_column_is_an_error() -> None:
    with pytest.raises(AttributeError, match="batch"):
        _ = RawGraph().batch
