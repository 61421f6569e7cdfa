from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from torch_geometric.data import Data

from canet.data.task import ShiftTask, split_50_25_25
from canet.errors import InputError
from tests.support.data_of import data_of


def make() -> ShiftTask:
    """A chain of nodes: 0-4 are in distribution, 5-7 are not; 7 has no label."""
    return ShiftTask(
        name="chain",
        data=Data(
            x=torch.eye(8),
            edge_index=torch.stack([torch.arange(7), torch.arange(1, 8)]),
            y=torch.tensor([0, 1, 0, 1, 0, 1, 0, -1]),
        ),
        train=torch.tensor([0, 1]),
        valid=torch.tensor([2]),
        test_id=torch.tensor([3, 4]),
        test_ood={"later": torch.tensor([5])},
        left_out={"latest": torch.tensor([6])},
        metric="accuracy",
        in_distribution=torch.arange(8) < 5,
        shift="time",
    )


def with_data(**changes: Any) -> ShiftTask:
    """The chain with other columns."""
    data = data_of(make())
    for name, value in changes.items():
        data[name] = value
    return replace(make(), data=data)


def test_splits_contain_every_node_set_in_order() -> None:
    splits = make().splits()
    assert list(splits) == ["train", "valid", "test_id", "ood/later", "left_out/latest"]
    assert splits["left_out/latest"].tolist() == [6]
    assert "test_id" not in replace(make(), test_id=torch.empty(0, dtype=torch.long)).splits()


def test_inductive_training_sees_only_edges_between_in_distribution_nodes() -> None:
    task = make()
    assert task.training_graph() is task.data
    hidden = replace(task, inductive=True).training_graph()
    assert hidden.edge_index.tolist() == [[0, 1, 2, 3], [1, 2, 3, 4]]


def test_nodes_connected_to_in_distribution_nodes_are_observed() -> None:
    task = make()
    assert task.observed().tolist() == list(range(8))
    assert replace(task, inductive=True).observed().tolist() == list(range(5))
    data = data_of(task)
    data.edge_index = data.edge_index[:, data.edge_index[0] != 5]
    assert replace(task, data=data).observed().tolist() == list(range(6))


def test_training_environments_are_the_environments_of_training_nodes() -> None:
    task = make()
    assert (task.num_nodes, task.num_features, task.num_classes) == (8, 8, 2)
    assert not task.has_environments
    assert task.training_environments().numel() == 0
    task = with_data(environment=torch.tensor([7, 2, 3, 3, 3, 4, 4, 4]))
    assert task.training_environments().tolist() == [2, 7]


def test_masks_become_ids() -> None:
    nodes = torch.arange(8)
    masked = replace(
        make(),
        train=nodes < 2,
        valid=(nodes == 2)[:, None],
        test_id=np.isin(nodes, [3, 4]),
        test_ood={"later": nodes == 5},
        in_distribution=nodes[:5],
    )
    for name, chosen in make().splits().items():
        assert masked.splits()[name].equal(chosen)
    assert masked.in_distribution.equal(nodes < 5)


def test_graph_numbers_are_counted_from_zero() -> None:
    assert with_data(batch=torch.tensor([7, 7, 3, 3, 9, 9, 9, 3])).data.batch.tolist() == [
        1, 1, 0, 0, 2, 2, 2, 0,
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("changes", "names"),
    [
        ({"train": [0, 1, 2]}, "train and valid"),
        ({"test_ood": {"later": [4, 5]}}, "test_id and ood/later"),
        ({"left_out": {"latest": [0]}}, "train and left_out/latest"),
        ({"valid": []}, "valid"),
        ({"test_ood": {"later": []}}, "ood/later"),
        ({"test_ood": {"later": [7]}}, "ood/later.*label"),
        ({"train": [0, 8]}, "train"),
        ({"in_distribution": [True] * 7}, "in_distribution"),
        ({"in_distribution": torch.arange(8) < 1}, "train.*in_distribution"),
        ({"in_distribution": torch.arange(8) < 2}, "valid.*in_distribution"),
        ({"train": [0, 3], "test_id": [1, 7]}, "test_id"),
        ({"train": [0], "test_id": [4]}, r"train .* 1 of the 2 classes \(1\)"),
        ({"metric": "acuracy"}, "accuracy"),
        ({"metric": "roc_auc"}, "roc_auc"),
    ],
)
def test_wrong_splits_and_metrics_are_rejected_and_the_message_names_the_task(
    changes: dict[str, Any], names: str
) -> None:
    with pytest.raises(InputError, match=f"^task 'chain'.*{names}"):
        replace(make(), **changes)


@pytest.mark.parametrize(
    "changes",
    [
        {"x": None},
        {"x": torch.eye(7)},
        {"edge_index": None},
        {"edge_index": torch.tensor([[0], [8]])},
        {"y": None},
        {"y": list("abababab")},
        {"y": torch.tensor([0, 1, 0, 1, 0, 1, 0, -2])},
        {"y": torch.tensor([0.5] * 8)},
        {"y": torch.tensor([0] * 7 + [-1])},
        {"environment": list("abababab")},
        {"environment": torch.zeros(3)},
        {"batch": torch.tensor([0, 0, 0, 0, 0, 0, 0, -1])},
    ],
    ids=lambda changes: next(iter(changes)),
)
def test_wrong_columns_are_rejected_and_named(changes: dict[str, Any]) -> None:
    (name,) = changes
    column = "y" if name == "x" and changes["x"] is not None else name
    with pytest.raises(InputError, match=rf"^task 'chain'.*\b{column}\b"):
        with_data(**changes)


def test_parts_that_were_checked_are_not_checked_again() -> None:
    task = make()
    changed = replace(task, inductive=True, checked=True)
    assert changed.data is task.data
    assert replace(task, inductive=True).data is not task.data


def test_the_given_graph_is_not_changed() -> None:
    data = data_of(make())
    data.x = torch.eye(8, dtype=torch.double).to_sparse()
    data.y = data.y[:, None].double()
    data.batch = torch.arange(8) + 5
    data.note = "mine"
    keys, given = set(data.keys()), {key: data[key] for key in data.keys()}  # noqa: SIM118
    task = replace(make(), data=data)
    assert set(data.keys()) == keys
    assert all(data[key] is value for key, value in given.items())
    assert data.y.shape == (8, 1)
    assert data.batch.tolist() == list(range(5, 13))
    assert task.data.y.shape == (8,)


@pytest.mark.parametrize("n", [0, 1, 4, 7, 100, 8124])
def test_random_parts_are_disjoint_complete_and_of_exact_size(n: int) -> None:
    nodes = 3 * torch.arange(n) + 1
    parts = split_50_25_25(nodes, torch.Generator().manual_seed(0))
    assert [part.numel() for part in parts] == [n // 2, n // 4, n - n // 2 - n // 4]
    assert torch.cat(parts).sort().values.equal(nodes)
