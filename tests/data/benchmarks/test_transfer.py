"""Data sets with training on one graph and tests on the others."""

from collections.abc import Callable
from dataclasses import replace

import pytest
import torch
from torch_geometric.data import Data
from torch_geometric.utils import contains_self_loops, is_undirected

from canet.data import DATASETS
from canet.data.benchmarks.dataset import Request
from canet.data.benchmarks.files import RawFiles
from canet.data.benchmarks.transfer import TransferDataset, split_by_class
from canet.data.task import ShiftTask
from canet.models import Trainer
from tests.support.data_of import data_of

SIZES = {"north": 20, "east": 30, "south": 10}
REAL = ["airports", "webkb", "fb100", "election", "roads"]


def ring(size: int) -> Data:
    """A ring of users with two alternating classes; the last user has no label."""
    users = torch.arange(size)
    forward = torch.stack([users, (users + 1) % size])
    y = torch.where(users < size - 1, users % 2, -1)
    return Data(
        torch.stack([users / size, y.float()], 1), torch.cat([forward, forward.flip(0)], 1), y=y
    )


class Rings(TransferDataset):
    name = "rings"
    shift = "places"
    metric = "accuracy"
    protocols = tuple(SIZES)

    def read(self, raw: RawFiles, protocol: str) -> dict[str, Data]:
        return {name: ring(size) for name, size in SIZES.items()}


def make(protocol: str, data_seed: int = 0) -> ShiftTask:
    return Rings().load(Request(data_seed=data_seed, protocol=protocol))


@pytest.mark.parametrize("source", SIZES)
def test_the_protocol_is_the_name_of_the_training_graph(source: str) -> None:
    task = make(source)
    number = list(SIZES).index(source)
    assert task.protocol == source
    assert task.data.batch.equal(torch.arange(3).repeat_interleave(torch.tensor([20, 30, 10])))
    assert task.in_distribution.equal(task.data.batch == number)
    assert list(task.test_ood) == [name for name in SIZES if name != source]
    for name, nodes in task.test_ood.items():
        assert (task.data.batch[nodes] == list(SIZES).index(name)).all()
        assert nodes.numel() == SIZES[name] - 1
    everything = torch.cat(list(task.splits().values()))
    assert everything.sort().values.equal((task.data.y >= 0).nonzero().flatten())
    assert not task.has_environments


def test_there_are_no_edges_between_graphs() -> None:
    task = make("east")
    source, target = task.data.batch[task.data.edge_index]
    assert source.equal(target)
    assert task.observed().equal(task.in_distribution.nonzero().flatten())


def test_each_class_is_split_60_20_20_and_a_single_node_is_in_train() -> None:
    y = torch.tensor([0] * 50 + [1] * 5 + [2])
    nodes = torch.arange(100, 156)
    parts = split_by_class(nodes, y, torch.Generator().manual_seed(0))
    counts = [torch.bincount(y[part - 100], minlength=3).tolist() for part in parts]
    assert counts == [[30, 3, 1], [10, 1, 0], [10, 1, 0]]
    assert torch.cat(parts).sort().values.equal(nodes)


def test_the_split_depends_on_the_data_seed() -> None:
    assert make("east", 1).digest == make("east", 1).digest
    assert make("east", 2).digest.differs_in(make("east", 1).digest) == "splits"


@pytest.mark.parametrize("what", ["labels", "other graphs"])
def test_training_does_not_see_test_labels_or_other_graphs(what: str) -> None:
    task = make("east")
    data = data_of(task)
    if what == "labels":
        test = torch.cat([task.test_id, *task.test_ood.values()])
        data.y[test] = 1 - data.y[test]
    else:
        data.x[~task.in_distribution] += 5
    changed = replace(task, data=data)
    first, second = (Trainer(t, "erm", device="cpu", epochs=4).run() for t in (task, changed))
    assert first.history == second.history
    weights, others = first.method.state_dict(), second.method.state_dict()
    assert all(weights[name].equal(others[name]) for name in weights)
    assert first.result.scores != second.result.scores


@pytest.mark.parametrize(
    ("name", "protocol"), [(name, DATASETS[name].protocols[i]) for name in REAL for i in (0, -1)]
)
def test_published_tasks_train_only_on_the_graph_of_the_protocol(
    name: str, protocol: str, real_task: Callable[..., ShiftTask]
) -> None:
    task = real_task(name, protocol=protocol)
    assert task.protocol == protocol
    assert protocol not in task.test_ood
    source, target = task.data.batch[task.data.edge_index]
    assert source.equal(target)
    inside = torch.cat([task.train, task.valid, task.test_id])
    assert inside.unique().equal((task.in_distribution & (task.data.y >= 0)).nonzero().flatten())
    assert is_undirected(task.data.edge_index) == (name != "roads")
    assert not contains_self_loops(task.data.edge_index)
    for nodes in task.test_ood.values():
        assert task.data.batch[nodes].unique().numel() == 1
        assert task.data.y[nodes].unique().numel() == task.num_classes
