"""Conversion of a user graph to a task: splits, classes, environments, and rejected input."""

from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor
from torch_geometric.data import Batch, Data
from torch_geometric.utils import to_undirected

from canet.data.graph import Graph, check_graph, match_classes, warn_edges
from canet.data.user_task import UserTask, user_task
from canet.errors import InputError, InputWarning

N = 12
LABELS = np.array(["b", "a", "c"] * 4)


def ring(both_ways: bool = True) -> Tensor:
    forward = torch.stack([torch.arange(N), (torch.arange(N) + 1) % N])
    return torch.cat([forward, forward.flip(0)], dim=1) if both_ways else forward


def graph(**changes: Any) -> Data:
    """A ring of twelve nodes; labels b, a, c in turn."""
    return Data(**({"x": torch.eye(N), "edge_index": ring(), "y": LABELS} | changes))


def mask(*nodes: int) -> Tensor:
    chosen = torch.zeros(N, dtype=torch.bool)
    chosen[list(nodes)] = True
    return chosen


def sets(own: UserTask) -> list[set[int]]:
    return [
        set(own.task.splits().get(name, ids()).tolist()) for name in ("train", "valid", "test_id")
    ]


def ids(*nodes: int) -> Tensor:
    return torch.tensor(nodes, dtype=torch.long)


def bits(value: Any) -> str:
    """Text that is equal only for equal content; NaN equals NaN."""
    dense = value.to_dense() if isinstance(value, Tensor) else value
    kind = getattr(value, "dtype", None), getattr(value, "layout", None)
    return f"{kind} {dense.tolist() if hasattr(dense, 'tolist') else dense}"


def content(data: Data) -> dict[str, str]:
    return {key: bits(data[key]) for key in data.keys()}  # noqa: SIM118, Data iterates over pairs


def test_classes_are_the_sorted_labels_of_the_splits_and_class_ids_are_their_positions() -> None:
    y = [*LABELS[:11], "d"]
    own = user_task(graph(y=y), train=range(9), valid=[9, 10])
    assert own.classes.tolist() == ["a", "b", "c"]
    assert own.task.data.y.tolist() == [1, 0, 2] * 3 + [1, 0, -1]
    assert own.task.num_classes == 3


@pytest.mark.parametrize(
    ("y", "classes"),
    [
        (np.array([7, -3, 100_000] * 4), [-3, 7, 100_000]),
        (torch.tensor([[2], [0], [2]] * 4, dtype=torch.int16), [0, 2]),
        (np.array([5.0, 3.0, np.nan] * 4), [3, 5]),
        (["x", "y", None] * 4, ["x", "y"]),
        ([True, None, False] * 4, [False, True]),
    ],
)
def test_labels_of_every_type_become_class_ids(y: Any, classes: list[Any]) -> None:
    own = user_task(graph(y=y))
    assert own.classes.tolist() == classes
    found = own.task.data.y
    given = np.asarray(y, dtype=object).reshape(N)
    for node in range(N):
        missing = given[node] is None or given[node] != given[node]
        assert found[node] == -1 if missing else classes[found[node]] == given[node]


def test_masks_of_the_graph_are_used_unless_splits_are_passed() -> None:
    data = graph(train_mask=mask(0, 1, 2), val_mask=mask(3, 4), test_mask=mask(5, 6))
    assert sets(user_task(data)) == [{0, 1, 2}, {3, 4}, {5, 6}]
    assert sets(user_task(data, train=[8, 9, 10, 11])) == [{8, 9, 10, 11}, {3, 4}, {5, 6}]
    assert sets(user_task(data, valid=[9])) == [{0, 1, 2}, {9}, {5, 6}]


def test_training_nodes_are_by_default_all_labelled_nodes_outside_other_splits() -> None:
    y = ["a", "b", None] * 4
    own = user_task(graph(y=y, test_mask=mask(0, 1, 2)), valid=mask(3, 4))
    assert sets(own) == [{6, 7, 9, 10}, {3, 4}, {0, 1}]


def test_nodes_without_label_are_in_the_graph_but_in_no_split() -> None:
    everyone = torch.ones(N, dtype=torch.bool)
    y = np.array([0, 1, -1] * 4)
    for given in ({}, {"train": everyone}):
        own = user_task(graph(y=y), **given)
        train, valid, _ = sets(own)
        assert train | valid == {0, 1, 3, 4, 6, 7, 9, 10}
        assert own.task.num_nodes == N
        assert own.task.observed().numel() == N
    assert sets(user_task(graph(y=y, test_mask=mask(2, 5))))[2] == set()


