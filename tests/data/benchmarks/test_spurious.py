from dataclasses import asdict

import numpy as np
import pytest
import torch
from torch import Tensor
from torch_geometric.data import Data
from torch_geometric.nn import GCNConv

from canet.data import GENERATORS
from canet.data.benchmarks.dataset import Request
from canet.data.benchmarks.spurious import (
    NOISE_STD,
    NUM_DOMAINS,
    SpuriousDataset,
    _label_network,
    centred_per_graph,
    grow_regions,
    spurious_columns,
)
from canet.data.task import ShiftTask
from canet.errors import CanetError
from canet.models import Trainer
from canet.store import RunConfig

N = 40
EDGES = torch.stack([torch.arange(N), (torch.arange(N) + 1) % N])
EDGES = torch.cat([EDGES, EDGES.flip(0)], dim=1)
Y = torch.arange(N) % 4
GRAPH = Data(torch.eye(N).to_sparse_csr(), EDGES, y=Y)


class Ring(SpuriousDataset):
    name = "ring"

    def read(self, request: Request) -> Data:
        return GRAPH


def make(seed: int = 0, protocol: str = "paper", generator: str = "shared") -> ShiftTask:
    return Ring().load(Request(None, seed, protocol, generator=generator))


def identities(nodes: Tensor) -> set[int]:
    return set((nodes % N).tolist())


def test_columns_agree_with_the_equation_of_the_paper() -> None:
    torch.manual_seed(3)
    first, second, domain = GCNConv(4, 10), GCNConv(10, 10), torch.nn.Linear(6, 10)
    noise = NOISE_STD * torch.randn(6, N, 10)
    adjacency = torch.eye(N)
    for source, target in EDGES.T.tolist():
        adjacency[target, source] += 1
    degree = adjacency.sum(dim=1)
    adjacency = adjacency / (degree[:, None] * degree[None, :]).sqrt()
    columns = spurious_columns(Y, EDGES, seed=3)
    with torch.no_grad():
        hidden = adjacency @ torch.eye(4)[Y] @ first.lin.weight.T + first.bias
        from_label = adjacency @ hidden.relu() @ second.lin.weight.T + second.bias
        for i in range(6):
            expected = from_label + domain.weight[:, i] + domain.bias + noise[i]
            torch.testing.assert_close(columns[i], expected)


def test_columns_do_not_depend_on_the_default_precision_and_keep_the_random_state() -> None:
    torch.manual_seed(0)
    number = torch.rand(3)
    torch.manual_seed(0)
    expected = spurious_columns(Y, EDGES, seed=3)
    assert torch.rand(3).equal(number)
    torch.set_default_dtype(torch.double)
    try:
        columns = spurious_columns(Y, EDGES, seed=3)
        assert torch.get_default_dtype() == torch.double
    finally:
        torch.set_default_dtype(torch.float)
    assert columns.dtype == torch.float
    assert columns.equal(expected)


def test_domains_are_disjoint_copies_with_the_same_base_features_and_labels() -> None:
    task = make()
    x = task.data.x.to_dense()
    assert x.shape == (6 * N, N + 10)
    for i in range(6):
        copy = slice(i * N, (i + 1) * N)
        assert x[copy, :N].equal(torch.eye(N))
        assert task.data.y[copy].equal(Y)
        inside = task.data.edge_index[:, task.data.environment[task.data.edge_index[0]] == i]
        assert (inside - i * N).equal(EDGES)
    spurious = x[:, N:].reshape(6, N, 10)
    torch.testing.assert_close(spurious, spurious_columns(Y, EDGES, seed=0))


def test_in_the_paper_protocol_test_nodes_have_copies_in_the_training_set() -> None:
    task = make(protocol="paper")
    sizes = [task.train.numel(), task.valid.numel(), task.test_id.numel()]
    assert sizes == [60, 30, 30]
    assert list(task.test_ood) == ["domain 4", "domain 5", "domain 6"]
    for nodes in task.test_ood.values():
        assert identities(nodes) == set(range(N))
        assert identities(nodes) & identities(task.train)
    assert task.in_distribution[task.train].all()
    assert not any(task.in_distribution[nodes].any() for nodes in task.test_ood.values())


