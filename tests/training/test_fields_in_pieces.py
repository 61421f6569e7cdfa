"""Training on a graph store gives the results of the same graph in memory."""

from pathlib import Path
from typing import Any

import pytest
import torch

from canet.data.graph import check_graph
from canet.data.store_task import load_store_task
from canet.data.task import ShiftTask
from canet.errors import InputError
from canet.methods import Batch, get_method
from canet.models import Trainer
from canet.nn import Operator, SparseMatrix
from canet.nn.sampling import parse_fanout
from canet.reading import pieces, rows
from canet.reading.prepared import PreparedGraph
from tests.support.gpu import needs_gpu
from tests.support.stores import never_load, write_store
from tests.support.tiny import tiny_task
from tests.support.trainers import make, run_until, same_run

SAMPLED: dict[str, Any] = {"epochs": 3, "batch_size": 7, "fanout": "4,3", "dropout": 0.0}
KINDS = [("dense", False), ("half", True), ("sparse", True)]


@pytest.fixture(autouse=True)
def small_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pieces, "EDGES_AT_ONCE", {"cpu": 50, "cuda": 50})
    monkeypatch.setattr(pieces, "ROWS_AT_ONCE", 16)


def both(path: Path, **parts: Any) -> tuple[ShiftTask, ShiftTask]:
    """The task of a new store, and the same task in memory."""
    task = load_store_task(str(write_store(path / "store", **parts).path))
    return task, task.in_memory()


def dense(x: Any) -> torch.Tensor:
    found = x.as_torch.to_dense() if isinstance(x, SparseMatrix) else x
    assert isinstance(found, torch.Tensor)
    return found


def batches(task: ShiftTask, backbone: str = "gcn", **settings: Any) -> list[Batch]:
    trainer = make(task, "erm", backbone=backbone, **{**SAMPLED, **settings})
    fanout = parse_fanout(trainer.learner.settings.fanout, 2)
    return list(trainer.fields.training_batches(7, fanout, seed=3, epoch=1))


