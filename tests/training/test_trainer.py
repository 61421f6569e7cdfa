import pickle
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from threadpoolctl import threadpool_info  # type: ignore[import-untyped]
from torch import Tensor

import canet
from canet.data.task import ShiftTask
from canet.errors import CanetError, InputError, InputWarning
from canet.methods import METHODS, Batch
from canet.methods.erm import ERM
from canet.models import FittedNetwork, Trainer
from canet.nn import NormalisedGraph
from canet.store import RunFolder
from canet.store.run_folder import WEIGHTS, read_checkpoint
from canet.store.tensors import without_prefix
from canet.training import loop
from canet.util.devices import pick_device
from canet.util.torch_state import fast_products, limited_threads
from tests.support.small_task import with_columns
from tests.support.tiny import NUM_NODES, QUICK, tiny_task, with_other_test_nodes
from tests.support.trainers import (
    Killed,
    kill_at,
    make,
    run_until,
    same_bits,
    same_run,
    scores,
    weights,
)

every_method = pytest.mark.parametrize("name", METHODS)
plain_and_canet = pytest.mark.parametrize("name", ["erm", "canet"])


# The loop


def wide_task() -> ShiftTask:
    """A task so large that torch splits its sums among threads."""
    random = torch.Generator().manual_seed(0)
    task = tiny_task()
    x = torch.randn(NUM_NODES, 2_000, generator=random)
    return with_columns(task, x=x)


def test_threads_of_the_caller_change_nothing() -> None:
    of = make(wide_task(), epochs=3, dropout=0.5)
    runs = []
    for threads in (1, 2):
        with limited_threads(threads):
            runs.append(of.run())
            assert torch.get_num_threads() == threads
    assert same_run(*runs)
    assert runs[0].config.threads == 1
    assert runs[0].result.device.endswith("CPU, 1 thread(s)")


def test_threads_are_those_of_torch_and_openmp_and_the_blas_has_one() -> None:
    before = threadpool_info()
    with limited_threads(2):
        limits = {(pool["user_api"], pool["num_threads"]) for pool in threadpool_info()}
    assert limits == {("openmp", 2), ("blas", 1)}
    assert threadpool_info() == before


def test_a_second_limit_of_threads_counts_if_it_differs(monkeypatch: pytest.MonkeyPatch) -> None:
    with limited_threads(2):
        with limited_threads(1):
            assert torch.get_num_threads() == 1
        assert torch.get_num_threads() == 2
        monkeypatch.setattr("threadpoolctl.threadpool_limits", None)  # it searches for libraries
        with limited_threads(2):
            assert torch.get_num_threads() == 2


def test_threads_are_part_of_a_run() -> None:
    one, two = (Trainer(tiny_task(), "erm", device="cpu", threads=n) for n in (1, 2))
    assert one.config().name != two.config().name
    with pytest.raises(InputError, match="threads"):
        Trainer(tiny_task(), "erm", device="cpu", threads=0)


@plain_and_canet
def test_runs_in_threads_of_one_process_are_the_same_as_alone(name: str) -> None:
    of = make(name=name, dropout=0.5)
    alone = [of.run(seed) for seed in range(4)]
    with ThreadPoolExecutor(4) as pool:
        together = list(pool.map(make(name=name, dropout=0.5).run, range(4)))
    assert all(map(same_run, alone, together))


@every_method
def test_default_precision_of_the_caller_changes_nothing(name: str) -> None:
    task = tiny_task()
    usual = make(task, name, epochs=3).run()
    torch.set_default_dtype(torch.double)
    try:
        assert same_run(make(task, name, epochs=3).run(), usual)
    finally:
        torch.set_default_dtype(torch.float)


