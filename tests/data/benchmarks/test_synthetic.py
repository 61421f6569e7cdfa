import builtins
import io
import socket
from pathlib import Path
from typing import Any

import pytest
import torch

from canet.data import WITHOUT_SPURIOUS, load_task
from canet.data.benchmarks.synthetic import NUM_WORDS
from canet.data.task import ShiftTask
from canet.models import Trainer


@pytest.fixture(scope="module")
def task() -> ShiftTask:
    return load_task("synthetic")


def test_seed_and_protocol_determine_the_task(task: ShiftTask) -> None:
    torch.manual_seed(99)
    same = load_task("synthetic", data_seed=0, protocol="paper")
    assert task.digest == same.digest
    other = load_task("synthetic", data_seed=1).digest
    for part in ("graph", "labels", "splits", "features"):
        assert getattr(task.digest, part) != getattr(other, part)


def test_six_domains_of_1500_users_in_five_groups(task: ShiftTask) -> None:
    assert task.num_nodes == 6 * 1500
    assert task.num_classes == 5
    assert task.num_features == NUM_WORDS + 10
    assert task.data.environment.bincount().tolist() == [1500] * 6
    assert list(task.test_ood) == ["domain 4", "domain 5", "domain 6"]
    assert task.data.y[:1500].bincount().min() > 200


def test_features_are_bags_of_words_and_friendships_have_both_directions(task: ShiftTask) -> None:
    assert task.data.x.layout == torch.sparse_csr
    words = task.data.x.to_dense()[:1500, :NUM_WORDS]
    assert (words > 0).float().mean() < 0.04
    torch.testing.assert_close(words.sum(dim=1), torch.ones(1500))
    edges = set(map(tuple, task.data.edge_index.T.tolist()))
    assert len(edges) == task.data.edge_index.shape[1]
    assert all((b, a) in edges and a != b for a, b in edges)


def test_no_file_is_read_or_written_and_no_network_used(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: Any, **__: Any) -> None:
        pytest.fail("the embedded task needs no files")

    monkeypatch.setattr(builtins, "open", fail)
    monkeypatch.setattr(io, "open", fail)
    monkeypatch.setattr(Path, "open", fail)
    monkeypatch.setattr(socket, "socket", fail)
    load_task("synthetic")


@pytest.mark.slow
def test_gcn_without_the_spurious_columns_scores_84_to_92_on_unseen_nodes() -> None:
    task = load_task("synthetic", protocol="disjoint", features=WITHOUT_SPURIOUS)
    assert task.num_features == NUM_WORDS
    run = Trainer(task, "erm", "gcn", device="cpu", epochs=100).run()
    for name in ("test_id", "ood/domain 4", "ood/domain 5", "ood/domain 6"):
        assert 0.84 < run.result.scores[name] < 0.92
