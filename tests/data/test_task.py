from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from torch_geometric.data import Data

from canet.data.task import ShiftTask
from canet.errors import CanetError, InputError


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


def with_data(**changes: Any) -> ShiftTask:
    """The chain with other columns."""
    data = make().data.clone()
    for name, value in changes.items():
        data[name] = value
    return replace(make(), data=data)


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


@pytest.mark.parametrize(
    "x",
    [
        torch.eye(8, dtype=torch.double),
        torch.eye(8, dtype=torch.half),
        torch.eye(8, dtype=torch.long),
        torch.eye(8).bool(),
        torch.eye(8).to_sparse(),
        np.eye(8),
    ],
)
def test_features_of_other_types_and_layouts_are_converted(x: Any) -> None:
    found = make(x).data.x
    assert found.dtype == torch.float32
    assert found.to_dense().equal(torch.eye(8))


def test_labels_in_a_column_or_of_another_type_are_converted() -> None:
    y = make().data.y
    for given in (y[:, None], y.int(), y.double(), y.numpy(), y.tolist()):
        found = with_data(y=given).data.y
        assert found.dtype == torch.long
        assert found.equal(y)


def test_graph_numbers_are_counted_from_zero() -> None:
    assert with_data(batch=torch.tensor([7, 7, 3, 3, 9, 9, 9, 3])).data.batch.tolist() == [
        1, 1, 0, 0, 2, 2, 2, 0,
    ]  # fmt: skip


def test_an_empty_test_set_in_distribution_is_no_split() -> None:
    assert "test_id" not in replace(make(), test_id=torch.empty(0, dtype=torch.long)).splits()


@pytest.mark.parametrize(
    ("changes", "cause"),
    [
        ({"train": [0, 1, 2]}, "train and valid overlap .*such as 2"),
        ({"test_ood": {"later": [4, 5]}}, "test_id and ood/later overlap .*such as 4"),
        ({"left_out": {"latest": [0]}}, "train and left_out/latest overlap"),
        ({"train": []}, "train is empty: put"),
        ({"valid": []}, "valid is empty: put"),
        ({"test_ood": {"later": []}}, "ood/later is empty: put"),
        ({"train": [0, 8]}, "train names nodes 0 to 8, the graph has 0 to 7"),
        ({"train": [0, 1, 0]}, "train names some node twice"),
        ({"train": [True, False]}, "train is a mask of length 2 and the graph has 8 nodes"),
        ({"train": [0.0, 1.0]}, "train holds float64: give a boolean mask or node ids"),
        ({"in_distribution": [True] * 7}, "in_distribution is a mask of length 7"),
        (
            {"in_distribution": torch.arange(8) < 1},
            "train has nodes outside in_distribution: .*mask",
        ),
        ({"in_distribution": torch.arange(8) < 2}, "valid has nodes outside in_distribution"),
        ({"train": [0, 3], "test_id": [1, 7]}, "split 'test_id' holds nodes without label: leave"),
        ({"train": [0], "test_id": [4]}, r"train lacks 1 of 2 classes \(1\): number classes"),
        ({"metric": "acuracy"}, "unknown metric 'acuracy': did you mean 'accuracy'"),
        ({"metric": "roc_auc"}, "valid lacks a class, so roc_auc says nothing: add"),
    ],
)
def test_wrong_splits_and_metrics_are_refused_with_the_name_of_the_task(
    changes: dict[str, Any], cause: str
) -> None:
    with pytest.raises(InputError, match=f"^task 'chain': {cause}") as caught:
        replace(make(), **changes)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("changes", "cause"),
    [
        ({"x": None}, "x is missing"),
        ({"edge_index": None}, "edge_index is missing"),
        ({"edge_index": torch.tensor([[0], [8]])}, "edge_index names nodes 0 to 8"),
        ({"edge_index": torch.tensor([[-1], [0]])}, "edge_index names nodes -1 to 0"),
        ({"edge_index": torch.tensor([[0.0], [1.0]])}, "edge_index holds float32, not integers"),
        ({"y": None}, "y is missing: give"),
        ({"y": list("abababab")}, "y must hold class ids from 0 on"),
        ({"y": torch.tensor([0, 1, 0, 1, 0, 1, 0, -2])}, "y must hold class ids from 0 on"),
        ({"y": torch.tensor([0.5] * 8)}, ".*y holds 0.5, which is no class"),
        ({"y": torch.tensor([0] * 7 + [-1])}, "all labels are of one class"),
        ({"environment": list("abababab")}, "environment must hold ids, as integers"),
        ({"environment": torch.zeros(3)}, "environment has 3 labels"),
        ({"batch": torch.tensor([0, 0, 0, 0, 0, 0, 0, -1])}, "batch must hold the number of a"),
    ],
)
def test_wrong_columns_are_refused_with_the_name_of_the_task(
    changes: dict[str, Any], cause: str
) -> None:
    with pytest.raises(InputError, match=f"^task 'chain': {cause}") as caught:
        with_data(**changes)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("stray", [100_000, 3_000_000])
def test_a_stray_label_does_not_make_as_many_classes(stray: int) -> None:
    y = make().data.y.clone()
    y[7] = stray
    with pytest.raises(
        InputError, match=rf"train lacks {stray - 1:,} of {stray + 1:,} classes \(2, 3"
    ):
        with_data(y=y)


def test_two_classes_that_are_both_in_the_validation_set_have_a_roc_auc() -> None:
    assert replace(make(), valid=[2, 3], test_id=[4], metric="roc_auc").metric == "roc_auc"
    data = make().data.clone()
    data.y = torch.tensor([0, 1, 2, 1, 0, 1, 0, -1])
    sets = {"train": [0, 1, 2], "valid": [3], "test_id": [4]}
    with pytest.raises(InputError, match="roc_auc is for two classes and there are 3"):
        replace(make(), data=data, **sets, metric="roc_auc")


def test_the_given_graph_stays_as_it_is() -> None:
    data = make().data.clone()
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
    assert task.data.note == "mine"
