"""Our sampler in PyG's `NodeLoader`."""

from __future__ import annotations

import torch
from torch_geometric.data import Data
from torch_geometric.loader import NodeLoader
from torch_geometric.utils import k_hop_subgraph

from canet.nn import GCN
from canet.nn.pyg_sampler import NeighbourSampler

N = 60


def graph() -> Data:
    random = torch.Generator().manual_seed(0)
    edges = torch.randint(N, (2, 400), generator=random)
    return Data(
        x=torch.arange(N, dtype=torch.get_default_dtype()).view(-1, 1),
        edge_index=edges,
        edge_attr=torch.arange(400),
        y=torch.arange(N) % 3,
    )


def test_batches_of_a_loader_are_subgraphs_of_the_graph() -> None:
    data = graph()
    sampler = NeighbourSampler(data, [4, 3])
    loader = NodeLoader(data, node_sampler=sampler, input_nodes=torch.arange(20), batch_size=8)
    seen = []
    for batch in loader:
        assert torch.equal(batch.x[:, 0].long(), batch.n_id)
        assert torch.equal(batch.n_id[batch.edge_index], data.edge_index[:, batch.e_id])
        assert torch.equal(batch.edge_attr, batch.e_id)
        incoming = torch.bincount(batch.edge_index[1], minlength=batch.num_nodes)
        assert int(incoming[: batch.batch_size].max()) <= 4
        assert batch.n_id.unique().numel() == batch.num_nodes
        seen += batch.n_id[: batch.batch_size].tolist()
    assert seen == list(range(20))


def test_all_neighbours_are_the_subgraph_of_pyg() -> None:
    data = graph()
    sampler = NeighbourSampler(data, [-1, -1])
    (batch,) = NodeLoader(data, node_sampler=sampler, input_nodes=torch.tensor([7]), batch_size=1)
    nodes, *_ = k_hop_subgraph(7, 2, data.edge_index, flow="source_to_target")
    assert sorted(batch.n_id.tolist()) == nodes.tolist()
    assert sorted(batch.e_id.unique().tolist()) == sorted(batch.e_id.tolist())


def test_a_model_trains_on_the_batches() -> None:
    data = graph()
    loader = NodeLoader(
        data, node_sampler=NeighbourSampler(data, [5, 5]), input_nodes=None, batch_size=16
    )
    model = GCN(1, 3, hidden=8)
    for batch in loader:
        logits = model(batch.x, batch.edge_index)[: batch.batch_size]
        torch.nn.functional.cross_entropy(logits, batch.y[: batch.batch_size]).backward()
    assert all(parameter.grad is not None for parameter in model.parameters())


def test_the_same_seed_gives_the_same_batches() -> None:
    data = graph()
    first, same, other = (
        next(
            iter(
                NodeLoader(
                    data,
                    node_sampler=NeighbourSampler(data, [3, 3], seed),
                    input_nodes=torch.arange(9),
                    batch_size=9,
                )
            )
        ).e_id
        for seed in (0, 0, 1)
    )
    assert torch.equal(first, same)
    assert not torch.equal(first, other)
