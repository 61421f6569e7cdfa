"""A model that is not a network is trained, saved, averaged, chosen and diagnosed like one."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

import canet
from canet.errors import InputError, VersionError
from canet.models import LEARNERS, Average, restore
from canet.models.portfolio import PRESETS, TABULAR, Recipe
from tests.support.nearest_mean import NearestMean
from tests.support.small_task import small_task
from tests.support.user_graphs import small_user_graph


@pytest.fixture(autouse=True)
def registered(monkeypatch: pytest.MonkeyPatch) -> None:
    """Register the learner, as the entry point of a package does."""
    monkeypatch.setitem(LEARNERS, NearestMean.name, NearestMean)


def fitted(**params: object) -> canet.NodeClassifier:
    usual = {"device": "cpu", "epochs": 4, "hidden": 8}
    return canet.NodeClassifier(**usual | params).fit(small_user_graph())


def test_predictions_are_those_of_the_learner(tmp_path: Path) -> None:
    model, data = fitted(method=NearestMean), small_user_graph()
    train = model.fitted_.means
    expected = torch.cdist(data.x, train).argmin(dim=1)
    assert np.array_equal(model.predict(data), model.classes_[expected])
    assert model.predict_proba(data, [3, 1]).shape == (2, 3)
    assert model.score(data) == pytest.approx((model.predict(data) == data.y).mean())
    assert model.embed(data).shape == (60, 3)  # without an embedding, the log probabilities
    model.save(tmp_path / "model")
    again = canet.load(tmp_path / "model")
    assert np.array_equal(again.predict_proba(data), model.predict_proba(data))
    assert canet.diagnose(again, None, data).model.method == "nearest_mean"


def test_an_average_with_a_network_is_saved_and_restored() -> None:
    network, means = fitted(method="erm"), fitted(method=NearestMean)
    data = small_user_graph()
    average = Average([network.fitted_, means.fitted_], [0.25, 0.75])
    again = restore(*average.state())
    prepared = network.prepare(data).graph
    expected = 0.25 * network.predict_proba(data) + 0.75 * means.predict_proba(data)
    for one in (average, again):
        found = one.read(prepared).logits.softmax(dim=1).numpy()
        assert np.allclose(found, expected, atol=1e-6)


def test_auto_chooses_among_networks_and_other_models(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(TABULAR, NearestMean.name, NearestMean)
    monkeypatch.setitem(PRESETS, "robust", (Recipe("erm", "mlp"), Recipe(NearestMean.name)))
    monkeypatch.setattr("canet.models.parts.TEMPERATURE", 10.0)
    model, data = fitted(), small_user_graph()
    board = {row["model"]: row["weight"] for row in model.leaderboard_rows()}
    assert board["erm-mlp"] > 0
    assert board["nearest_mean"] > 0
    model.save(tmp_path / "model")
    again = canet.load(tmp_path / "model")
    assert np.array_equal(again.predict_proba(data), model.predict_proba(data))
    diagnosis = canet.diagnose(again, None, data)
    assert diagnosis.reliance is not None


def test_a_run_is_written_and_read(tmp_path: Path) -> None:
    task = small_task()
    (first,) = NearestMean().run(task, {0: tmp_path / "run"})
    (second,) = NearestMean().run(task, {0: tmp_path / "run"})
    assert first.result.scores == second.result.scores
    assert set(first.result.scores) == {"train", "valid", "test_id", "ood/later"}
    assert torch.equal(first.means, second.means)


def test_what_a_learner_does_not_support_is_an_error() -> None:
    with pytest.raises(InputError, match="backbone"):
        fitted(method=NearestMean, backbone="gcn")
    with pytest.raises(InputError, match="ood-curves"):
        NearestMean().run(small_task(), {0: None}, ood_curves=True)
    with pytest.raises(VersionError, match="forest"):
        restore({"kind": "forest"}, {})