def test_run_is_the_plain_loop_written_by_hand() -> None:
    task = tiny_task()
    of = make(task, epochs=10, dropout=0.5, weight_decay=0.01)
    run = of.run(seed=3)
    torch.manual_seed(3)
    method = ERM(of.learner.settings, "gcn", task.num_features, task.num_classes)
    adam = torch.optim.Adam(method.parameters(), lr=0.02, weight_decay=0.01)
    whole = NormalisedGraph(task.data.edge_index, NUM_NODES, method.model.operators).whole(2)
    losses, scores = [], []
    for _ in range(10):
        method.train()
        adam.zero_grad()
        loss = method.loss(of.fields.batch("train"))
        loss.backward()
        adam.step()
        losses.append(loss.item())
        method.eval()
        logits = method.predict(Batch(task.data.x, whole.blocks, task.data.y))
        right = logits.argmax(dim=1) == task.data.y
        scores.append(right[task.valid].double().mean().item())
    assert run.history["loss"] == pytest.approx(losses, rel=1e-4)
    assert run.history["valid"] == pytest.approx(scores)


def test_callers_random_state_neither_matters_nor_changes(tmp_path: Path) -> None:
    torch.manual_seed(1)
    first = make(name="canet", epochs=4).run()
    torch.manual_seed(2)
    state = torch.get_rng_state()
    second = make(name="canet", epochs=4).run(folder=tmp_path)
    assert same_run(first, second)
    assert not same_bits(weights(first), weights(make(name="canet", epochs=4).run(seed=1)))
    assert torch.get_rng_state().equal(state)
    make(name="canet", epochs=4).run(folder=tmp_path)
    assert torch.get_rng_state().equal(state)
    run_until(3, tmp_path / "dies", make())
    assert torch.get_rng_state().equal(state)


def test_progress_is_reported_after_every_epoch() -> None:
    reported: list[tuple[int, int, float]] = []
    run = make(epochs=5).run(on_progress=lambda *progress: reported.append(progress))
    assert reported == [(i + 1, 5, score) for i, score in enumerate(run.history["valid"])]


# Selection


@pytest.mark.parametrize(("metric", "classes"), [("accuracy", 3), ("macro_f1", 3), ("roc_auc", 2)])
@plain_and_canet
def test_selected_epoch_is_the_first_with_the_best_validation_score(
    name: str, metric: Any, classes: int
) -> None:
    run = make(tiny_task(classes, metric), name).run()
    valid = run.history["valid"]
    assert run.result.selected_epoch == valid.index(max(valid)) + 1
    assert run.result.scores["valid"] == max(valid)
    assert run.result.selection == "best validation"
    assert run.result.epochs == len(valid) == len(run.history["loss"]) == 12


@plain_and_canet
def test_weights_are_those_of_the_selected_epoch(name: str, tmp_path: Path) -> None:
    of_seeds = (make(name=name).run(seed) for seed in range(10))
    run = next(run for run in of_seeds if 1 < run.result.selected_epoch < 12)
    selected = run.result.selected_epoch
    kept = []
    for epoch in (selected - 1, selected):
        place = RunFolder(tmp_path / str(epoch))
        run_until(epoch + 1, place.path, make(name=name), seed=run.config.seed)
        saved = read_checkpoint(place.checkpoints[0]) if place.checkpoints else {}
        kept.append(without_prefix("method", saved))
    assert same_bits(weights(run), kept[1])
    assert not same_bits(weights(run), kept[0])
    assert run.result.scores == scores(make(name=name), run.method)


def test_patience_stops_the_run_and_selects_from_its_epochs() -> None:
    full = make(epochs=30).run()
    patient = make(epochs=30, patience=4).run()
    seen, selected = patient.result.epochs, patient.result.selected_epoch
    assert seen < 30
    assert seen == selected + 4
    assert patient.history["valid"] == full.history["valid"][:seen]
    assert patient.history["loss"] == full.history["loss"][:seen]
    valid = full.history["valid"][:seen]
    assert selected == valid.index(max(valid)) + 1
    assert same_bits(weights(patient), weights(make(epochs=selected).run()))


@every_method
def test_ood_curves_change_no_bit_and_end_in_the_final_scores(name: str) -> None:
    plain = make(name=name).run()
    curved = make(name=name).run(ood_curves=True)
    assert same_bits(weights(plain), weights(curved))
    assert plain.result.scores == curved.result.scores
    assert curved.history["valid"] == plain.history["valid"]
    assert curved.history["loss"] == plain.history["loss"]
    assert list(plain.history) == ["loss", "valid"]
    splits = ["train", "valid", "test_id", "ood/near", "ood/far"]
    assert list(curved.history) == ["loss", *splits]
    selected = curved.result.selected_epoch - 1
    for split in splits:
        assert len(curved.history[split]) == 12
        assert curved.history[split][selected] == curved.result.scores[split]
        assert curved.history[split][-1] == plain.result.last_scores[split]


