from typing import Any

import numpy as np
import pytest
import torch

import canet
from canet.errors import InputError
from canet.estimator.held_out import held_out_score
from canet.models.portfolio import PRESETS, Recipe
from tests.support.user_graphs import small_user_graph


@pytest.mark.parametrize("recipe", [Recipe("linear"), Recipe("erm", "gcn", {"dropout": 0.1})])
def test_the_score_is_that_of_auto(recipe: Recipe, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(PRESETS, "robust", (PRESETS["robust"][0], recipe))
    data = small_user_graph(150)
    data.x += 0.8 * torch.randn(data.x.shape, generator=torch.Generator().manual_seed(0))
    how: dict[str, Any] = {"undirected": True, "device": "cpu", "random_state": np.int64(3)}
    own: dict[str, Any] = {"epochs": 5, **recipe.changes} if recipe.backbone else {}
    auto = canet.NodeClassifier(**how, epochs=5).fit(data)
    (tried,) = [one for one in auto.candidates_ if one.name == recipe.name]
    model = canet.NodeClassifier(recipe.method, recipe.backbone or None, **how, **own).fit(data)
    assert 0.3 < tried.held_out < 1
    assert held_out_score(model, data) == pytest.approx(tried.held_out)
    assert held_out_score(auto, data) is None


def test_the_graph_and_the_splits_of_the_training_are_needed() -> None:
    data, new, train = small_user_graph(), small_user_graph(seed=1), np.arange(40)
    model = canet.NodeClassifier("linear", undirected=True, random_state=None)
    model.fit(data, train=train)
    with pytest.raises(InputError, match="pass data"):
        canet.diagnose(model, None, new, held_out=True)
    with pytest.raises(InputError, match="columns or splits"):
        canet.diagnose(model, data, held_out=True)
    data.train_mask = torch.arange(60) < 40
    score = held_out_score(model, data)
    assert canet.diagnose(model, data, new, held_out=True).quantities["held_out"] == score
