"""Statistics of inferred environments."""

import pytest
import torch

from canet.methods import METHODS
from canet.models import Trainer
from canet.training.environments import alignment, effective_number
from tests.support.tiny import tiny_task


def test_effective_number_counts_the_environments_in_use() -> None:
    assert effective_number(torch.tensor([[1.0, 0.0, 0.0]] * 4)) == pytest.approx(1)
    assert effective_number(torch.eye(3)) == pytest.approx(3)
    assert effective_number(torch.tensor([[0.5, 0.5, 0.0]])) == pytest.approx(2)


def test_alignment_is_one_for_the_true_environments_under_other_names() -> None:
    true = torch.tensor([0, 0, 1, 1, 2, 2])
    assert alignment(torch.eye(3)[(true + 1) % 3], true) == pytest.approx(1)
    assert alignment(torch.ones(6, 1), true) == pytest.approx(0)


def test_result_contains_mean_posterior_by_split_and_layer() -> None:
    task = tiny_task()
    settings = METHODS["canet"].settings_type(hidden=8, epochs=2)
    of = Trainer(task, "canet", "gcn", settings, "cpu")
    run = of.run(0)
    found = run.result.inferred_environments
    assert found.posterior.keys() == task.splits().keys()
    layers = run.method.posteriors(of.fields.batch("valid"))
    for found_layer, layer in zip(found.posterior["valid"], layers, strict=True):
        assert found_layer == pytest.approx(layer.mean(dim=0).tolist())
        assert sum(found_layer) == pytest.approx(1)
    assert len(found.effective) == len(found.alignment) == 2


def test_methods_without_environments_have_no_posteriors() -> None:
    settings = METHODS["erm"].settings_type(hidden=8, epochs=2)
    result = Trainer(tiny_task(), "erm", "gcn", settings, "cpu").run(0).result
    assert result.inferred_environments is None