# Data that a run may use


def test_transductive_training_does_see_ood_neighbours() -> None:
    task = tiny_task(inductive=False)
    honest, garbled = make(task).run(), make(with_other_test_nodes(task)).run()
    assert not same_bits(weights(honest), weights(garbled))
    assert honest.history["loss"] != garbled.history["loss"]


# Errors that stop a run


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_loss_that_is_not_finite_stops_the_run(
    value: float, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    steps = iter(range(1, 100))
    loss = ERM.loss

    def broken(method: ERM, batch: Batch) -> Tensor:
        return loss(method, batch) * (value if next(steps) == 3 else 1.0)

    monkeypatch.setattr(ERM, "loss", broken)
    with pytest.raises(CanetError, match="epoch 3"):
        make().run(folder=tmp_path)
    assert not RunFolder(tmp_path).finished


@pytest.mark.parametrize("epochs", [12, 1])
def test_weights_that_explode_are_not_a_result_even_in_the_last_epoch(epochs: int) -> None:
    of = make(epochs=epochs)
    object.__setattr__(of.learner.settings, "learning_rate", 1e30)  # larger than a user can set
    with pytest.raises(CanetError, match="learning_rate"):
        of.run()


def test_validation_with_one_class_under_roc_auc_is_rejected() -> None:
    task = tiny_task(num_classes=2, metric="roc_auc")
    y = task.data.y.clone()
    y[task.valid] = 0
    with pytest.raises(CanetError, match="valid"):
        make(with_columns(task, y=y), epochs=3).run()


def test_shifted_set_with_one_class_under_roc_auc_scores_not_a_number() -> None:
    task = tiny_task(num_classes=2, metric="roc_auc")
    y = task.data.y.clone()
    y[task.test_ood["far"]] = 1
    scores = make(with_columns(task, y=y), epochs=3).run().result.scores
    missing = {split for split, score in scores.items() if score != score}
    assert missing == {"ood/far"}


def test_device_is_picked_by_what_there_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 0)
    assert pick_device("auto") == torch.device("cpu")
    with pytest.raises(CanetError, match="cpu"):
        pick_device("cuda")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    assert pick_device("auto") == torch.device("cuda")
    assert pick_device("cpu") == torch.device("cpu")
    assert pick_device(torch.device("cuda", 1)) == torch.device("cuda:1")
    for name, problem in (("gpu", "'cuda'"), ("cuda:2", "only 2"), ("mps", "not supported")):
        with pytest.raises(CanetError, match=problem):
            pick_device(name)


@every_method
def test_binary_cross_entropy_trains_two_classes(name: str) -> None:
    task = tiny_task(num_classes=2, metric="roc_auc")
    binary = make(task, name, loss="binary_cross_entropy", epochs=40).run(ood_curves=True)
    assert min(binary.history["loss"]) < binary.history["loss"][0]
    assert binary.history["loss"][0] != make(task, name, epochs=1).run().history["loss"][0]
    assert binary.history["train"][-1] > 0.7


# Run folders


def test_run_folder_contains_the_returned_run(tmp_path: Path) -> None:
    run = make(name="canet").run(seed=4, folder=tmp_path)
    place = RunFolder(tmp_path)
    assert place.read_config() == run.config
    assert place.read_metrics() == run.history
    assert place.read_result() == run.result
    assert same_bits(RunFolder(tmp_path).read_tensors(WEIGHTS), weights(run))
    assert not run.method.training
    assert run.config.seed == 4
    assert run.config.settings == asdict(make(name="canet").learner.settings)
    assert run.result.versions["canet"] == canet.__version__
    assert run.result.versions["torch"] == torch.__version__
    assert "CPU" in run.result.device
    assert run.result.seconds_per_epoch > 0
    assert run.result.peak_memory_mb > 10


