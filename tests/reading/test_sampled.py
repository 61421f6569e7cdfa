"""A diagnosis of a graph store that does not fit into memory."""

from pathlib import Path

import numpy as np
import pytest
import torch

import canet
from canet import GraphStore, NodeClassifier
from canet.diagnosis import graph
from canet.diagnosis.graph import read_graph
from canet.models import portfolio
from canet.models.portfolio import Recipe
from canet.reading import sampled
from canet.reading.prepared import PreparedGraph
from tests.support.stores import NUM_NODES, never_load, write_store

MODELS = (
    Recipe("linear", changes={"scaling": "standardised"}),
    Recipe("trees", changes={"max_trees": 3}),
    Recipe("erm", "gcn", {"scaling": "standardised"}),
)


def fitted(store: GraphStore, monkeypatch: pytest.MonkeyPatch) -> NodeClassifier:
    monkeypatch.setitem(portfolio.PRESETS, "robust", MODELS)
    return NodeClassifier(epochs=5, undirected=True, device="cpu").fit(store.load())


@pytest.mark.filterwarnings("ignore:.* were training nodes")
@pytest.mark.parametrize("has_training", [True, False])
@pytest.mark.parametrize("kind", ["dense", "sparse"])
def test_with_all_neighbours_of_all_nodes_it_is_that_of_the_graph_in_memory(
    kind: str, has_training: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = write_store(tmp_path / "store", kind=kind, weighted=True)
    model = fitted(store, monkeypatch)
    before = store if has_training else None
    expected = canet.diagnose(model, before, store, repeats=2)
    probabilities = model.predict_proba(store)
    monkeypatch.setattr(graph, "fits_in_memory", lambda _: False)
    monkeypatch.setattr(sampled, "FANOUT", (NUM_NODES,))
    never_load(monkeypatch)
    part = read_graph(model, store)
    np.testing.assert_allclose(part.probabilities, probabilities, atol=1e-5)
    found = canet.diagnose(model, before, store, repeats=2)
    assert found.graphs == expected.graphs
    assert found.quantities == pytest.approx(expected.quantities, abs=1e-4)
    one, other = found.reliance, expected.reliance
    sizes = {effect.name: effect.size.value for effect in other.features}
    assert {e.name: e.size.value for e in one.features} == pytest.approx(sizes, abs=1e-4)


def test_a_part_has_some_nodes_with_their_degrees(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = write_store(tmp_path / "store")
    model = fitted(store, monkeypatch)
    monkeypatch.setattr(graph, "fits_in_memory", lambda _: False)
    monkeypatch.setattr(graph, "MAX_NODES", 4)
    monkeypatch.setattr(sampled, "FANOUT", (2, 1))
    part = read_graph(model, store, nodes=np.arange(NUM_NODES) > 9)
    assert part.rows.size == 4
    assert part.num_nodes < NUM_NODES
    assert part.size == (store.num_nodes, store.num_edges + store.num_loops)
    assert part.degree.tolist() == store.csr.degree(torch.from_numpy(part.node_id)).tolist()
    found = canet.diagnose(model, new_data=store, nodes=store.nodes("far"), repeats=2)
    assert found.graphs["new"][0] == NUM_NODES


def test_sums_over_drawn_neighbours_are_correct_on_average(tmp_path: Path) -> None:
    store = write_store(tmp_path / "store", weighted=True)
    whole = PreparedGraph(canet.data.graph.check_graph(store.open()))
    nodes = torch.arange(10)
    part, ids = sampled.sampled_part(whole, nodes, nodes, 1)
    edges, weight = part.data.edge_index, part.data.edge_weight
    total = torch.zeros(len(ids)).index_add_(0, edges[1], weight)
    csr = store.csr
    for node in nodes.tolist():
        own = csr.weight[csr.rowptr[node] : csr.rowptr[node + 1]]
        if len(own) <= sampled.FANOUT[0]:
            place = int(torch.searchsorted(ids, node))
            assert float(total[place]) == pytest.approx(float(own.sum() + csr.loops[node]))
