"""Scores next to their baselines, and what `auto` has chosen."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import canet
from canet.estimator.summary import compared, leaderboard_rows, percent, summary_of
from canet.store.result import Candidate
from tests.support.user_graphs import rare_class_graph, small_user_graph


@pytest.mark.parametrize(
    ("score", "words"),
    [(0.7, ", better than"), (0.519, ", hardly better"), (0.5, ", not better"), (0.3, ", not")],
)
def test_a_score_is_compared_with_its_baseline(score: float, words: str) -> None:
    text = compared(score, 0.5, "always answering 'm'")
    assert text.startswith(f"{100 * score:.1f} %{words}")
    assert text.endswith("always answering 'm' (50.0 %)")
    assert compared(np.nan, 0.5, "m") == percent(None) == "–"


@pytest.mark.filterwarnings("ignore:class 'fraud' has", "ignore:.* predicts 'ok'")
@pytest.mark.parametrize("metric", ["accuracy", "macro_f1", "roc_auc", "average_precision"])
def test_the_baseline_of_a_single_method_is_that_of_the_metric(metric: str) -> None:
    data = rare_class_graph(300)
    data.test_mask = np.arange(300) < 100
    model = canet.NodeClassifier("linear", metric=metric, undirected=True).fit(data)
    share = (np.array(data.y)[:100] == "fraud").mean()
    expected = {
        "accuracy": 1 - share,
        "macro_f1": (1 - share) / (2 - share),
        "roc_auc": 0.5,
        "average_precision": share,
    }
    assert model.baselines_["test"] == pytest.approx(expected[metric])
    assert model.baselines_.keys() == model.scores_.keys()
    ranks = metric in ("roc_auc", "average_precision")
    name = "a random order" if ranks else "always answering 'ok'"
    assert f"than {name} ({100 * model.baselines_['valid']:.1f} %)" in model.summary()


def test_a_model_of_noise_is_hardly_better(few_models: None) -> None:
    model = canet.NodeClassifier(epochs=3, hidden=8).fit(small_user_graph())
    model.scores_["valid"] = model.baselines_["valid"] + 0.01
    assert "hardly better than always answering 'ant'" in model.summary()


def test_the_best_single_model_is_the_first_row(few_models: None) -> None:
    model = canet.NodeClassifier(epochs=3, hidden=8).fit(small_user_graph())
    first, second, *others = model.candidates_
    tied = [replace(one, weight=0.5, likelihood=-1.0) for one in (first, second)]
    tied[1] = replace(tied[1], validation=0.123, likelihood=-0.5)
    failed = Candidate("broken", note="it failed")
    model.candidates_ = [failed, *tied, *others]
    rows: list[dict[str, Any]] = leaderboard_rows(model.candidates_)
    assert rows[0]["model"] == rows[-2]["note"] == second.name
    assert rows[-4]["model"] == "broken"
    assert "the one with the largest weight alone 12.3 %" in summary_of(model)
