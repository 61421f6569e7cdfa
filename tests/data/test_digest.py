"""Digest of the data of a task."""

import json
from dataclasses import asdict, replace

import pytest
import torch

from canet.data import digest
from canet.data.digest import DataDigest
from canet.data.task import ShiftTask
from canet.data.user_task import user_task
from tests.support.data_of import data_of
from tests.support.tiny import tiny_task
from tests.support.user_graphs import small_user_graph


def changed(task: ShiftTask, name: str, index: tuple[int, ...]) -> ShiftTask:
    """The task with one number of a column or matrix changed."""
    data = data_of(task)
    data[name][index] = (data[name][index] + 1) % 3
    return replace(task, data=data)


def test_the_same_data_has_the_same_digest_also_after_json() -> None:
    first, second = tiny_task().digest, tiny_task().digest
    assert first == second
    assert first.differs_in(second) is None
    again = DataDigest(**json.loads(json.dumps(asdict(first))))
    assert first.differs_in(again) is None
    assert again.short == first.short
    assert len(first.feature_sums) == 9


def test_each_change_is_found_in_its_part() -> None:
    task = tiny_task()
    nodes = torch.arange(60)
    for other, part in (
        (changed(task, "edge_index", (0, 3)), "graph"),
        (replace(task, data=data_of(task).update({"batch": nodes // 30})), "graph"),
        (changed(task, "y", (55,)), "labels"),
        (changed(task, "environment", (55,)), "labels"),
        (replace(task, valid=task.valid[:-1]), "splits"),
        (replace(task, valid=task.valid.flip(0)), "splits"),
        (replace(task, test_ood={"near": nodes[40:50], "further": nodes[50:60]}), "splits"),
        (replace(task, in_distribution=nodes < 41), "splits"),
        (replace(task, metric="macro_f1"), "splits"),
        (replace(task, data=data_of(task).update({"time": nodes.double()})), "splits"),
        (replace(task, data=data_of(task).update({"sample_weight": nodes.float()})), "labels"),
        (changed(task, "x", (59, 7)), "features"),
    ):
        assert task.digest.differs_in(other.digest) == part
    first, second = tiny_task(sparse=True), tiny_task(sparse=True)
    second.data.x.values()[17] += 1
    assert first.digest.differs_in(second.digest) == "features"


def test_features_that_differ_by_rounding_are_distinguished_from_other_features() -> None:
    task = tiny_task()
    data = data_of(task)
    data.x = data.x * (1 + 2e-7)
    assert not data.x.equal(task.data.x)
    rounded = replace(task, data=data)
    assert task.digest.differs_in(rounded.digest) == "last bits"


@pytest.mark.parametrize("sparse", [False, True])
def test_the_sums_agree_with_a_loop_for_dense_and_sparse_features(sparse: bool) -> None:
    task = tiny_task(sparse=sparse)
    x = task.data.x.to_dense() if sparse else task.data.x
    rows, columns = digest._signs(60), digest._signs(8)
    expected = [
        sum(float(x[i, j] * rows[i, k] * columns[j, k]) for i in range(60) for j in range(8))
        for k in range(8)
    ]
    *sums, norm = task.digest.feature_sums
    assert sums == pytest.approx(expected, rel=1e-5)
    assert norm == pytest.approx(float(x.norm()))


def test_the_digest_does_not_depend_on_chunks_and_strides(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    dense, sparse = tiny_task().digest, tiny_task(sparse=True).digest
    monkeypatch.setattr(digest, "CHUNK", 64)
    task = tiny_task()
    data = data_of(task)
    data.x = data.x.t().contiguous().t()
    assert not data.x.is_contiguous()
    for whole, cut in (
        (dense, replace(task, data=data).digest),
        (sparse, tiny_task(sparse=True).digest),
    ):
        assert whole.differs_in(cut) is None
        assert whole.feature_sums == pytest.approx(cut.feature_sums)


def test_signs_are_the_same_on_every_machine_and_balanced() -> None:
    signs = digest._signs(1000)
    assert signs[:4, :3].tolist() == [[1, -1, 1], [1, 1, -1], [1, 1, 1], [1, -1, 1]]
    assert signs.double().mean().abs() < 0.05


def test_a_replaced_column_of_a_user_graph_is_no_rounding_error() -> None:
    data = small_user_graph()
    data.x[:, 0] *= 1e7
    other = data.clone()
    other.x[:, 1] = other.x[:, 1].flip(0)
    first, second = (user_task(one).task.digest for one in (data, other))
    assert first.differs_in(second) == "features"
    assert first.differs_in(user_task(data).task.digest) is None
