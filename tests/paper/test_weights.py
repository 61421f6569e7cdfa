import math
from pathlib import Path

import pytest
import torch

from canet.paper.scope import Repeat, Scope, TaskSpec
from canet.paper.weights import Weights, branch_weights, branch_weights_at_start, over_pairs
from canet.runs.evaluate import load_task_of, open_learner
from canet.store import RunFolder
from canet.store.run_folder import WEIGHTS
from tests.support.made_up import names, write_runs


def test_equal_branches_have_similarity_1_and_unrelated_ones_distance_root_2() -> None:
    equal = torch.randn(1, 4, 4).expand(3, 4, 4)
    assert over_pairs(equal, "cosine similarity") == pytest.approx(1.0)
    assert over_pairs(equal, "relative distance") == 0.0
    weights = torch.eye(9)[:3].view(3, 3, 3)
    assert over_pairs(weights, "cosine similarity") == 0.0
    assert over_pairs(weights, "relative distance") == pytest.approx(math.sqrt(2))


@pytest.mark.parametrize("backbone", ["gcn", "gat"])
def test_the_initial_weights_are_those_of_the_run(backbone: str, tmp_path: Path) -> None:
    spec = TaskSpec("synthetic", "original", "synthetic")
    changes = {"epochs": 1, "hidden": 8, "learning_rate": 1e-12, "num_layers": 3}
    config = Scope().job(spec, "canet", backbone, Repeat(0, 7), changes=changes)
    open_learner(config, "cpu").run(load_task_of(config, None), {7: tmp_path})
    trained = branch_weights(RunFolder(tmp_path))
    for now, start in zip(trained, branch_weights_at_start(RunFolder(tmp_path)), strict=True):
        assert now.shape == (3, 8, 8)
        torch.testing.assert_close(now, start)
    assert not torch.equal(*trained)


def test_rows_and_heat_maps_need_no_weights_once_they_are_measured(
    fresh_cache: Path, tmp_path: Path
) -> None:
    quick = Weights(Scope(quick=True))
    finished = write_runs(quick, tmp_path / "runs")
    quick.add_measurements(finished, "cpu")
    (table,) = quick.tables(finished)
    rows, layers = table.texts()[1], ("first layer", "last layer")
    assert [row[1:3] for row in rows] == [[b, layer] for b in ("GCN", "GAT") for layer in layers]
    assert all(row[3] == row[4] for row in rows)
    for weights in (tmp_path / "runs").rglob(WEIGHTS):
        weights.unlink()
    quick.add_measurements(finished, "cpu")
    assert quick.tables(finished) == [table]
    quick.draw(finished, tmp_path / "figures")
    backbones, suffixes = ("gcn", "gat"), ("svg", "png")
    expected = {f"weights-synthetic-{b}-quick.{s}" for b in backbones for s in suffixes}
    assert names(tmp_path / "figures") == expected
