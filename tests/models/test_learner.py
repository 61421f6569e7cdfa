"""A model that is not a network is trained, saved, averaged, chosen and diagnosed like one."""

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from sklearn.base import clone

import canet
from canet.errors import InputError, VersionError
from canet.methods import Traits
from canet.models import LEARNERS, Network, Options, get_learner, restore
from tests.support.nearest_mean import NearestMean
from tests.support.small_task import small_task
from tests.support.user_graphs import small_user_graph

ROOT, SOURCE = Path(__file__).parents[2], Path(canet.__file__).parents[1]
READ = """
import json

import canet
from canet.cli.catalogue import methods
from tests.support.user_graphs import small_user_graph

model, data = canet.load("model", device="cpu"), small_user_graph()
methods()
assert canet.diagnose(model, None, data).reliance is not None
print(json.dumps(model.predict_proba(data).tolist()))
"""


@pytest.fixture(autouse=True)
def registered(monkeypatch: pytest.MonkeyPatch) -> None:
    """Register the learner, as the entry point of a package does."""
    monkeypatch.setitem(LEARNERS, NearestMean.name, NearestMean)


def fitted(**params: object) -> canet.NodeClassifier:
    usual = {"device": "cpu", "epochs": 4, "hidden": 8}
    return canet.NodeClassifier(**usual | params).fit(small_user_graph())


def test_predictions_are_those_of_the_learner() -> None:
    model, data = fitted(method=NearestMean), small_user_graph()
    expected = torch.cdist(data.x, model.fitted_.means).argmin(dim=1)
    assert np.array_equal(model.predict(data), model.classes_[expected])
    assert model.predict_proba(data, [3, 1]).shape == (2, 3)
    assert model.score(data) == pytest.approx((model.predict(data) == data.y).mean())
    assert model.embed(data).shape == (60, 3)  # without an embedding, the log probabilities


def test_a_learner_of_another_package_is_compared_saved_and_read_in_another_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("canet.models.parts.TEMPERATURE", 10.0)
    model = fitted(preset=["linear", "nearest-mean"])
    board = {row["model"]: row["weight"] for row in model.leaderboard_rows()}
    assert [board[name] > 0 for name in ("linear", "nearest-mean")] == [True, True]
    assert clone(model).preset == ["linear", "nearest-mean"]
    model.save(tmp_path / "model")
    package = tmp_path / "package-1.dist-info"
    package.mkdir()
    (package / "METADATA").write_text("Name: package\nVersion: 1\n")
    entry = "nearest = tests.support.nearest_mean:NearestMean"
    (package / "entry_points.txt").write_text(f"[canet.learners]\n{entry}\n")
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(map(str, (tmp_path, SOURCE, ROOT))))
    found = subprocess.run(
        [sys.executable, "-c", READ], cwd=tmp_path, capture_output=True, text=True, check=True
    )
    listed, _, probabilities = found.stdout.strip().rpartition("\n")
    assert "the class with the nearest mean" in listed
    expected = model.predict_proba(small_user_graph())
    assert np.array_equal(json.loads(probabilities), expected)


def test_a_task_without_environments_is_rejected_before_anything_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(NearestMean, "traits", Traits(needs_environments=True))
    assert Network("irm").traits.needs_environments
    for name in ("irm", NearestMean.name):
        with pytest.raises(InputError, match=f"'{name}' needs an environment"):
            get_learner(name, options=Options("cpu")).run(small_task(), {0: tmp_path / "run"})
    assert not list(tmp_path.iterdir())
    task = small_task(environment=torch.arange(300) % 2)
    (first,), (second,) = (NearestMean().run(task, {0: tmp_path / "run"}) for _ in range(2))
    assert first.result == second.result
    assert first.result.environments_seen == ["0", "1"]
    assert torch.equal(first.means, second.means)


def test_what_a_learner_does_not_support_is_an_error() -> None:
    with pytest.raises(InputError, match="backbone"):
        fitted(method=NearestMean, backbone="gcn")
    with pytest.raises(InputError, match="ood-curves"):
        NearestMean().run(small_task(), {0: None}, ood_curves=True)
    with pytest.raises(VersionError, match="forest"):
        restore({"kind": "forest"}, {})
