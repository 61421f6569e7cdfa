"""Reliance on spurious columns: a table of made-up runs, and the measurement of a real run."""

from pathlib import Path

import numpy as np
import pytest

from canet.data import load_task
from canet.data.benchmarks import synthetic
from canet.data.benchmarks.spurious import NUM_SPURIOUS
from canet.data.task import ShiftTask
from canet.methods import get_method
from canet.models import Learner, Options, get_learner
from canet.paper import Scope
from canet.store import RunFolder
from experiments.reliance import (
    BASE,
    ID,
    OOD,
    SPURIOUS,
    SpuriousReliance,
    _effect,
    as_classifier,
    induced_subgraph,
    measure_run,
)
from tests.support.made_up import write_runs


def test_the_table_has_flip_rates(fresh_cache: Path, tmp_path: Path) -> None:
    quick = SpuriousReliance(Scope(quick=True))
    (table,) = quick.tables(write_runs(quick, tmp_path))
    flips = {(row[1], row[3]): row[4] for row in table.rows}
    assert set(flips) == {(p, m) for p in ("paper", "disjoint") for m in ("ERM", "CaNet")}
    for (_, method), score in flips.items():
        assert score.mean == pytest.approx(0.5 if method == "ERM" else 0.05)


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> tuple[Learner, ShiftTask, RunFolder]:
    """CaNet for a few epochs on a small embedded task."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(synthetic, "NUM_USERS", 300)
        task = load_task("synthetic", protocol="disjoint")
    learner = get_learner(
        "canet", settings=get_method("canet").settings_type(epochs=20), options=Options("cpu")
    )
    folder = tmp_path_factory.mktemp("run")
    learner.run(task, {0: folder})
    return learner, task, RunFolder(folder)


def test_the_reliance_of_a_run_is_measured_with_and_without_shift(
    run: tuple[Learner, ShiftTask, RunFolder],
) -> None:
    found = measure_run(*run)
    for where in (ID, OOD):
        for block in (SPURIOUS, BASE):
            assert 0 < found[where][block]["flipped"] < 1


def test_a_model_that_ignores_the_spurious_columns_does_not_rely_on_them(
    run: tuple[Learner, ShiftTask, RunFolder],
) -> None:
    learner, task, place = run
    model = as_classifier(learner, task, place)
    weight = model.fitted_.method.model.phi_in.weight
    weight.data[:, -NUM_SPURIOUS:] = 0
    graph = induced_subgraph(task, ~task.in_distribution)
    columns = np.arange(task.num_features)[-NUM_SPURIOUS:]
    assert _effect(model, graph, SPURIOUS, columns) == {"flipped": 0.0, "lost": 0.0}


def test_a_subgraph_has_its_nodes_edges_and_test_labels(
    run: tuple[Learner, ShiftTask, RunFolder],
) -> None:
    task = run[1]
    graph = induced_subgraph(task, task.in_distribution)
    inside = int(task.in_distribution.sum())
    assert graph.num_nodes == inside
    assert graph.edge_index.shape[1] == task.data.edge_index.shape[1] // 2
    assert (graph.y >= 0).nonzero().squeeze(1).tolist() == task.test_id.tolist()
