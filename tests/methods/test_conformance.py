"""Conformance tests of all methods, with every backbone."""

from functools import cache
from pathlib import Path

import pytest
import torch
from torch import Tensor

from canet.data.task import ShiftTask
from canet.errors import CanetError
from canet.methods import METHODS, Batch, Method
from canet.methods.eerm import EERM, log_probability
from canet.methods.mixup import Mixup
from canet.models import Run, Trainer
from canet.store import RunFolder
from tests.support.gpu import needs_gpu
from tests.support.pairs import every_pair
from tests.support.small_task import with_columns
from tests.support.tiny import disconnected_task, tiny_task, with_other_test_nodes
from tests.support.trainers import same_bits, weights

pytestmark = every_pair
EPOCHS = 3


def trainer(task: ShiftTask, name: str, backbone: str, device: str = "cpu") -> Trainer:
    settings = METHODS[name].settings_type(hidden=8, epochs=EPOCHS, learning_rate=0.02)
    return Trainer(task, name, backbone, settings, device)


@cache
def trained(name: str, backbone: str) -> tuple[Trainer, Run]:
    of = trainer(tiny_task(), name, backbone)
    return of, of.run(0)


def fresh(of: Trainer) -> Method:
    """An untrained method of a trainer."""
    torch.manual_seed(0)
    return of.learner.new_method(of.task)


def test_loss_falls(name: str, backbone: str) -> None:
    """The supervised loss on the training nodes, without the other terms of a method."""
    of = trainer(tiny_task(), name, backbone)
    method, batch = fresh(of), of.fields.batch("train")
    method.prepare(of.fields.view())
    optimizer = torch.optim.Adam(method.parameter_groups())

    def supervised() -> float:
        method.eval()
        return method.node_losses(method.predict(batch), batch.y).mean().item()

    before = supervised()
    method.train()
    for _ in range(30):
        method.update(batch, optimizer)
    assert supervised() < 0.9 * before


def test_predictions_have_a_row_per_node_and_a_column_per_class(name: str, backbone: str) -> None:
    of, run = trained(name, backbone)
    for split, nodes in of.task.splits().items():
        logits = run.method.eval().predict(of.fields.batch(split))
        assert logits.shape == (nodes.numel(), of.task.num_classes)
        assert logits.isfinite().all()


def test_same_seed_gives_the_same_bits_and_a_stored_run_the_same_scores(
    name: str, backbone: str, tmp_path: Path
) -> None:
    _, first = trained(name, backbone)
    again = trainer(tiny_task(), name, backbone)
    second = again.run(0, tmp_path / "run")
    assert same_bits(weights(first), weights(second))
    assert first.history == second.history
    loaded = again.learner.load(again.task, RunFolder(tmp_path / "run"))
    assert again.learner.scores(again.task, loaded) == first.result.scores


def test_sparse_features_train_like_dense_ones(name: str, backbone: str) -> None:
    """Up to rounding errors, which the solver of SR-GNN amplifies."""
    sparse = tiny_task(sparse=True)
    dense = with_columns(sparse, x=sparse.data.x.to_dense())
    settings = METHODS[name].settings_type(hidden=8, epochs=EPOCHS, dropout=0.0)
    losses = [
        Trainer(task, name, backbone, settings, "cpu").run(0).history["loss"]
        for task in (sparse, dense)
    ]
    assert losses[0] == pytest.approx(losses[1], rel=1e-2 if name == "sr_gnn" else 1e-4)


def test_task_is_not_changed(name: str, backbone: str) -> None:
    task, untouched = trained(name, backbone)[0].task, tiny_task()
    assert all(task.data.get(n).equal(c) for n, c in untouched.data.to_dict().items())
    assert all(nodes.equal(untouched.splits()[key]) for key, nodes in task.splits().items())


@pytest.mark.parametrize("case", ["disconnected", "inductive"])
def test_test_nodes_and_labels_change_no_bit_of_training(
    name: str, backbone: str, case: str
) -> None:
    task = disconnected_task() if case == "disconnected" else tiny_task(inductive=True)
    honest = trainer(task, name, backbone).run(0)
    garbled = trainer(with_other_test_nodes(task), name, backbone).run(0)
    assert same_bits(weights(honest), weights(garbled))
    assert honest.history == garbled.history


def test_a_method_that_needs_environments_records_them_and_rejects_a_task_without(
    name: str, backbone: str
) -> None:
    needs = METHODS[name].traits.needs_environments
    seen = trained(name, backbone)[1].result.environments_seen
    assert seen == (["0", "1", "2"] if needs else None)
    task = with_columns(tiny_task(), environment=None)
    if needs:
        free = [name for name, method in METHODS.items() if not method.traits.needs_environments]
        with pytest.raises(CanetError, match=", ".join(free)):
            trainer(task, name, backbone)
    else:
        assert trainer(task, name, backbone).run(0).result.epochs == EPOCHS


def loss_with_fixed_draws(method: Method, batch: Batch) -> Tensor:
    """The loss of a method with random numbers of the CPU, because devices draw different ones."""
    torch.manual_seed(2)
    n, device = batch.y.numel(), batch.y.device
    if isinstance(method, Mixup):
        return method.mixed_loss(batch, torch.randperm(n).to(device), ratio=0.3)
    if isinstance(method, EERM):
        assert method.editors is not None
        editors, nodes, candidates = method.editors.logits.shape
        draw = torch.randint(candidates, (editors, nodes, 1)).to(device)
        score = log_probability(method.editors.logits, draw)
        return method.objective(method.risks(batch.y, draw)) + score / score.detach().abs()
    return method.loss(batch)


@needs_gpu
def test_cpu_and_gpu_agree_to_rounding(name: str, backbone: str) -> None:
    """Predictions, the loss of the method, and the gradients of both."""
    sides = []
    for device in ("cpu", "cuda"):
        of = trainer(tiny_task(), name, backbone, device)
        method = fresh(of).to(of.learner.device).eval()
        torch.manual_seed(1)
        method.prepare(of.fields.view())
        batch = of.fields.batch("train")
        logits = method.predict(batch)
        loss = logits.square().mean() + loss_with_fixed_draws(method, batch)
        loss.backward()
        learned = [*method.parameters(), *method.training_state().values()]
        gradients = [p.grad for p in learned if p.grad is not None]
        sides.append([tensor.detach().cpu() for tensor in (logits, loss, *gradients)])
    for cpu, gpu in zip(*sides, strict=True):
        torch.testing.assert_close(cpu, gpu, rtol=1e-4, atol=1e-5)


@needs_gpu
def test_training_on_the_gpu_learns_too(name: str, backbone: str) -> None:
    """Random numbers differ from those of the CPU, but the method fits the training nodes."""
    settings = METHODS[name].settings_type(hidden=16, epochs=150, learning_rate=0.02, dropout=0.0)
    run = Trainer(tiny_task(), name, backbone, settings, "cuda").run(0, ood_curves=True)
    assert max(run.history["train"]) > 0.75
