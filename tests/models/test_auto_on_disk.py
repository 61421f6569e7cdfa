"""`auto` on a graph store that stays on disk."""

import pickle
from dataclasses import replace
from pathlib import Path
from time import time
from typing import Any

import numpy as np
import pytest
import torch

import canet
from canet import GraphStore, GraphStoreWriter, NodeClassifier
from canet.data.task import ShiftTask
from canet.data.user_task import user_task
from canet.models import LEARNERS, Auto, Options, portfolio, trees
from canet.models.auto import AutoSettings
from canet.models.base import WORK_FOLDER, Fitted
from canet.models.options import OutOfTime
from canet.models.parts import Parts
from canet.models.portfolio import Recipe
from canet.models.shifts import hold_out
from canet.reading import columns, pieces
from canet.reading.columns import Columns, TabularSettings
from canet.reading.prepared import task_graph
from tests.support.nearest_mean import NearestMean
from tests.support.stores import never_load

NUM_NODES = 160
Y = np.arange(NUM_NODES) % 3
MODELS = (
    Recipe("linear", changes={"neighbours": False}),
    Recipe("linear", changes={"scaling": "standardised"}),
    Recipe("trees", changes={"max_trees": 3}),
    Recipe("erm", "sage", {"norm": "layer", "scaling": "standardised"}),
)
QUICK = AutoSettings(epochs=3, hidden=8, batch_size=32, fanout="5,5")
EXACT = replace(QUICK, batch_size=10**6, fanout="-1,-1", dropout=0.0)


@pytest.fixture(autouse=True)
def few_models_in_small_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(portfolio.PRESETS, "robust", MODELS)
    monkeypatch.setattr(pieces, "EDGES_AT_ONCE", {"cpu": 300, "cuda": 300})
    monkeypatch.setattr("canet.util.files.BYTES_IN_MEMORY", 2_000)
    monkeypatch.setattr("canet.util.sparse.EDGES_AT_ONCE", 300)


def arrays(width: int = 6) -> tuple[np.ndarray, ...]:
    """Features, sources, targets and weights of a graph with self-loops and two styles."""
    random = np.random.default_rng(0)
    style = np.arange(NUM_NODES) // 3 % 2
    x = np.eye(3, width)[Y] + 0.4 * random.normal(size=(NUM_NODES, width))
    x[:, 3:] += 3.0 * style[:, None]
    source, target = random.integers(NUM_NODES, size=(2, 560))
    return x.astype(np.float32), source, target, random.random(560).astype(np.float32) + 0.5