def test_finished_run_is_read_and_not_trained_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = make().run(folder=tmp_path)
    monkeypatch.setattr(loop.Loop, "advance", lambda *_: pytest.fail("trained again"))
    again = make().run(folder=tmp_path)
    assert same_run(run, again)
    assert again.result == run.result
    assert again.config == run.config
    assert not again.method.training
    assert scores(make(), again.method) == run.result.scores


def test_folder_of_a_run_with_other_settings_is_rejected(tmp_path: Path) -> None:
    make(epochs=2).run(folder=tmp_path)
    for other in (make(epochs=3), make(name="canet", epochs=2), make(backbone="gat", epochs=2)):
        with pytest.raises(CanetError, match="other settings"):
            other.run(folder=tmp_path)
    with pytest.raises(CanetError, match="other settings"):
        make(epochs=2).run(seed=1, folder=tmp_path)


def test_folder_of_a_run_on_other_data_is_rejected(tmp_path: Path) -> None:
    task = tiny_task()
    make(task, epochs=2).run(folder=tmp_path / "finished")
    run_until(9, tmp_path / "unfinished", make(task))
    y = task.data.y.clone()
    y[50] = (y[50] + 1) % 3
    other = with_columns(task, y=y)
    for epochs, name in ((2, "finished"), (12, "unfinished")):
        with pytest.raises(CanetError, match=rf"{name}' .*\(other labels"):
            make(other, epochs=epochs).run(folder=tmp_path / name)
    with pytest.raises(CanetError, match="other data"):
        make(other, epochs=2).learner.load(other, RunFolder(tmp_path / "finished"))


@pytest.mark.parametrize(
    ("name", "killed_at"),
    [
        ("erm", 2),
        *(
            pytest.param(name, 9, marks=() if name in ("canet", "dann") else pytest.mark.slow)
            for name in METHODS
        ),
    ],
)
def test_resumed_run_ends_in_the_same_bits(name: str, killed_at: int, tmp_path: Path) -> None:
    of = make(name=name)
    whole = of.run(folder=tmp_path / "whole")
    run_until(killed_at, tmp_path / "killed", of)
    assert RunFolder(tmp_path / "killed").checkpoints
    resumed = of.run(folder=tmp_path / "killed")
    assert same_run(whole, resumed)
    files = [RunFolder(tmp_path / kind) for kind in ("whole", "killed")]
    assert files[0].read_metrics() == files[1].read_metrics()
    saved = [(place.path / WEIGHTS).read_bytes() for place in files]
    assert saved[0] == saved[1]
    assert not RunFolder(tmp_path / "killed").checkpoints


def test_run_killed_again_and_again_ends_in_the_same_bits(tmp_path: Path) -> None:
    options = {"name": "canet", "backbone": "gat", "patience": 8}
    whole = make(**options).run(ood_curves=True)
    for epoch in (4, 5, 9):
        run_until(epoch, tmp_path, make(**options), ood_curves=True)
    assert same_run(whole, make(**options).run(folder=tmp_path, ood_curves=True))


@pytest.mark.parametrize("kept", [0, 100, -1], ids=["empty", "start", "most"])
def test_run_with_a_truncated_checkpoint_resumes_from_the_one_before(
    kept: int, tmp_path: Path
) -> None:
    run_until(9, tmp_path, make())
    newest, before = RunFolder(tmp_path).checkpoints
    newest.write_bytes(newest.read_bytes()[:kept])
    with pytest.warns(InputWarning, match=f"'{newest}'.* after epoch 7"):
        resumed = make().run(folder=tmp_path)
    assert same_run(resumed, make().run())
    assert not RunFolder(tmp_path).checkpoints
    assert not before.exists()


def test_run_without_a_valid_checkpoint_warns_and_starts_over(tmp_path: Path) -> None:
    run_until(9, tmp_path, make())
    for path in RunFolder(tmp_path).checkpoints:
        path.write_bytes(path.read_bytes()[:-1])
    with pytest.warns(InputWarning, match="starts over"):
        assert same_run(make().run(folder=tmp_path), make().run())