def test_random_validation_set_has_the_same_share_of_each_class() -> None:
    n = 100
    y = np.array([0] * 50 + [1] * 30 + [2] * 20)
    data = Data(x=torch.ones(n, 1), edge_index=torch.empty(2, 0), y=y)
    task = user_task(data, seed=3).task
    assert task.valid.numel() == 20
    assert torch.bincount(task.data.y[task.valid]).tolist() == [10, 6, 4]
    assert torch.bincount(task.data.y[task.train]).tolist() == [40, 24, 16]
    assert set(task.train.tolist()).isdisjoint(task.valid.tolist())


def test_random_validation_set_depends_on_the_seed() -> None:
    first, again, other = (user_task(graph(y=[0, 1] * 6), seed=seed) for seed in (1, 1, 2))
    assert sets(first) == sets(again)
    assert sets(first) != sets(other)


@pytest.mark.parametrize("seed", range(5))
def test_every_class_keeps_a_training_node(seed: int) -> None:
    y = [0, 1, 1] + [2] * 3 + [3] * 6
    train, valid, _ = sets(user_task(graph(y=y), seed=seed))
    assert {y[node] for node in train} == {0, 1, 2, 3}
    assert 0 in train
    assert {y[node] for node in valid} == {1, 2, 3}


def test_an_empty_validation_mask_is_treated_as_missing() -> None:
    train, test = mask(*range(8)), mask(8, 9, 10, 11)
    split = graph(y=[0, 1] * 6, train_mask=train, val_mask=mask(), test_mask=test)
    without = graph(y=[0, 1] * 6, train_mask=train, test_mask=test)
    assert sets(user_task(split, seed=3)) == sets(user_task(without, seed=3))
    split.time = np.arange(N)
    assert sets(user_task(split)) == [set(range(6)), {6, 7}, {8, 9, 10, 11}]


@pytest.mark.parametrize("given", [True, False])
def test_validation_set_by_time_is_the_latest_fifth(given: bool) -> None:
    random = np.random.default_rng(0)
    time = random.permutation(50)
    y = np.arange(50) % 2
    data = Data(x=torch.ones(50, 1), edge_index=torch.empty(2, 0), y=y)
    if not given:
        data.time = torch.from_numpy(time)
    own = user_task(data, time=time if given else None)
    train, valid, _ = sets(own)
    assert valid == set(np.flatnonzero(time >= 40).tolist())
    assert train == set(np.flatnonzero(time < 40).tolist())


def test_nodes_with_the_same_time_stay_in_the_same_split() -> None:
    time = [0, 0, 0, 0, 1, 1, 1, 1, 1, 2, 2, 2]
    assert sets(user_task(graph(y=[0, 1] * 6), time=time))[1] == {9, 10, 11}
    time = [0, 0, 0, 0, 0, 0, 0, 1, 1, 2, 3, 3]  # 2 or 3 of 12 nodes; 2 is nearer to 20 %
    assert sets(user_task(graph(y=[0, 1] * 6), time=time))[1] == {10, 11}
    later = [*range(10), 10_000, 10_000]  # nodes outside the training set do not count
    own = user_task(graph(y=[0, 1] * 6), train=range(10), time=later)
    assert sets(own)[:2] == [set(range(8)), {8, 9}]
    same = user_task(graph(), time=np.full(N, 2020), seed=4)
    assert sets(same) == sets(user_task(graph(), seed=4))


def test_a_class_that_only_appears_late_stays_in_training() -> None:
    y = [0, 1] * 4 + [0, 1, 2, 0]
    time = range(N)
    train, valid, _ = sets(user_task(graph(y=y), time=time))
    assert 10 in train
    assert valid == {11}


def test_times_are_kept_if_there_is_a_validation_set() -> None:
    own = user_task(graph(), train=range(9), valid=[9], time=range(N))
    assert sets(own)[:2] == [set(range(9)), {9}]
    assert own.task.data.time.tolist() == list(range(N))
    masks = {"val_mask": mask(9), "train_mask": mask(0, 1, 2)}
    assert user_task(graph(time=torch.arange(N), **masks)).task.data.time[-1] == N - 1
    per_edge = graph(time=torch.arange(24), val_mask=mask(9), train_mask=mask(0, 1, 2))
    assert user_task(per_edge).task.data.time is None
    with pytest.raises(InputError, match="time"):
        user_task(graph(), train=range(9), valid=[9], time=[1, 2, 3])