def write(
    path: Path, columns: tuple[np.ndarray, ...], y: np.ndarray = Y, sparse: bool = False
) -> GraphStore:
    x, source, target, weight = columns
    with GraphStoreWriter(path, NUM_NODES) as writer:
        writer.add_edges(source, target, weight)
        writer.add_features(torch.from_numpy(x).to_sparse_csr() if sparse else x)
        writer.set_labels(y)
        splits = np.array(["train", "train", "valid", "next"])
        writer.set_split(splits[np.arange(NUM_NODES) // 3 % 4])
    return GraphStore(path)


def task_of(path: Path, *columns: np.ndarray, **how: Any) -> ShiftTask:
    return user_task(write(path, columns or arrays(), **how).open()).task


def run(task: ShiftTask, settings: AutoSettings = QUICK, folder: Path | None = None) -> Fitted:
    (found,) = Auto(settings, Options("cpu")).run(task, {0: folder})
    return found


def numbers(found: Fitted) -> list[float]:
    cells = [[c.likelihood, c.validation, c.held_out, c.weight] for c in found.candidates]
    return [*found.result.scores.values(), *np.nan_to_num(cells).ravel()]


@pytest.mark.parametrize(
    ("width", "sparse"),
    [
        (6, False),
        pytest.param(40, False, marks=pytest.mark.slow),
        pytest.param(6, True, marks=pytest.mark.slow),
    ],
)
def test_a_store_on_disk_gives_the_models_of_the_graph_in_memory(
    width: int, sparse: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    task = task_of(tmp_path / "store", *arrays(width), sparse=sparse)
    expected = run(task.in_memory(), EXACT)
    never_load(monkeypatch)
    found = run(task, EXACT)
    assert [c.name for c in found.candidates] == [c.name for c in expected.candidates]
    assert numbers(found) == pytest.approx(numbers(expected), abs=1e-3)


@pytest.mark.parametrize("most", [0, columns.MAX_NUMBERS])
def test_columns_on_disk_are_those_in_memory(
    tmp_path: Path, most: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(columns, "MAX_NUMBERS", most)
    task = task_of(tmp_path / "store")
    mask = torch.arange(NUM_NODES) % 5 < 2
    for on_disk in (task, hold_out(task, mask)):
        in_memory = on_disk.in_memory()
        if on_disk.data.separated is not None:
            in_memory = hold_out(task.in_memory(), mask)
        found, expected = (
            Columns(task_graph(one, False), TabularSettings("standardised"))
            for one in (on_disk, in_memory)
        )
        expected = expected.rows(torch.arange(NUM_NODES))
        nodes = torch.tensor([7, 3, 3, 150])
        assert torch.allclose(found.rows(nodes), expected[nodes], atol=1e-5)
        for ids, part in found.parts(None):
            assert torch.allclose(part, expected[ids], atol=1e-5)


def test_a_prediction_for_one_node_reads_only_its_neighbourhood(tmp_path: Path) -> None:
    graph = task_graph(task_of(tmp_path / "store"), False)
    columns_of = Columns(graph, TabularSettings())
    columns_of.logits(torch.tensor([7]), 2, lambda rows: rows[:, :2])
    assert graph.neighbour_rows is not None
    assert graph.neighbour_rows[0].tolist() == [7]


def test_nothing_is_learnt_from_a_held_out_part(tmp_path: Path) -> None:
    x, source, target, weight = arrays()
    mask = torch.arange(NUM_NODES) // 3 % 2 == 1
    held = mask.nonzero().squeeze(1).numpy()
    random = np.random.default_rng(1)
    other, y = x.copy(), Y.copy()
    other[held] = 10 * random.normal(size=(len(held), x.shape[1]))
    y[held] = 2 - y[held]
    inside = np.isin(target, held)
    source_now = np.where(inside, random.integers(NUM_NODES, size=len(source)), source)
    changed = other, source_now, target, weight
    found = []
    for name, parts, labels in (("a", arrays(), Y), ("b", changed, y)):
        shift = hold_out(task_of(tmp_path / name, *parts, y=labels), mask)
        for recipe in MODELS:
            (model,) = recipe.learner(QUICK, Options("cpu")).run(shift, {0: None})
            found.append(model.state()[1])
    for first, second in zip(found[: len(MODELS)], found[len(MODELS) :], strict=True):
        assert first.keys() == second.keys()
        assert all(torch.equal(first[name], second[name]) for name in first)


def test_an_interrupted_fit_on_a_store_continues(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    task = task_of(tmp_path / "store")
    whole = run(task)
    work = tmp_path / "run" / WORK_FOLDER
    tried = Auto(QUICK, Options("cpu")).try_all(Parts(task, sampled=True), 0, work)
    assert [next(tried).failure for _ in range(2)] == ["", ""]
    fitted: list[str] = []
    fit = trees.Trees.fit
    monkeypatch.setattr("canet.models.linear.Linear.fit", None)  # finished: it is only read
    monkeypatch.setattr(trees.Trees, "fit", lambda *a, **k: fitted.append("trees") or fit(*a, **k))
    assert numbers(run(task, folder=tmp_path / "run")) == numbers(whole)
    assert fitted == ["trees"] * 3


def test_a_learner_that_needs_the_graph_in_memory_is_left_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(LEARNERS, NearestMean.name, NearestMean)
    with pytest.warns(canet.InputWarning, match="'nearest-mean' is left out: .* in memory"):
        run(task_of(tmp_path / "store"), replace(QUICK, preset="linear,nearest-mean"))


def test_models_are_trained_on_samples_whose_size_is_printed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    store = write(tmp_path / "store", arrays())
    monkeypatch.setattr(columns, "MAX_NUMBERS", 6 * 3 * 50)
    monkeypatch.setattr(trees, "MAX_LABELS", 3 * 40)
    never_load(monkeypatch)
    model = NodeClassifier(
        device="cpu", verbose=1, epochs=2, hidden=8, batch_size=32, fanout="5,5"
    ).fit(store)
    lines = capsys.readouterr().err.splitlines()
    assert lines.count("linear: training on a random sample of 50 nodes") == 1
    assert lines.count("trees: training on a random sample of 40 nodes") == 1
    model.save(tmp_path / "model")
    saved = canet.load(tmp_path / "model")
    assert saved.predict_proba(store) == pytest.approx(model.predict_proba(store))
    some = np.array([140, 3])
    assert saved.predict_proba(store, some) == pytest.approx(
        model.predict_proba(store)[some], abs=1e-5
    )


def test_after_the_time_limit_a_sample_of_each_set_is_scored(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("canet.models.auto.MAX_SCORED", 7)
    task = task_of(tmp_path / "store")
    for limit, count in ((0.0, 7), (1000.0, task.valid.numel())):
        auto = Auto(replace(QUICK, time_limit=limit, preset="linear"), Options("cpu", begin=time()))
        (fitted,) = auto.run(task, {0: None})
        assert fitted.predicted is not None
        assert len(fitted.predicted["valid"]) == count


def test_a_time_limit_ends_the_scaling_of_a_graph_on_disk(tmp_path: Path) -> None:
    graph = task_graph(task_of(tmp_path / "store"), hidden=False)
    late = Options(deadline=0.0).check_time
    own = Columns(graph, TabularSettings(neighbours=False, scaling="standardised"), check=late)
    with pytest.raises(OutOfTime):
        own.rows(torch.arange(5))
    again = Columns(graph, TabularSettings(neighbours=False, scaling="standardised"))
    assert again.rows(torch.arange(5)).isfinite().all()


def test_a_task_on_disk_is_sent_as_an_address(tmp_path: Path) -> None:
    task = task_of(tmp_path / "store", *arrays(400))
    sent = pickle.dumps(Parts(task))
    assert len(sent) < task.data.x.numel()  # far less than four bytes for each number
    again = pickle.loads(sent).tasks
    assert all(torch.equal(one.data.x, task.data.x) for one in again.values())
    assert [one.digest for one in again.values()] == [t.digest for t in Parts(task).tasks.values()]
