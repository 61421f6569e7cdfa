import pytest
import torch
from torch import Tensor
from torch_geometric.nn import GCNConv

from canet.data.spurious import NOISE_STD, spurious_columns, spurious_task
from canet.data.task import ShiftTask
from canet.errors import CanetError

N = 40
EDGES = torch.stack([torch.arange(N), (torch.arange(N) + 1) % N])
EDGES = torch.cat([EDGES, EDGES.flip(0)], dim=1)
Y = torch.arange(N) % 4
X = torch.eye(N).to_sparse_csr()


def make(seed: int = 0, protocol: str = "paper") -> ShiftTask:
    return spurious_task("ring", X, EDGES, Y, seed, protocol)


def identities(nodes: Tensor) -> set[int]:
    return set((nodes % N).tolist())


def test_columns_follow_the_plain_equation() -> None:
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


def test_drawing_leaves_the_global_random_state_alone() -> None:
    torch.manual_seed(0)
    expected = torch.rand(3)
    torch.manual_seed(0)
    spurious_columns(Y, EDGES, seed=7)
    assert torch.rand(3).equal(expected)


def test_columns_have_the_same_bits_whatever_the_default_precision() -> None:
    expected = spurious_columns(Y, EDGES, seed=3)
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


def test_paper_protocol_splits_copies_so_that_test_nodes_have_training_copies() -> None:
    task = make(protocol="paper")
    sizes = [task.train.numel(), task.valid.numel(), task.test_id.numel()]
    assert sizes == [60, 30, 30]
    assert list(task.test_ood) == ["domain 4", "domain 5", "domain 6"]
    for nodes in task.test_ood.values():
        assert identities(nodes) == set(range(N))
        assert identities(nodes) & identities(task.train)
    assert task.in_distribution[task.train].all()
    assert not any(task.in_distribution[nodes].any() for nodes in task.test_ood.values())


def test_disjoint_protocol_shares_no_identity_between_train_valid_and_test() -> None:
    task = make(protocol="disjoint")
    sizes = [task.train.numel(), task.valid.numel(), task.test_id.numel()]
    assert sizes == [60, 30, 30]
    parts = [identities(nodes) for nodes in (task.train, task.valid, task.test_id)]
    assert [len(part) for part in parts] == [20, 10, 10]
    assert not parts[0] & parts[1] | parts[0] & parts[2] | parts[1] & parts[2]
    for nodes in task.test_ood.values():
        assert identities(nodes) == parts[2]


def test_data_seed_decides_every_bit() -> None:
    first, same, other = make(0), make(0), make(1)
    assert first.data.x.values().equal(same.data.x.values())
    assert first.train.equal(same.train)
    assert not first.data.x.values().equal(other.data.x.values())
    assert not first.train.equal(other.train)


def test_unknown_protocol_is_refused_with_the_valid_ones() -> None:
    with pytest.raises(CanetError, match="'disjont': did you mean 'disjoint'"):
        make(protocol="disjont")
