from pathlib import Path

import pytest
import torch

from canet.data import load_task
from canet.errors import CanetError

YEAR = 2004 + torch.arange(170) % 17


def test_complete_official_layout_is_read(small_root: Path) -> None:
    task = load_task("arxiv", small_root)
    expected = torch.arange(170)[:, None] + torch.arange(128) / 1000
    torch.testing.assert_close(task.data.x, expected)
    assert task.data.y.equal(torch.arange(170) % 5)
    citing, cited = task.data.edge_index
    assert (citing > cited).all()
    assert task.features == "original"


def test_papers_before_2014_are_in_distribution(small_root: Path) -> None:
    task = load_task("arxiv", small_root)
    assert task.in_distribution.equal(YEAR < 2014)
    assert [task.train.numel(), task.valid.numel(), task.test_id.numel()] == [50, 25, 25]
    assert (YEAR[torch.cat([task.train, task.valid, task.test_id])] < 2014).all()


def test_later_papers_are_tested_by_period(small_root: Path) -> None:
    task = load_task("arxiv", small_root)
    years = {name: set(YEAR[nodes].tolist()) for name, nodes in task.test_ood.items()}
    assert years == {
        "2014-2015": {2014, 2015},
        "2016-2017": {2016, 2017},
        "2018-2020": {2018, 2019, 2020},
    }
    for name, nodes in task.test_ood.items():
        assert {task.environments[i] for i in task.data.environment[nodes].tolist()} == {name}
    ids = task.training_environments().tolist()
    assert [task.environments[i] for i in ids] == ["until 2009", "2010-2011", "2012-2013"]
    assert set(YEAR[task.data.environment == 0].tolist()) == set(range(2004, 2010))
    assert set(YEAR[task.data.environment == 2].tolist()) == {2012, 2013}


def test_structural_features_need_no_features_file(small_root: Path) -> None:
    (small_root / "arxiv" / "raw" / "node-feat.csv.gz").unlink()
    task = load_task("arxiv", small_root, features="structural")
    assert task.data.x.shape == (170, 128)
    assert task.features == "structural"
    inductive = load_task("arxiv", small_root, features="structural", inductive=True)
    assert inductive.inductive
    assert not inductive.data.x.equal(task.data.x)


def test_files_with_missing_rows_or_bytes_are_rejected(small_root: Path) -> None:
    raw = small_root / "arxiv" / "raw"
    (raw / "node-label.csv.gz").write_bytes((raw / "num-node-list.csv.gz").read_bytes())
    with pytest.raises(CanetError, match=r"node-label\.csv\.gz'.* 1 rows.* 170"):
        load_task("arxiv", small_root)
    path = raw / "edge.csv.gz"
    path.write_bytes(path.read_bytes()[:-20])
    with pytest.raises(CanetError, match=r"edge\.csv\.gz"):
        load_task("arxiv", small_root)


@pytest.mark.usefixtures("no_decomposition", "fresh_cache")
def test_real_sizes_are_the_published_ones(data_root: Path) -> None:
    task = load_task("arxiv", data_root, features="structural")
    assert task.num_nodes == 169343
    assert task.data.edge_index.shape[1] == 1166243
    assert task.num_classes == 40
    assert task.in_distribution.sum() == 31971
    sizes = {name: nodes.numel() for name, nodes in task.splits().items()}
    assert [sizes["train"], sizes["valid"], sizes["test_id"]] == [15985, 7992, 7994]
    assert sum(sizes.values()) == 169343
