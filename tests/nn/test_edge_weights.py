"""Edge weights: an edge of weight w counts like w edges, in every backbone."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor
from torch_geometric.data import Data

import canet
from canet.errors import InputError
from canet.methods import BACKBONES, get_method
from canet.nn import NormalisedGraph
from tests.support.networks import EDGES, NUM_CLASSES, NUM_FEATURES, NUM_NODES

backbones = pytest.mark.parametrize("backbone", BACKBONES)
methods = pytest.mark.parametrize("method", ["erm", "canet"])


def new_model(method: str, backbone: str) -> torch.nn.Module:
    kind = get_method(method)
    torch.manual_seed(0)
    made = kind(kind.settings_type(hidden=8), BACKBONES[backbone], NUM_FEATURES, NUM_CLASSES, 0)
    return made.model.double().eval()


@methods
@backbones
def test_whole_weights_equal_repeated_edges(method: str, backbone: str) -> None:
    model, x = new_model(method, backbone), torch.randn(NUM_NODES, NUM_FEATURES)
    times = torch.arange(EDGES.shape[1]) % 4
    repeated = EDGES.repeat_interleave(times, dim=1)
    one_graph = torch.zeros(NUM_NODES, dtype=torch.long)
    weighted = model(x, EDGES, times.double(), batch=one_graph)
    expected = model(x, repeated, batch=one_graph)
    assert weighted.detach().numpy() == pytest.approx(expected.detach().numpy(), abs=1e-12)
    if backbone != "mlp":
        assert not torch.allclose(weighted, model(x, EDGES, batch=one_graph))


@methods
@backbones
def test_a_receptive_field_keeps_the_weights(method: str, backbone: str) -> None:
    model, x = new_model(method, backbone), torch.randn(NUM_NODES, NUM_FEATURES)
    weights = torch.linspace(0.1, 3, EDGES.shape[1])
    graph = NormalisedGraph(EDGES, NUM_NODES, model.operators, edge_weight=weights)
    field = graph.receptive_field(torch.tensor([7, 2]), model.num_layers)
    some = model(x[field.nodes], field.blocks).logits
    assert torch.allclose(some, model(x, EDGES, weights)[[7, 2]], atol=1e-12)


@pytest.mark.parametrize("weights", [torch.ones(3), -torch.ones(EDGES.shape[1])])
def test_a_model_rejects_invalid_weights(weights: Tensor) -> None:
    with pytest.raises(InputError, match="edge_weight"):
        new_model("erm", "gcn")(torch.ones(NUM_NODES, NUM_FEATURES), EDGES, weights)


def user_graph(seed: int = 0, n: int = 60) -> Data:
    generator = torch.Generator().manual_seed(seed)
    edges = torch.randint(n, (2, 200), generator=generator)
    return Data(
        x=torch.randn(n, 5, generator=generator, dtype=torch.float32),
        edge_index=torch.cat([edges, edges[:, :9]], dim=1),
        y=torch.arange(n) % 3,
    )


@methods
@backbones
def test_weights_of_one_give_the_bits_without_weights(method: str, backbone: str) -> None:
    torch.set_default_dtype(torch.float32)
    settings: dict[str, Any] = {"epochs": 1, "hidden": 8, "undirected": method == "canet"}
    plain, weighted = user_graph(), user_graph()
    weighted.edge_weight = torch.ones(weighted.num_edges)
    first, second = (
        canet.NodeClassifier(method, backbone, **settings).fit(data).decision_function(data)
        for data in (plain, weighted)
    )
    assert np.array_equal(first, second)


@pytest.mark.filterwarnings("ignore:few edges")
def test_a_weighted_model_is_saved_and_diagnosed(tmp_path: Path) -> None:
    torch.set_default_dtype(torch.float32)
    data = user_graph()
    data.edge_weight = torch.rand(data.num_edges)
    model = canet.NodeClassifier("canet", "gat", epochs=3, hidden=8).fit(data)
    model.save(tmp_path / "model")
    again = canet.load(tmp_path / "model")
    expected = model.predict_proba(data)
    assert np.array_equal(again.predict_proba(data), expected)
    data.edge_weight = torch.ones(data.num_edges)
    assert not np.allclose(model.predict_proba(data), expected)
    assert canet.diagnose(model, data, repeats=1).reliance.edges.changed.value > 0


@pytest.mark.filterwarnings("ignore:few edges")
def test_a_method_that_edits_edges_rejects_weights() -> None:
    torch.set_default_dtype(torch.float32)
    data = user_graph()
    data.edge_weight = torch.rand(data.num_edges)
    with pytest.raises(InputError, match="cannot use edge weights"):
        canet.NodeClassifier("eerm", epochs=1).fit(data)
    data.edge_weight[3] = -1
    with pytest.raises(InputError, match="edge_weight 3 is -1"):
        canet.NodeClassifier("erm", epochs=1).fit(data)
