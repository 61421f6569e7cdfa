import csv
from pathlib import Path

import pytest
import torch

from canet.data import load_task
from canet.data.benchmarks.twitch import read_region
from canet.models import Trainer


def paths(root: Path, folder: str) -> tuple[Path, Path, Path]:
    start = root / "twitch" / folder / f"musae_{folder}"
    return Path(f"{start}_edges.csv"), Path(f"{start}_features.json"), Path(f"{start}_target.csv")


def test_labels_are_assigned_by_user_id(small_root: Path) -> None:
    _, _, y = read_region(*paths(small_root, "FR"))
    assert y.tolist() == [1, 0] * 10


def test_edges_have_both_directions_and_one_self_loop_per_user(small_root: Path) -> None:
    edge_index, _, _ = read_region(*paths(small_root, "ES"))
    ring = {(u, (u + 1) % 20) for u in range(20)}
    expected = ring | {(v, u) for u, v in ring} | {(u, u) for u in range(20)}
    edges = list(zip(*edge_index.tolist(), strict=True))
    assert len(edges) == 60
    assert set(edges) == expected


def test_features_are_multi_hot_and_repeated_ids_count_once(small_root: Path) -> None:
    _, x, _ = read_region(*paths(small_root, "DE"))
    assert x.shape == (20, 3170)
    assert x.sum(axis=1).tolist() == [0] + [2] * 19
    assert x[[5], [3169]] == x[[5], [5]] == 1


def test_regions_are_environments_and_the_last_three_are_shifted(small_root: Path) -> None:
    task = load_task("twitch", small_root)
    assert task.environments == ("DE", "PT", "RU", "ES", "FR", "EN")
    assert task.data.environment.equal(torch.arange(6).repeat_interleave(20))
    assert task.in_distribution.nonzero().flatten().equal(torch.arange(60))
    sizes = {name: nodes.numel() for name, nodes in task.test_ood.items()}
    assert sizes == {"ES": 20, "FR": 20, "EN": 20}
    assert [task.train.numel(), task.valid.numel(), task.test_id.numel()] == [30, 15, 15]


@pytest.mark.parametrize("left_out", ["DE", "PT", "RU", "ES", "FR", "EN"])
def test_each_region_can_be_left_out_of_training(left_out: str, small_root: Path) -> None:
    paper = load_task("twitch", small_root)
    task = load_task("twitch", small_root, protocol=f"without-{left_out.lower()}")
    number = task.environments.index(left_out)
    outside = task.data.environment == number
    assert task.protocol == f"without-{left_out.lower()}"
    assert task.in_distribution.equal(~outside)
    assert {name: nodes.tolist() for name, nodes in task.test_ood.items()} == {
        left_out: outside.nonzero().flatten().tolist()
    }
    assert [task.train.numel(), task.valid.numel(), task.test_id.numel()] == [50, 25, 25]
    assert set(task.training_environments().tolist()) == set(range(6)) - {number}
    assert task.digest.differs_in(paper.digest) == "splits"
    assert task.digest.graph == paper.digest.graph


def test_one_region_can_be_the_only_one_in_training(small_root: Path) -> None:
    task = load_task("twitch", small_root, protocol="only-es")
    assert list(task.test_ood) == ["DE", "PT", "RU", "FR", "EN"]
    assert task.training_environments().tolist() == [3]
    assert task.in_distribution.equal(task.data.environment == 3)


def test_methods_with_environments_train_without_the_first_region(small_root: Path) -> None:
    task = load_task("twitch", small_root, protocol="without-de")
    run = Trainer(task, "vrex", device="cpu", epochs=2).run()
    assert run.result.environments_seen == ["PT", "RU", "ES", "FR", "EN"]


def test_rows_of_features_sum_to_one_unless_they_are_multi_hot(small_root: Path) -> None:
    task = load_task("twitch", small_root)
    assert task.features == "original"
    assert task.data.x.to_dense()[65, [5, 3169]].tolist() == [0.5, 0.5]
    assert set(task.data.x.to_dense().sum(dim=1).tolist()) == {0.0, 1.0}
    task = load_task("twitch", small_root, features="multi-hot")
    assert task.features == "multi-hot"
    assert task.data.x.to_dense()[65, [5, 3169]].tolist() == [1, 1]


def test_real_sizes_differ_from_the_published_sizes_by_two_repeated_rows(data_root: Path) -> None:
    task = load_task("twitch", data_root)
    with paths(data_root, "FR")[2].open(newline="") as file:
        users = [row["new_id"] for row in csv.DictReader(file)]
    repeated = len(users) - len(set(users))
    assert repeated == 2
    assert task.num_nodes + repeated == 34120
    assert task.data.edge_index.shape[1] + repeated == 892346
    assert task.num_features == 3170
    assert list(task.splits())[3:] == ["ood/ES", "ood/FR", "ood/EN"]
    sizes = [nodes.numel() for nodes in task.splits().values()]
    assert sizes == [7897, 3948, 3950, 4648, 6549, 7126]


def test_real_labels_of_fr_belong_to_their_users(data_root: Path) -> None:
    task = load_task("twitch", data_root)
    start = int(task.test_ood["FR"][0])
    with paths(data_root, "FR")[2].open(newline="") as file:
        for row in csv.DictReader(file):
            assert int(task.data.y[start + int(row["new_id"])]) == (row["mature"] == "True")