def test_in_the_disjoint_protocol_all_copies_of_a_node_are_in_one_split() -> None:
    task = make(protocol="disjoint")
    sizes = [task.train.numel(), task.valid.numel(), task.test_id.numel()]
    assert sizes == [60, 30, 30]
    parts = [identities(nodes) for nodes in (task.train, task.valid, task.test_id)]
    assert [len(part) for part in parts] == [20, 10, 10]
    assert not parts[0] & parts[1] | parts[0] & parts[2] | parts[1] & parts[2]
    for nodes in task.test_ood.values():
        assert identities(nodes) == parts[2]


def test_the_data_seed_determines_the_task() -> None:
    first, same, other = (make(seed).digest for seed in (0, 0, 1))
    assert first == same
    assert first.features != other.features
    assert first.splits != other.splits


def test_redrawn_networks_differ_between_domains_and_the_shared_one_does_not(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("canet.data.benchmarks.spurious.NOISE_STD", 0.0)
    shared, redrawn = (spurious_columns(Y, EDGES, 0, again) for again in (False, True))
    centred = [columns - columns.mean(dim=1, keepdim=True) for columns in (shared, redrawn)]
    torch.testing.assert_close(centred[0][0], centred[0][5])
    assert (centred[1][0] - centred[1][5]).abs().max() > 0.05


def test_resampled_domains_are_regions_that_share_no_node_and_no_edge() -> None:
    with pytest.raises(CanetError, match="--protocol disjoint"):
        make(0, "paper", "resampled")
    task = make(0, "disjoint", "resampled")
    assert task.generator == "resampled"
    assert task.data.x.shape == (N, N + 10)
    domain = task.data.environment
    assert torch.bincount(domain).tolist() == [7, 7, 7, 7, 6, 6]
    source, target = task.data.edge_index
    assert domain[source].equal(domain[target])
    ood = torch.cat(list(task.test_ood.values()))
    assert sorted(torch.cat([task.train, task.valid, task.test_id, ood]).tolist()) == list(range(N))
    assert (domain[ood] >= 3).all()
    assert task.data.y[task.train].unique().numel() == 4


def test_regions_are_grown_along_edges() -> None:
    region = grow_regions(EDGES, N, np.random.default_rng(1))
    source, target = EDGES
    assert (region[source] == region[target]).float().mean() > 0.5


def test_centred_columns_have_mean_zero_in_each_domain_and_keep_their_differences() -> None:
    task = make()
    x, centred = task.data.x.to_dense(), centred_per_graph(task).data.x
    for domain in range(NUM_DOMAINS):
        nodes = task.data.environment == domain
        torch.testing.assert_close(centred[nodes].mean(dim=0), torch.zeros(x.shape[1]))
        torch.testing.assert_close(centred[nodes] - centred[nodes][0], x[nodes] - x[nodes][0])
    assert centred_per_graph(task).features == "centred"


def test_the_generator_is_part_of_the_configuration() -> None:
    tasks = [make(0, "disjoint", g) for g in GENERATORS]
    names = [Trainer(task, "erm", device="cpu").config().name for task in tasks]
    assert len(set(names)) == 3
    content = asdict(Trainer(tasks[0], "erm", device="cpu").config())
    del content["generator"]  # as in runs from before generators were added
    assert RunConfig(**content).name == names[0]


def test_label_networks_equal_those_of_pyg() -> None:
    torch.manual_seed(3)
    first, second = GCNConv(4, 10), GCNConv(10, 10)
    labels = torch.eye(4)[Y]
    with torch.no_grad():
        expected = second(first(labels, EDGES).relu(), EDGES)
        torch.manual_seed(3)
        assert _label_network(4)(labels, EDGES).equal(expected)
