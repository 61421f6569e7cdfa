from dataclasses import replace

import pytest
import torch
from torch_geometric.data import Data

from canet.data.task import ShiftTask
from canet.errors import CanetError


def make(x: torch.Tensor | None = None) -> ShiftTask:
    """Nodes 0-4 in distribution, 5-7 not; 7 without label; a chain of edges."""
    return ShiftTask(
        name="chain",
        data=Data(
            x=torch.eye(8) if x is None else x,
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


def test_splits_name_every_node_set_in_order() -> None:
    splits = make().splits()
    assert list(splits) == ["train", "valid", "test_id", "ood/later", "left_out/latest"]
    assert splits["left_out/latest"].tolist() == [6]


def test_left_out_is_empty_unless_given() -> None:
    task = replace(make(), left_out={})
    assert list(task.splits()) == ["train", "valid", "test_id", "ood/later"]


def test_inductive_training_sees_only_edges_between_in_distribution_nodes() -> None:
    task = make()
    assert task.training_edges().equal(task.data.edge_index)
    hidden = replace(task, inductive=True).training_edges()
    assert hidden.tolist() == [[0, 1, 2, 3], [1, 2, 3, 4]]


def test_sizes_and_environments() -> None:
    task = make()
    assert (task.num_nodes, task.num_features, task.num_classes) == (8, 8, 2)
    assert not task.has_environments


@pytest.mark.parametrize("layout", ["dense", "sparse"])
def test_features_that_are_not_finite_are_refused(layout: str) -> None:
    x = torch.eye(8)
    x[2, 2] = float("nan")
    with pytest.raises(CanetError, match="NaN or infinity"):
        make(x if layout == "dense" else x.to_sparse_csr())


def test_wrong_number_of_feature_rows_is_refused() -> None:
    with pytest.raises(CanetError, match="y has 8 labels and the graph 7 nodes"):
        make(torch.eye(7))


def test_split_with_an_unlabelled_node_is_refused() -> None:
    with pytest.raises(CanetError, match="'ood/later' holds nodes without label"):
        replace(make(), test_ood={"later": torch.tensor([7])})


def test_training_observes_what_is_connected_to_in_distribution_nodes() -> None:
    task = make()
    assert task.observed().tolist() == list(range(8))
    assert replace(task, inductive=True).observed().tolist() == list(range(5))
    data = task.data.clone()
    data.edge_index = data.edge_index[:, data.edge_index[0] != 5]
    assert replace(task, data=data).observed().tolist() == list(range(6))


def test_training_environments_are_those_of_training_nodes() -> None:
    task = make()
    assert task.training_environments().numel() == 0
    task.data.environment = torch.tensor([7, 2, 3, 3, 3, 4, 4, 4])
    assert task.training_environments().tolist() == [2, 7]
