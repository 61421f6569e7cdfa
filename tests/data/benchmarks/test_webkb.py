from collections.abc import Callable
from itertools import permutations
from pathlib import Path

import numpy as np
import pytest
import torch
from sklearn.linear_model import LogisticRegression

from canet.data import load_task
from canet.data.task import ShiftTask
from tests.support.raw_files import without_checksums

IDS = {"cornell": [0, 2, 3, 4, 1], "texas": [0, 4, 3, 2, 1], "wisconsin": [1, 3, 2, 4, 0]}
"""Ids of course, faculty, student, project and staff in each file."""


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fresh_cache: Path) -> Path:
    """Fifteen pages per university: a course, a faculty member, a student and so on, three times.

    Page i has word i mod 5, and links to the next page and to itself.
    """
    without_checksums(monkeypatch)
    for university, ids in IDS.items():
        folder = tmp_path / "raw" / "webkb" / university
        folder.mkdir(parents=True)
        words = np.eye(5, dtype=int)
        pages = [f"{i}\t{','.join(map(str, words[i % 5]))}\t{ids[i % 5]}\n" for i in range(15)]
        text = "".join(["node_id\tfeature\tlabel\n", *pages])
        (folder / "out1_node_feature_label.txt").write_text(text)
        links = [f"{i}\t{j}\n" for i in range(14) for j in (i, i + 1)]
        (folder / "out1_graph_edges.txt").write_text("".join(["node_id\tnode_id\n", *links]))
    return tmp_path / "raw"


def test_classes_have_the_same_order_at_all_universities(root: Path) -> None:
    task = load_task("webkb", root)
    assert task.data.y.equal(torch.arange(5).repeat(9))
    assert task.data.x.argmax(dim=1).equal(task.data.y)


def test_links_are_edges_in_both_directions_without_self_loops(root: Path) -> None:
    edges = load_task("webkb", root).data.edge_index
    assert edges.shape == (2, 3 * 28)
    assert set((edges[0] - edges[1]).abs().tolist()) == {1}


def test_real_universities_have_their_published_size(real_task: Callable[..., ShiftTask]) -> None:
    task = real_task("webkb")
    assert task.num_features == 1703
    assert set(task.data.x.unique().tolist()) == {0, 1}
    counts = [torch.bincount(task.data.y[task.data.batch == i]).tolist() for i in range(3)]
    assert counts == [[38, 30, 82, 17, 16], [33, 30, 101, 18, 1], [70, 32, 118, 21, 10]]
    links = torch.bincount(task.data.batch[task.data.edge_index[0]]) // 2
    assert links.tolist() == [280 - 3, 295 - 16, 466 - 16]


@pytest.mark.parametrize("source", IDS)
def test_no_other_order_of_the_real_classes_transfers_better(
    source: str, real_task: Callable[..., ShiftTask]
) -> None:
    task = real_task("webkb", protocol=source)
    x, y, inside = task.data.x.numpy(), task.data.y.numpy(), task.in_distribution.numpy()
    words_only = LogisticRegression().fit(x[inside], y[inside])
    for nodes in task.test_ood.values():
        guess, truth = words_only.predict(x[nodes]), y[nodes]
        orders = np.array(list(permutations(range(5))))
        right = (orders[:, guess] == truth).mean(axis=1)
        assert right.argmax() == 0  # the present order
        assert right[0] > 0.65


def test_the_only_staff_page_of_texas_is_in_train(real_task: Callable[..., ShiftTask]) -> None:
    for seed in range(3):
        task = real_task("webkb", protocol="texas", data_seed=seed)
        assert task.data.y[task.train].unique().numel() == 5
