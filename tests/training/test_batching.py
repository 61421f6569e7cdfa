"""Training in batches and on sampled neighbours."""

from typing import Any

import numpy as np
import pytest
import torch

import canet
from canet.errors import InputError
from canet.methods import InterventionSettings
from canet.models import Network, Options, Trainer
from canet.models.options import OutOfTime
from tests.support.tiny import tiny_task
from tests.support.trainers import make
from tests.support.user_graphs import rare_class_graph

QUICK: dict[str, Any] = {"epochs": 2, "hidden": 8, "undirected": True}


@pytest.mark.parametrize("method", ["erm", "canet"])
def test_one_batch_of_all_neighbours_gives_the_bits_of_full_training(method: str) -> None:
    task = tiny_task()
    plain = make(task, method, epochs=5).run()
    for settings in ({"batch_size": 10_000}, {"fanout": "-1,-1"}):
        same = make(task, method, epochs=5, **settings).run()
        assert same.history == plain.history


def test_the_gradient_of_an_epoch_of_batches_is_the_full_gradient() -> None:
    task = tiny_task()
    trainer = make(task, "erm", epochs=1, dropout=0.0, batch_size=7)
    with torch.random.fork_rng():
        torch.manual_seed(0)
        method = trainer.learner.new_method(trainer.task)
    full = trainer.fields.batch("train")
    parameters = list(method.parameters())
    expected = torch.autograd.grad(method.loss(full), parameters)
    total = [torch.zeros_like(p) for p in parameters]
    n = task.train.numel()
    seen = []
    for batch in trainer.fields.training_batches(7, (-1, -1), seed=0, epoch=0):
        share = batch.y.numel() / n
        grads = torch.autograd.grad(method.loss(batch), parameters)
        total = [t + share * g for t, g in zip(total, grads, strict=True)]
        seen.append(batch.y.numel())
    assert sum(seen) == n
    for mine, theirs in zip(total, expected, strict=True):
        assert torch.allclose(mine, theirs, atol=1e-6)


@pytest.mark.parametrize("method", ["erm", "canet"])
def test_a_run_in_batches_is_deterministic(method: str) -> None:
    task = tiny_task()
    settings: dict[str, Any] = {"epochs": 6, "batch_size": 5, "fanout": "3,2"}
    runs = [make(task, method, **settings).run(seed) for seed in (0, 0, 1)]
    assert runs[0].history == runs[1].history
    assert runs[0].history != runs[2].history
    losses = runs[0].history["loss"]
    assert np.isfinite(losses).all()


def test_a_deadline_ends_training_before_the_next_batch(monkeypatch: pytest.MonkeyPatch) -> None:
    settings = InterventionSettings(epochs=1, batch_size=5, fanout="3,2")
    learner = Network("erm", "gcn", settings, Options("cpu", deadline=0.0))
    monkeypatch.setattr("canet.methods.Method.update", None)  # it is not called
    with pytest.raises(OutOfTime):
        learner.fit(tiny_task())


def test_batches_of_all_methods_that_allow_them() -> None:
    data = rare_class_graph(120, share=0.4)
    for name in canet.METHODS:
        model = canet.NodeClassifier(name, batch_size=16, fanout="4,4", **QUICK)
        environment = np.arange(120) % 2
        if name in ("mixup", "sr_gnn", "eerm"):
            with pytest.raises(InputError, match="all training nodes at once"):
                model.fit(data, environment=environment)
        else:
            model.fit(data, environment=environment)
            assert model.predict_proba(data).shape == (120, 2)


@pytest.mark.parametrize("backbone", canet.BACKBONES)
def test_every_backbone_trains_in_batches_of_all_neighbours(backbone: str) -> None:
    data = rare_class_graph(120, share=0.4)
    model = canet.NodeClassifier("canet", backbone, batch_size=32, **QUICK).fit(data)
    assert np.isfinite(model.history_["loss"]).all()
    sampled = canet.NodeClassifier("canet", backbone, fanout="3,3", **QUICK).fit(data)
    assert np.isfinite(sampled.history_["loss"]).all()


def test_interventions_need_all_training_nodes() -> None:
    model = canet.NodeClassifier("erm", batch_size=16, interventions="inferred", **QUICK)
    with pytest.raises(InputError, match="interventions"):
        model.fit(rare_class_graph(120, share=0.4))


def test_training_in_batches_learns() -> None:
    data = rare_class_graph(400, share=0.4)
    model = canet.NodeClassifier(
        "erm", "sage", batch_size=64, fanout="5,5", epochs=15, undirected=True
    )
    full = canet.NodeClassifier("erm", "sage", epochs=100, undirected=True)
    scores = [one.fit(data).scores_["valid"] for one in (model, full)]
    assert scores[0] >= scores[1] - 0.05


def test_a_wrong_fanout_is_rejected_before_training() -> None:
    with pytest.raises(InputError, match="one number for each of the 2 layers"):
        Trainer(tiny_task(), "erm", settings=canet.METHODS["erm"].settings_type(fanout="5"))