def test_passed_environments_replace_those_of_the_graph() -> None:
    own = user_task(graph(environment=[0] * N), environment=["south", "north", None] * 4)
    assert own.task.environments == ("north", "south")
    assert own.task.data.environment.tolist() == [1, 0, -1] * 4
    assert user_task(graph(environment=LABELS)).task.environments == ("a", "b", "c")
    assert not user_task(graph()).task.has_environments
    assert user_task(graph()).task.environments == ()


def test_graph_numbers_come_from_batch_or_from_the_argument() -> None:
    halves = [0] * 6 + [1] * 6
    assert check_graph(graph()).batch is None
    found = check_graph(graph(batch=torch.tensor(halves))).batch
    assert found is not None
    assert found.tolist() == halves
    named = check_graph(graph(batch=torch.zeros(N)), ["z"] * 6 + ["a"] * 6).batch
    assert named is not None
    assert named.tolist() == halves[::-1]
    assert user_task(graph(batch=torch.tensor(halves))).task.data.batch.tolist() == halves


@pytest.mark.parametrize("numbers", [[0] * 11 + [-1], ["a"] * 11 + [None], [0]])
def test_nodes_without_a_graph_are_rejected(numbers: list[Any]) -> None:
    with pytest.raises(InputError, match="graph"):
        check_graph(graph(), numbers)


def test_a_batch_of_graphs_keeps_them_apart() -> None:
    small = Data(x=torch.eye(3), edge_index=ids(0, 1, 1, 0).view(2, 2), y=ids(0, 1, 0))
    own = user_task(Batch.from_data_list([small, small]))
    assert own.task.data.batch.tolist() == [0, 0, 0, 1, 1, 1]
    assert own.task.data.edge_index.tolist() == [[0, 1, 3, 4], [1, 0, 4, 3]]


def test_edges_in_one_direction_give_a_warning_that_names_the_argument() -> None:
    with pytest.warns(UserWarning, match="undirected=True") as caught:
        warn_edges(ring(both_ways=False), None)
    assert [warning.filename for warning in caught] == [__file__]
    warn_edges(ring(), None)
    warn_edges(ring(both_ways=False), False)


@pytest.mark.parametrize("values", [1.0, 5.5])
def test_features_that_are_mostly_zero_become_sparse(values: float) -> None:
    x = torch.zeros(N, 10)
    x[:, 3] = values
    found = check_graph(graph(x=x)).x
    assert found.layout == torch.sparse_csr
    assert found.to_dense().equal(x)
    x[0, 4] = 1
    assert check_graph(graph(x=x)).x.equal(x)


@pytest.mark.parametrize("undirected", [False, True])
def test_duplicate_edges_are_removed(undirected: bool) -> None:
    twice = torch.cat([ring(), ring()[:, 3:9]], dim=1)
    found = check_graph(graph(edge_index=twice), undirected=undirected).edge_index
    assert sorted(found.t().tolist()) == sorted(ring().t().tolist())
    shuffled = ring()[:, torch.randperm(2 * N)]
    assert check_graph(graph(edge_index=shuffled)).edge_index.equal(shuffled)  # as they were


def test_edge_attributes_are_ignored_with_a_warning() -> None:
    with pytest.warns(InputWarning, match="edge_attr"):
        user_task(graph(edge_attr=torch.rand(2 * N)))


def test_undirected_edges_equal_those_of_pyg() -> None:
    random = torch.Generator().manual_seed(0)
    edges = torch.randint(N, (2, 30), generator=random)
    found = check_graph(graph(edge_index=edges), undirected=True).edge_index
    assert found.equal(to_undirected(edges, num_nodes=N))


