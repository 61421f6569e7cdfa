from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import scipy.sparse as sp
import torch
from scipy.io import savemat

from canet.data import load_task
from canet.data.task import ShiftTask
from tests.support.raw_files import without_checksums

SCHOOLS = ("Amherst41", "Cornell5", "Johns Hopkins55", "Reed98")


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fresh_cache: Path) -> Path:
    """Twelve people per school in a ring of friends; person i has gender i mod 3.

    Person i has status i mod 7, year 1999 + i (unknown for person 0) and dorm i. Major, minor and
    high school are unknown.
    """
    without_checksums(monkeypatch)
    folder = tmp_path / "raw" / "fb100"
    folder.mkdir(parents=True)
    i = np.arange(12)
    none = np.zeros(12)
    year = np.where(i > 0, 1999 + i, 0)
    table = np.stack([i % 7, i % 3, none, none, i, year, none], axis=1).astype(np.uint16)
    forward = sp.csc_matrix((np.ones(12), (i, (i + 1) % 12)))
    for school in SCHOOLS:
        savemat(folder / f"{school}.mat", {"A": forward + forward.T, "local_info": table})
    return tmp_path / "raw"


def test_gender_is_the_label_and_zero_means_unknown(root: Path) -> None:
    task = load_task("fb100", root, protocol="hopkins")
    assert task.data.y.equal(torch.tensor([-1, 0, 1]).repeat(16))
    assert list(task.test_ood) == ["amherst", "cornell", "reed"]
    assert all(nodes.numel() == 8 for nodes in task.test_ood.values())


def test_features_are_one_hot_and_comparable_between_schools(root: Path) -> None:
    x = load_task("fb100", root).data.x[:12]
    assert x.shape == (12, 23)
    assert x[:, :7].argmax(dim=1).tolist() == [i % 7 for i in range(12)]
    # unknown, 2000 to 2003, 2004 to 2009, 2010
    assert x[:, 7:16].argmax(dim=1).tolist() == [0, 1, 1, 1, 1, 2, 3, 4, 5, 6, 7, 8]
    assert x[:, :16].sum() == 24
    major, minor, dorm, high_school = x[:, 16:20].T
    assert major.min() == minor.min() == high_school.min() == 1
    assert dorm.tolist() == [1] + [0] * 11
    assert (x[:, 20:] == 0.5).all()


def test_friends_are_edges_in_both_directions(root: Path) -> None:
    edges = load_task("fb100", root).data.edge_index
    ring = {(12 * s + i, 12 * s + (i + 1) % 12) for s in range(4) for i in range(12)}
    assert sorted(zip(*edges.tolist(), strict=True)) == sorted(ring | {(v, u) for u, v in ring})


def test_real_schools_have_their_published_size(real_task: Callable[..., ShiftTask]) -> None:
    task = real_task("fb100")
    sizes = [(2235, 181908), (18660, 1581554), (5180, 373172), (962, 37624)]
    for number, (people, links) in enumerate(sizes):
        inside = task.data.batch == number
        assert int(inside.sum()) == people
        assert int(inside[task.data.edge_index[0]].sum()) == links
    assert int((task.data.y < 0).sum()) == 203 + 1838 + 418 + 97
    assert int((task.data.y == 0).sum()) == 1015 + 8135 + 2153 + 504