def test_checkpoint_of_another_run_is_rejected(tmp_path: Path) -> None:
    run_until(9, tmp_path, make())
    newest, before = RunFolder(tmp_path).checkpoints
    good = read_checkpoint(newest)
    before.unlink()
    wrong: list[dict[str, Tensor]] = [
        good | {"epoch": torch.tensor(number)} for number in (0, 12, 13, 2**40)
    ]
    needed = [name for name in good if name != "epoch" and not name.startswith("adam.")]
    wrong += [{n: t for n, t in good.items() if n != gone} for gone in needed[::3]]
    wrong += [good | {name: torch.zeros(2, 2)} for name in [*good][::3] if name != "epoch"]
    wrong += [good | {"other": torch.zeros(1)}, good | {"adam.99.step": torch.zeros(())}]
    whole = make().run()
    for number, content in enumerate(wrong):
        folder = tmp_path / str(number)
        RunFolder(folder).begin(make().config(), make().task.digest)
        RunFolder(folder).save_checkpoint({"epoch": torch.tensor(8)} | content)
        with pytest.warns(InputWarning, match="starts over"):
            resumed = make().run(folder=folder)
        assert number > 1 or same_run(resumed, whole)


def test_a_checkpoint_of_the_same_shape_but_another_run_is_not_used(tmp_path: Path) -> None:
    folder = tmp_path / "ours"
    RunFolder(folder).begin(make().config(), make().task.digest)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(loop, "CHECKPOINT_SECONDS", 0.0)
        with pytest.raises(Killed):
            make().run(1, tmp_path / "other", on_progress=kill_at(9))
    for path in RunFolder(tmp_path / "other").checkpoints:
        path.rename(folder / path.name)
    with pytest.warns(InputWarning, match="starts over"):
        assert same_run(make().run(folder=folder), make().run())


def test_nothing_is_pickled(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for module, names in ((pickle, ("Pickler", "Unpickler")), (torch, ("save", "load"))):
        for name in names:
            monkeypatch.setattr(module, name, lambda *_, **__: pytest.fail("pickle was used"))
    run_until(5, tmp_path, make())
    for _ in range(2):
        make().run(folder=tmp_path)
    assert {path.suffix for path in tmp_path.iterdir()} == {".json", ".safetensors", ""}


def test_loaded_method_predicts_and_scores_without_dropout(tmp_path: Path) -> None:
    of = make(name="canet", dropout=0.9, epochs=10)
    expected = of.run(folder=tmp_path).result.scores
    loaded = of.learner.load(of.task, RunFolder(tmp_path))
    assert isinstance(loaded, FittedNetwork)
    assert not loaded.method.training
    assert scores(of, loaded.method.train()) == expected


def test_epochs_override_the_settings() -> None:
    trainer = Trainer(tiny_task(), "erm", settings=QUICK, device="cpu", epochs=3)
    assert trainer.run().result.epochs == trainer.config().settings["epochs"] == 3
    assert trainer.learner.settings == replace(QUICK, epochs=3)
    assert QUICK.epochs == 30


def test_trainers_of_one_task_share_their_batches_and_change_no_bit() -> None:
    task = tiny_task()
    first = Trainer(task, "erm", settings=QUICK, device="cpu")
    second = Trainer(task, "irm", device="cpu", epochs=5, fields=first.fields)
    assert second.fields is first.fields
    assert same_run(second.run(), Trainer(task, "irm", device="cpu", epochs=5).run())


# Arguments


def test_a_numpy_seed_and_a_folder_as_text_are_the_same_run(tmp_path: Path) -> None:
    of = make(epochs=1)
    run = of.run(np.int64(1), str(tmp_path / "run"))
    assert type(run.config.seed) is int
    assert same_run(run, of.run(1))
    again = make(epochs=1).run(1, tmp_path / "run")
    assert again.config == run.config
    assert same_run(run, again)


@pytest.mark.parametrize("settings", [{}, {"hidden": 8}, 5], ids=str)
def test_invalid_settings_are_rejected(settings: Any) -> None:
    with pytest.raises(CanetError, match="InterventionSettings"):
        Trainer(tiny_task(), "erm", settings=settings)


def test_only_a_gpu_rounds_the_factors_of_products() -> None:
    for device, expected in (("cuda", "high"), ("cpu", "highest")):
        with fast_products(torch.device(device)):
            assert torch.get_float32_matmul_precision() == expected
        assert torch.get_float32_matmul_precision() == "highest"