@pytest.mark.parametrize("fanout", ["4,3", "-1,-1"])
@pytest.mark.parametrize(("kind", "weighted"), KINDS)
def test_batches_of_a_store_are_those_in_memory(
    tmp_path: Path, kind: str, weighted: bool, fanout: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    stored, loaded = both(tmp_path, kind=kind, weighted=weighted)
    never_load(monkeypatch)
    method = make(stored, "erm", **SAMPLED).learner.new_method(stored).eval()
    pairs = list(zip(batches(stored, fanout=fanout), batches(loaded, fanout=fanout), strict=True))
    assert len(pairs) > 3
    for mine, theirs in pairs:
        assert torch.equal(mine.y, theirs.y)
        assert float(method.loss(mine).detach()) == pytest.approx(
            float(method.loss(theirs).detach()), abs=1e-6
        )
        if fanout == "4,3":
            assert torch.equal(dense(mine.x), dense(theirs.x))
            for block, other in zip(mine.blocks, theirs.blocks, strict=True):
                assert (block.num_src, block.num_dst) == (other.num_src, other.num_dst)
                for operator, matrix in block.matrices.items():
                    assert torch.allclose(
                        matrix.as_torch.to_dense(), other.matrices[operator].as_torch.to_dense()
                    )


@pytest.mark.parametrize(
    ("method", "backbone"), [("erm", "sage"), ("canet", "gat"), ("erm", "gin")]
)
def test_a_run_on_a_store_has_the_history_and_scores_of_the_run_in_memory(
    tmp_path: Path, method: str, backbone: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    stored, loaded = both(tmp_path, weighted=True)
    expected = make(loaded, method, backbone=backbone, **SAMPLED).run(1, ood_curves=True)
    never_load(monkeypatch)
    found = make(stored, method, backbone=backbone, **SAMPLED).run(1, ood_curves=True)
    for name, curve in expected.history.items():
        assert found.history[name] == pytest.approx(curve, abs=1e-5), name
    assert found.result.scores == pytest.approx(expected.result.scores, abs=1e-6)
    assert set(found.result.scores) == {"train", "valid", "ood/test", "ood/far"}
    assert found.result.inferred_environments is None


@pytest.mark.parametrize(
    ("kind", "scaling"), [("dense", "centred"), ("half", "rows"), ("sparse", "standardised")]
)
def test_prepared_features_train_as_in_memory(tmp_path: Path, kind: str, scaling: str) -> None:
    stored, loaded = both(tmp_path, kind=kind)
    runs = [make(task, "erm", scaling=scaling, **SAMPLED).run() for task in (stored, loaded)]
    assert runs[0].history["loss"] == pytest.approx(runs[1].history["loss"], abs=1e-5)


def test_environments_and_sample_weights_of_a_store_are_used(tmp_path: Path) -> None:
    numbers = torch.arange(120)
    stored, loaded = both(tmp_path, environment=numbers % 2, sample_weight=1.0 + numbers % 3)
    settings = SAMPLED | {"batch_size": 14}  # every batch has nodes of both environments
    runs = [make(task, "group_dro", **settings).run() for task in (stored, loaded)]
    assert runs[0].history["loss"] == pytest.approx(runs[1].history["loss"], abs=1e-5)
    assert runs[0].result.environments_seen == ["0", "1"]


def test_a_killed_run_on_a_store_resumes_to_the_same_bits(tmp_path: Path) -> None:
    stored, _ = both(tmp_path)
    trainer = make(stored, "canet", **SAMPLED)
    whole = trainer.run(folder=tmp_path / "whole")
    run_until(2, tmp_path / "killed", trainer)
    resumed = make(stored, "canet", **SAMPLED).run(folder=tmp_path / "killed")
    assert same_run(whole, resumed)


def test_logits_in_pieces_are_those_in_memory(tmp_path: Path) -> None:
    stored, loaded = both(tmp_path, kind="sparse", weighted=True)
    trainers = [make(task, "canet", **SAMPLED) for task in (stored, loaded)]
    assert [not trainer.fields.by_pass for trainer in trainers] == [True, False]
    torch.manual_seed(0)
    method = trainers[0].learner.new_method(stored).eval()
    found, expected = (trainer.fields.logits(method) for trainer in trainers)
    assert list(found) == list(stored.splits())
    for split, (logits, y) in expected.items():
        assert torch.allclose(found[split][0], logits, atol=1e-5)
        assert torch.equal(found[split][1], y)


@pytest.mark.parametrize("inductive", [False, True])
def test_many_edges_in_memory_are_scored_in_pieces(
    inductive: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    task = tiny_task(inductive=inductive)
    expected = make(task, "erm", **SAMPLED).run()
    monkeypatch.setattr("canet.reading.predict.MAX_EDGES", 10)
    trainer = make(task, "erm", **SAMPLED)
    assert not trainer.fields.by_pass
    found = trainer.run()
    assert found.history["loss"] == pytest.approx(expected.history["loss"], abs=1e-5)
    assert found.result.scores == pytest.approx(expected.result.scores, abs=1e-6)
    full = make(task, "erm", epochs=2)
    assert full.fields.by_pass


@pytest.mark.parametrize("method", ["erm", "canet"])
def test_sums_over_the_whole_graph_are_those_in_memory(tmp_path: Path, method: str) -> None:
    stored, loaded = both(tmp_path)
    runs = [
        make(task, method, backbone="transformer", **SAMPLED).run() for task in (stored, loaded)
    ]
    losses = [run.history["loss"] for run in runs]
    assert losses[0] == pytest.approx(losses[1], abs=1e-4)
    assert runs[0].result.scores == pytest.approx(runs[1].result.scores, abs=1e-6)


def test_a_store_without_batches_is_read_into_memory(tmp_path: Path) -> None:
    stored, loaded = both(tmp_path)
    runs = [make(task, "erm", epochs=3).run() for task in (stored, loaded)]
    assert runs[0].history == runs[1].history
    assert not make(stored, "erm", epochs=3).fields.task.data.is_on_disk


def test_a_batch_of_all_training_nodes_leaves_the_store_on_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stored, _ = both(tmp_path)
    never_load(monkeypatch)
    run = make(stored, "erm", epochs=2, batch_size=10_000).run()
    assert len(run.history["loss"]) == 2


def test_reversed_edges_of_a_store_are_rejected_before_training(tmp_path: Path) -> None:
    stored, _ = both(tmp_path)
    with pytest.raises(InputError, match="direction"):
        make(stored, "erm", **SAMPLED, direction="against")


def test_a_method_that_needs_all_edges_is_rejected(tmp_path: Path) -> None:
    stored, _ = both(tmp_path)
    with pytest.raises(InputError, match="mixup"):
        Trainer(stored, "mixup", settings=get_method("mixup").settings_type(batch_size=7))


def test_models_share_the_edges_of_a_store(tmp_path: Path) -> None:
    prepared: Any = PreparedGraph.of(check_graph(write_store(tmp_path / "store").open()))
    graphs = [
        prepared.normalised([Operator(kind)], torch.device("cpu")) for kind in ("mean", "graph")
    ]
    assert graphs[0]._neighbours["along"].col is graphs[1]._neighbours["along"].col


@needs_gpu
@pytest.mark.parametrize(
    ("free", "in_memory"),
    [(2**30, 0), (2_800, 2**30), (2_800, 0), (100, 0)],
    ids=["all", "pinned", "cache", "disk"],
)
@pytest.mark.parametrize("kind", ["dense", "half", "sparse"])
@pytest.mark.parametrize("scaling", ["raw", "standardised"])
def test_a_gpu_reads_edges_and_features_wherever_they_are(
    tmp_path: Path,
    scaling: str,
    kind: str,
    free: int,
    in_memory: int,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    stored, _ = both(tmp_path, kind=kind, weighted=True)
    settings = get_method("erm").settings_type(hidden=8, scaling=scaling, **SAMPLED)
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda device: (free, free))
    monkeypatch.setattr(rows, "free_memory", lambda: in_memory)
    losses, logits = [], []
    for device in ("cpu", "cuda"):
        trainer = Trainer(stored, "erm", "sage", settings, device=device)
        torch.manual_seed(0)
        method = trainer.learner.new_method(trainer.task).to(device).eval()
        drawn = trainer.fields.draw(stored.train[:9], (4, 3), 5)
        batch = trainer.fields.training_batch(stored.train[:9], *drawn)
        losses.append(float(method.loss(batch).detach()))
        logits.append(trainer.fields.logits(method)["valid"][0])
        assert all(loss > 0 for loss in trainer.run().history["loss"])
    assert losses[0] == pytest.approx(losses[1], abs=1e-4)
    assert torch.allclose(*logits, atol=1e-4)
