"""Simulated shifts."""

from dataclasses import replace

import pytest
import torch

from canet.data.task import ShiftTask
from canet.models.shifts import HELD_OUT, MAX_SHIFTS, simulate_shifts, training_part
from tests.support.small_task import ALL, INSIDE, small_task, with_columns


def names(task: ShiftTask) -> list[str]:
    return [name for name, _ in simulate_shifts(task)]


GROUPS = [f"without group {i}" for i in range(1, 5)]


def test_without_environments_parts_are_groups_of_labelled_nodes_by_style() -> None:
    """The two styles change features more than the classes, and every class has both."""
    shifts = simulate_shifts(small_task())
    assert [name for name, _ in shifts] == GROUPS
    parts = [shift.test_ood[HELD_OUT] for _, shift in shifts]
    assert torch.cat(parts).sort().values.tolist() == list(range(180))
    for held in parts:
        assert ((held // 3) % 2).unique().numel() == 1
        assert (held % 3).unique().numel() == 3


def test_environments_are_held_out_and_groups_too() -> None:
    environment = torch.arange(ALL) % 2
    task = replace(small_task(environment=environment), environments=("north", "south"))
    assert names(task) == ["without north", "without south", *GROUPS]
    _, north = simulate_shifts(task)[0]
    assert (north.data.environment[north.test_ood[HELD_OUT]] == 0).all()
    assert (north.data.environment[torch.cat([north.train, north.valid])] == 1).all()
    unknown = torch.where(torch.arange(ALL) < 60, -1, environment)
    assert names(with_columns(task, environment=unknown)) == names(task)


def test_equal_rows_have_no_groups() -> None:
    for x in (torch.ones(ALL, 2), torch.ones(ALL, 40), torch.ones(ALL, 40).to_sparse_csr()):
        equal = {"x": x, "environment": torch.arange(ALL) % 2}
        assert names(with_columns(small_task(), **equal)) == ["without 0", "without 1"]


def test_many_environments_are_held_out_several_at_a_time() -> None:
    task = small_task(environment=torch.arange(ALL) % 12)
    assert names(task)[:2] == ["without 0, 5, 10", "without 1, 6, 11"]
    assert len(names(task)) == MAX_SHIFTS + len(GROUPS)


def test_the_latest_nodes_are_held_out() -> None:
    task = small_task(time=torch.arange(ALL).double())
    assert names(task) == ["without latest quarter", "without latest half", *GROUPS]
    for (_, shift), first in zip(simulate_shifts(task), (135, 90), strict=False):
        assert int(shift.test_ood[HELD_OUT].min()) == first
        assert int(torch.cat([shift.train, shift.valid]).max()) < first


def test_each_graph_is_held_out_where_there_are_several() -> None:
    graph = torch.arange(ALL) % 2
    graph[INSIDE:] = 2
    task = small_task(batch=graph)
    assert names(task) == ["without graph 0", "without graph 1", *GROUPS]
    numbers = simulate_shifts(task)[0][1].data.batch
    assert numbers.unique().numel() == 2


def test_no_edge_joins_what_is_held_out_and_the_rest() -> None:
    for _, shift in simulate_shifts(small_task()):
        edges, inside = shift.data.edge_index, shift.in_distribution
        assert (inside[edges[0]] == inside[edges[1]]).all()
        assert inside[torch.cat([shift.train, shift.valid])].all()
        assert not inside[shift.test_ood[HELD_OUT]].any()


def test_the_training_part_has_no_other_nodes() -> None:
    task = small_task()
    order = torch.randperm(ALL, generator=torch.Generator().manual_seed(1))
    edges = order.argsort()[task.data.edge_index]
    mixed = replace(
        with_columns(task, x=task.data.x[order], y=task.data.y[order], edge_index=edges),
        **{name: order.argsort()[getattr(task, name)] for name in ("train", "valid", "test_id")},
        test_ood={"later": order.argsort()[task.test_ood["later"]]},
        in_distribution=task.in_distribution[order],
    )
    part = training_part(mixed)
    assert part.num_nodes == INSIDE
    assert part.data.edge_index.shape[1] == 900
    for name in ("train", "valid", "test_id"):
        ids, own = getattr(part, name), getattr(task, name)
        assert part.data.x[ids].equal(task.data.x[own])
        assert part.data.y[ids].equal(task.data.y[own])


@pytest.mark.parametrize("sparse", [False, True])
def test_only_training_and_validation_labels_are_used(sparse: bool) -> None:
    task = small_task()
    x, y = task.data.x.clone(), task.data.y.clone()
    x[INSIDE:] = 1e6
    y[180:] = y[180:].flip(0)
    pairs = [(task.data.x, task.data.y), (x, y)]
    if sparse:
        pairs = [(x.to_sparse_csr(), y) for x, y in pairs]
    tasks = [with_columns(task, x=x, y=y) for x, y in pairs]
    for (name, one), (other_name, other) in zip(*map(simulate_shifts, tasks), strict=True):
        assert name == other_name
        assert one.digest.features == other.digest.features
        assert one.digest.graph == other.digest.graph
        for split, nodes in one.splits().items():
            assert nodes.equal(other.splits()[split])
            assert one.data.y[nodes].equal(other.data.y[nodes])


def test_without_validation_nodes_some_training_nodes_are_used_for_validation() -> None:
    environment = (torch.arange(ALL) >= 120).long()
    task = small_task(environment=environment)
    task = replace(task, train=torch.arange(130), valid=torch.arange(130, 180))
    _, shift = simulate_shifts(task)[1]
    assert shift.train.numel() + shift.valid.numel() == 120
    assert shift.valid.numel() == 24


def test_too_few_labels_simulate_nothing() -> None:
    task = replace(small_task(), train=torch.arange(12), valid=torch.arange(12, 18))
    assert simulate_shifts(task) == []


def test_a_part_with_one_class_has_no_roc_auc() -> None:
    task = small_task(environment=torch.arange(ALL) % 3)
    task = with_columns(task, y=(task.data.y > 0).long())
    assert names(replace(task, metric="roc_auc")) == GROUPS


def test_a_held_out_part_is_scored_by_the_class_that_is_rarer_in_all_of_training() -> None:
    task = small_task(environment=torch.arange(ALL) % 2)
    rare = (task.data.y == 0) & (torch.arange(ALL) % 2 == 0)
    y = torch.where(torch.arange(ALL) % 2 == 0, rare.long(), (task.data.y > 0).long())
    task = replace(with_columns(task, y=y), metric="average_precision")
    counts = [shift.data.y[shift.train].bincount() for _, shift in simulate_shifts(task)]
    assert {int(count.argmin()) for count in counts} == {0, 1}
    assert {shift.scorer.positive for _, shift in simulate_shifts(task)} == {task.scorer.positive}
