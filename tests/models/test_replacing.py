"""Predictions with columns of other nodes are those of a graph that has them."""

from typing import Any, get_args

import numpy as np
import pytest
import torch

from canet.estimator.classifier import NodeClassifier
from canet.methods import METHODS
from canet.methods.base import Scaling
from canet.models import Average
from canet.nn import BACKBONES
from tests.support.nearest_mean import NearestMean
from tests.support.planted import random_graph

CASES: dict[str, dict[str, Any]] = {
    **{f"erm-{name}": {"backbone": name} for name in BACKBONES},
    **{f"canet-{name}": {"method": "canet", "backbone": name} for name in ("gcn", "gat")},
    "linear": {"method": "linear"},
    "linear, own columns": {"method": "linear", "neighbours": False},
    "trees": {"method": "trees"},
    "trees, wide": {"method": "trees", "columns": 40},
    "another": {"method": NearestMean},
}


@pytest.mark.parametrize("sparse", [False, True], ids=["dense", "sparse"])
@pytest.mark.parametrize("case", CASES)
def test_replaced_columns_give_the_logits_of_replaced_features(case: str, sparse: bool) -> None:
    params = {"method": "erm"} | CASES[case]
    params |= {"epochs": 1, "hidden": 8} if params["method"] in METHODS else {}
    data, columns = random_graph(n=60, columns=params.pop("columns", 6)), np.array([0, 3, 4])
    data.x, full = data.x.relu(), data.x.relu()
    if sparse:
        data.x = full.to_sparse_csr()
    model = NodeClassifier(**params, undirected=False, device="cpu").fit(data)
    fitted, graph = model.fitted_, model.prepare(data).graph
    donors = np.random.default_rng(0).permutation(60)
    x = full.clone()
    x[:, columns] = full[donors][:, columns]
    other = graph.with_features(x.to_sparse_csr() if sparse else x)
    nodes, before = torch.tensor([7, 3, 50]), model.predict_proba(data)
    average = Average([fitted, fitted], [0.5, 0.5])
    for one in (fitted, average):
        found = one.replacing(graph, nodes)(columns)(donors)
        torch.testing.assert_close(found, one.read(other, nodes).logits, atol=1e-5, rtol=1e-4)
        kept = one.replacing(graph, nodes)(columns)(np.arange(60))
        torch.testing.assert_close(kept, one.read(graph, nodes).logits, atol=1e-5, rtol=1e-4)
    assert np.array_equal(model.predict_proba(data), before)


LEARNERS: dict[str, dict[str, Any]] = {
    "erm": {"method": "erm", "epochs": 1, "hidden": 8},
    "linear": {"method": "linear"},
    "linear, own columns": {"method": "linear", "neighbours": False},
    "trees": {"method": "trees", "max_trees": 5},
    "trees, wide": {"method": "trees", "max_trees": 5, "columns": 40},
}


@pytest.mark.parametrize("several", [False, True], ids=["one graph", "several graphs"])
@pytest.mark.parametrize("scaling", get_args(Scaling))
@pytest.mark.parametrize("case", LEARNERS)
def test_columns_are_replaced_before_they_are_scaled(
    case: str, scaling: str, several: bool
) -> None:
    params = LEARNERS[case] | {"scaling": scaling}
    data, columns = random_graph(n=60, columns=params.pop("columns", 6)), np.array([0, 3, 4])
    data.x[::7, [1, 2, 5]] = 0  # rows of which the other columns are empty
    if several:
        data.batch = torch.arange(60) // 20
        data.edge_index = data.edge_index[:, data.batch[data.edge_index].diff(dim=0)[0] == 0]
    random, nodes = np.random.default_rng(0), torch.tensor([7, 3, 50])
    for sparse in (False, True):
        graph = data.clone()
        graph.x = data.x.to_sparse_csr() if sparse else data.x
        model = NodeClassifier(**params, undirected=False, device="cpu").fit(graph)
        change = model.fitted_.replacing(model.prepare(graph).graph, nodes)(columns)
        for donors in (random.permutation(60), random.integers(60, size=60)):
            x = data.x.clone()
            x[:, columns] = data.x[donors][:, columns]
            graph.x = x.to_sparse_csr() if sparse else x
            expected = torch.from_numpy(model.predict_proba(graph, nodes=nodes.numpy()))
            found = change(donors).double().softmax(dim=1)
            torch.testing.assert_close(found, expected, atol=1e-5, rtol=1e-4)
