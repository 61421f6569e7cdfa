from pathlib import Path

import pytest
import torch

from canet.data import load_task
from canet.errors import CanetError

STEP = torch.arange(441) // 9 + 1


def test_complete_official_layout_is_read(small_root: Path) -> None:
    task = load_task("elliptic", small_root)
    expected = torch.arange(441)[:, None] + torch.arange(165) / 1000
    torch.testing.assert_close(task.data.x, expected)
    assert task.data.y.equal(torch.tensor([-1, 1, 0]).repeat(147))
    assert task.data.environment.equal(STEP - 1)
    source, target = task.data.edge_index
    assert target.equal(source + 1)
    assert source.numel() == 49 * 8


def test_first_five_steps_are_in_distribution_with_their_unknown_nodes(small_root: Path) -> None:
    task = load_task("elliptic", small_root)
    assert task.in_distribution.equal(STEP <= 5)
    assert [task.train.numel(), task.valid.numel(), task.test_id.numel()] == [15, 7, 8]


def test_later_steps_are_eight_groups_of_four_and_the_left_out_ones(small_root: Path) -> None:
    task = load_task("elliptic", small_root)
    assert len(task.test_ood) == 8
    assert next(iter(task.test_ood)) == "steps 11-14"
    assert list(task.test_ood)[-1] == "steps 39-42"
    assert list(task.left_out) == ["steps 6-10", "steps 43-49"]
    for name, nodes in {**task.test_ood, **task.left_out}.items():
        first, last = map(int, name.removeprefix("steps ").split("-"))
        assert set(STEP[nodes].tolist()) == set(range(first, last + 1))
        assert nodes.numel() == 6 * (last + 1 - first)
    everything = torch.cat(list(task.splits().values()))
    assert everything.sort().values.equal((task.data.y >= 0).nonzero().flatten())


@pytest.mark.parametrize("absent", ["raw/elliptic_txs_features.csv", "time_steps.csv"])
def test_structural_features_need_the_steps_from_either_file(absent: str, small_root: Path) -> None:
    (small_root / "elliptic" / absent).unlink()
    task = load_task("elliptic", small_root, features="structural")
    assert task.data.x.shape == (441, 128)
    assert task.data.environment.equal(STEP - 1)
    assert task.features == "structural"
    for name in ("raw/elliptic_txs_features.csv", "time_steps.csv"):
        (small_root / "elliptic" / name).unlink(missing_ok=True)
    with pytest.raises(CanetError, match=r"'elliptic/time_steps\.csv'"):
        load_task("elliptic", small_root, features="structural")


def test_unlisted_transactions_and_other_columns_are_rejected(small_root: Path) -> None:
    raw = small_root / "elliptic" / "raw"
    path = raw / "elliptic_txs_edgelist.csv"
    path.write_text(path.read_text() + "7000000,5\n")
    with pytest.raises(CanetError, match=r"elliptic_txs_edgelist\.csv"):
        load_task("elliptic", small_root)
    path.write_text(path.read_text().removesuffix("7000000,5\n"))
    path = raw / "elliptic_txs_features.csv"
    path.write_text("".join(f"{line},0\n" for line in path.read_text().splitlines()))
    with pytest.raises(CanetError, match=r"168 columns.* 167"):
        load_task("elliptic", small_root)


@pytest.mark.usefixtures("no_decomposition", "fresh_cache")
def test_real_sizes_are_the_published_ones(data_root: Path) -> None:
    task = load_task("elliptic", data_root, features="structural")
    assert task.num_nodes == 203769
    assert task.data.edge_index.shape[1] == 234355
    assert torch.bincount(task.data.y + 1).tolist() == [157205, 42019, 4545]
    assert task.data.environment.unique().numel() == 49
    source, target = task.data.environment[task.data.edge_index]
    assert source.equal(target)
