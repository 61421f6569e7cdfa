"""Continue the training of a model on newer labels."""

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch

import canet
from canet.errors import InputError
from tests.support.frames import frames

QUICK: dict[str, Any] = {"epochs": 5, "hidden": 8, "undirected": True}


def months() -> list[tuple[pd.DataFrame, pd.DataFrame]]:
    return [frames(0), frames(1)]


@pytest.mark.parametrize("method", ["erm", "canet"])
def test_training_continues_from_the_weights(method: str, tmp_path: Path) -> None:
    january, february = months()
    first = canet.NodeClassifier(method, **QUICK).fit(*january, label="label")
    first.save(tmp_path / "model")
    model = canet.load(tmp_path / "model")
    before = {name: tensor.clone() for name, tensor in model.fitted_.state()[1].items()}
    model.set_params(learning_rate=1e-12, epochs=1)
    model.fit(*february, warm_start=model)  # the label column is known
    after = model.fitted_.state()[1]
    assert all(torch.allclose(after[name], before[name], atol=1e-6) for name in before)
    assert model.encoding_ == first.encoding_
    fresh = canet.NodeClassifier(method, **QUICK).fit(*february, label="label")
    assert not torch.allclose(
        fresh.fitted_.state()[1]["model.phi_in.weight"][:, :1],
        before["model.phi_in.weight"][:, :1],
    )


def test_auto_trains_its_members_again(tmp_path: Path) -> None:
    january, february = months()
    settings: dict[str, Any] = {"preset": "fast", "epochs": 5, "undirected": True}
    first = canet.NodeClassifier(**settings).fit(*january, label="label")
    members = [row["model"] for row in first.leaderboard_rows() if row["weight"]]
    again = canet.NodeClassifier(**settings).fit(*february, warm_start=first)
    assert sorted(row["model"] for row in again.leaderboard_rows()) == sorted(members)
    again.save(tmp_path / "model")
    loaded = canet.load(tmp_path / "model")
    assert np.array_equal(loaded.predict_proba(february), again.predict_proba(february))


@pytest.mark.parametrize("method", ["erm", "trees"])
def test_a_class_that_is_absent_now_is_still_predicted(method: str) -> None:
    january, (nodes, edges) = months()
    settings: dict[str, Any] = {**QUICK} if method == "erm" else {"undirected": True}
    settings["class_weight"] = "balanced"
    first = canet.NodeClassifier(method, **settings).fit(*january, label="label")
    nodes = nodes.assign(label="no")
    second = canet.NodeClassifier(method, **settings)
    model = second.fit(nodes, edges, label="label", warm_start=first)
    assert model.classes_.tolist() == ["no", "yes"]
    assert model.predict_proba((nodes, edges)).shape == (40, 2)
    if method == "trees":
        assert (model.predict((nodes, edges)) == "no").all()


def test_other_models_and_classes_are_rejected() -> None:
    january, (nodes, edges) = months()
    first = canet.NodeClassifier("erm", **QUICK).fit(*january, label="label")
    with pytest.raises(InputError, match="model of erm-gcn, but this one is canet-gcn"):
        canet.NodeClassifier("canet", **QUICK).fit(nodes, edges, warm_start=first)
    larger = QUICK | {"hidden": 16}
    with pytest.raises(InputError, match="other settings"):
        canet.NodeClassifier("erm", **larger).fit(nodes, edges, warm_start=first)
    with pytest.raises(InputError, match="does not know"):
        canet.NodeClassifier("erm", **QUICK).fit(
            nodes.assign(label=nodes.label.replace("yes", "maybe")), edges, warm_start=first
        )
    unfitted = canet.NodeClassifier("erm")
    with pytest.raises(InputError, match="fitted NodeClassifier"):
        canet.NodeClassifier("erm").fit(nodes, edges, warm_start=unfitted)