@pytest.mark.parametrize(
    ("arguments", "name"),
    [
        ({"train": range(9), "valid": [8, 9]}, "train and valid"),
        ({"train": [0, 1, 3, 4], "valid": [2, 5]}, r"valid.*\(c\)"),
        ({"train": [], "valid": [2]}, "train"),
        ({"train": [0, 1]}, "valid"),
        ({"metric": "acuracy"}, "accuracy"),
        ({"metric": "roc_auc"}, "roc_auc"),
        ({"y": [0, 1] * 6, "valid": [0, 2], "metric": "roc_auc"}, "roc_auc"),
        ({"test_mask": mask(0, 1), "train": range(9), "valid": [9]}, "train and test"),
        ({"test_mask": mask(2), "train": [0, 1, 3, 4]}, "test"),
    ],
)
def test_wrong_arguments_are_rejected(arguments: dict[str, Any], name: str) -> None:
    columns = {key: arguments.pop(key) for key in ("y", "test_mask") if key in arguments}
    with pytest.raises(InputError, match=name):
        user_task(graph(**columns), **arguments)


@pytest.mark.parametrize(
    "changes",
    [
        {"x": torch.eye(N, dtype=torch.double), "edge_index": ring().int()},
        {"x": torch.eye(N).to_sparse_csr()},
        {"x": torch.eye(N).numpy(), "edge_index": ring().numpy()},
        {"y": np.array(["a", "b", None] * 4, dtype=object)},
        {"y": torch.tensor([0.0, 1.0, float("nan")] * 4)[:, None]},
        {"train_mask": mask(*range(9)), "val_mask": mask(9, 10), "test_mask": mask(11)},
        {"time": np.arange(N), "environment": LABELS, "batch": torch.arange(N) // 6 + 3},
        {"num_nodes": N, "note": torch.ones(24), "name": "mine"},
    ],
)
@pytest.mark.parametrize("undirected", [True, False])
def test_the_given_graph_is_never_changed(changes: dict[str, Any], undirected: bool) -> None:
    data = graph(**changes)
    before, values = content(data), {key: data[key] for key in data.keys()}  # noqa: SIM118
    task = user_task(data, checked=check_graph(data, undirected=undirected)).task
    assert content(data) == before
    assert all(data[key] is value for key, value in values.items())
    assert task.data is not data


def test_passed_splits_and_columns_are_never_changed() -> None:
    given = {
        "train": mask(*range(9)),
        "valid": np.array([10, 9]),
        "environment": np.array([2.0, np.nan, 1.0] * 4),
        "time": torch.arange(N),
    }
    before = {name: bits(value) for name, value in given.items()}
    user_task(graph(), **given)
    assert {name: bits(value) for name, value in given.items()} == before


def test_nodes_are_found_by_their_numbers() -> None:
    own = Graph(torch.ones(3, 1), node_id=np.array([7, 300, -2]))
    assert own.rows(["300", "-2"]).tolist() == [1, 2]
    for unknown in ("9" * 30, "007", "x"):
        with pytest.raises(InputError, match=f"no node '{unknown}'"):
            own.rows(["7", unknown])


def test_a_name_twice_in_a_split_is_rejected() -> None:
    edges = torch.arange(8).repeat(2, 1)
    data = Data(x=torch.rand(8, 2), edge_index=edges, y=torch.arange(8) % 2)
    data.node_id = list("abcdefgh")
    with pytest.raises(InputError, match="train contains a node more than once"):
        user_task(data, train=[*"abcdef", "a"], valid=["g", "h"])


def test_many_classes_or_environments_give_a_warning() -> None:
    n = 200
    edges = torch.arange(n).repeat(2, 1)
    data = Data(x=torch.rand(n, 2), edge_index=edges, y=torch.arange(n) // 2)
    with pytest.warns(InputWarning, match="100 different classes"):
        user_task(data, train=torch.arange(0, n, 2), valid=torch.arange(1, n, 2))
    data.y = torch.arange(n) % 2
    with pytest.warns(InputWarning, match="160 different environments"):
        user_task(data, environment=torch.arange(n))


def test_labels_are_numbered_by_the_classes_of_a_model_and_then_the_unseen_ones() -> None:
    classes = np.array(["a", "c"])
    y = np.array(["c", None, "a", "d", "b", "d"], dtype=object)
    assert match_classes(y, 6, classes).tolist() == [1, -1, 0, 3, 2, 3]
    assert match_classes(None, 2, classes).tolist() == [-1, -1]
    assert match_classes([7, -1, 3], 3, np.array([3, 7])).tolist() == [1, -1, 0]
    with pytest.raises(InputError, match="y"):
        match_classes([0, 1], 2, classes)
