"""Rare classes: warnings, calibrated probabilities, thresholds, recall, sample weights."""

import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.metrics import f1_score, log_loss, recall_score

import canet
from canet.errors import InputError, InputWarning
from canet.estimator.prediction_table import write_predictions
from canet.methods import METHODS
from tests.support.user_graphs import rare_class_graph

pytestmark = pytest.mark.filterwarnings("ignore:class 'fraud' has")
QUICK: dict[str, Any] = {"epochs": 30, "hidden": 8, "undirected": True}


def test_a_model_that_predicts_one_class_gives_a_warning() -> None:
    with pytest.warns(InputWarning, match=r"predicts 'ok' for all .*'average_precision'.*balanced"):
        canet.NodeClassifier("erm", **QUICK).fit(rare_class_graph(share=0.03, strength=0))


def test_a_ranking_model_that_predicts_one_class_gives_a_warning_and_is_calibrated() -> None:
    model = canet.NodeClassifier("erm", "mlp", metric="average_precision", **QUICK)
    data = rare_class_graph(share=0.05, strength=0.5)
    with pytest.warns(InputWarning, match=r"predicts 'ok' for all .*threshold='best'"):
        model.fit(data)
    assert len(model.calibration_.bias) == 2
    assert (model.predict(data, threshold="best") == "fraud").any()


def test_columns_of_different_scales_give_a_warning() -> None:
    data = rare_class_graph(share=0.4)
    data.x[:, 1] *= 2467 / data.x[:, 1].abs().max()
    model = canet.NodeClassifier("erm", **QUICK)
    for x in (data.x, data.x.to_sparse_csr()):
        data.x = x
        with pytest.warns(InputWarning, match=r"column 1: up to 2.47e\+03.*standardised"):
            model.fit(data)
    with warnings.catch_warnings():
        warnings.filterwarnings("error", "columns of x differ")
        canet.NodeClassifier("erm", scaling="standardised", **QUICK).fit(data)


@pytest.mark.parametrize("strength", [0.0, 60.0])
def test_a_score_of_100_percent_on_held_out_parts_is_a_warning(strength: float) -> None:
    data = rare_class_graph(share=0.4, strength=strength)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        canet.NodeClassifier(preset=["linear"], device="cpu").fit(data)
    assert any("100 % on the validation" in str(one.message) for one in caught) == (strength > 0)


def test_an_accuracy_below_the_largest_class_gives_a_warning() -> None:
    model = canet.NodeClassifier("erm", "mlp", **QUICK).fit(rare_class_graph(share=0.4))
    reference = model.reference_
    model.scores_["valid"] = float((reference.valid_y == 1).double().mean())
    with pytest.warns(InputWarning, match="not better than always answering 'ok'"):
        model._warn_scores(reference)


def test_calibrated_probabilities_fit_the_validation_nodes_better() -> None:
    data = rare_class_graph(800, strength=1.0)
    valid = np.arange(300)
    for weight in (None, "balanced"):
        model = canet.NodeClassifier("erm", "mlp", class_weight=weight, **QUICK).fit(
            data, valid=valid
        )
        y = np.array(data.y)[valid]
        raw, better = (model.predict_proba(data, valid, calibrated=c) for c in (False, True))
        assert log_loss(y, better) < log_loss(y, raw)
        assert np.allclose(better.sum(axis=1), 1)
        if weight:  # balanced classes overestimate the rare one; the bias corrects that
            assert better[:, 0].mean() == pytest.approx((y == "fraud").mean(), abs=0.02)
            assert raw[:, 0].mean() > 0.15


def test_the_best_threshold_has_the_best_f1_on_the_validation_nodes(tmp_path: Path) -> None:
    data, valid = rare_class_graph(600), np.arange(200)
    model = canet.NodeClassifier("erm", **QUICK).fit(data, valid=valid)
    y, prepared = np.array(data.y)[valid], model.prepare(data)

    def f1(threshold: Any) -> float:
        found = model.predict(prepared, valid, threshold=threshold)
        return f1_score(y, found, pos_label="fraud")

    best = max(f1(threshold) for threshold in np.linspace(0, 1, 200))
    assert f1("best") >= best
    model.save(tmp_path / "model")
    again = canet.load(tmp_path / "model")
    assert again.calibration_ == model.calibration_
    assert np.array_equal(
        again.predict(data, threshold="best"), model.predict(data, threshold="best")
    )
    assert (model.predict(data, threshold=0.0) == "fraud").all()
    with pytest.raises(InputError, match="threshold is 'high'"):
        model.predict(data, threshold="high")


def test_thresholds_apply_to_the_probabilities_that_are_shown() -> None:
    data = rare_class_graph(600)
    model = canet.NodeClassifier("erm", class_weight="balanced", **QUICK).fit(data)
    for calibrated in (False, True):
        probability = model.predict_proba(data, calibrated=calibrated)[:, 0]
        for threshold in (0.2, 0.7):
            found = model.predict(data, threshold=threshold, calibrated=calibrated) == "fraud"
            assert np.array_equal(found, probability >= threshold)
    raw, scaled = (model.predict(data, threshold="best", calibrated=c) for c in (False, True))
    assert np.array_equal(raw, scaled)  # the same nodes


def test_a_share_above_the_threshold_that_has_doubled_gives_a_warning(tmp_path: Path) -> None:
    data, later = rare_class_graph(600, strength=4), rare_class_graph(600, share=0.4, strength=4)
    model = canet.NodeClassifier("linear", undirected=True).fit(data, valid=np.arange(200))
    before = (model.predict(data, np.arange(200), threshold=0.4) == "fraud").mean()
    with pytest.warns(InputWarning, match="'fraud'") as caught:
        share = (model.predict(later, threshold=0.4) == "fraud").mean()
    assert len(caught) == 1
    for number in (share, before):
        assert f"{number:.1%}" in str(caught[0].message)
    with pytest.warns(InputWarning, match="validation nodes"):
        write_predictions(model, later, tmp_path / "p.csv", threshold=0.4, calibrated=True)
    model.predict(later, np.flatnonzero(np.array(later.y) == "fraud")[:9], threshold=0.4)
    model.save(tmp_path / "model", keep_reference=False)
    canet.load(tmp_path / "model").predict(later, threshold=0.4)  # nothing to compare with


def test_recall_at_k_equals_a_loop() -> None:
    data = rare_class_graph(300)
    model = canet.NodeClassifier("erm", **QUICK).fit(data)
    probability = model.predict_proba(data)[:, 0]
    y = np.array(data.y)
    for k in (1, 20, 300):
        top = np.argsort(-probability, kind="stable")[:k]
        chosen = np.isin(np.arange(300), top)
        expected = recall_score(y == "fraud", chosen)
        assert model.recall_at_k(data, k) == pytest.approx(expected)
    some = np.arange(100)
    assert model.recall_at_k(data, 100, some) == 1
    for k in (0, -3, 0.5):
        with pytest.raises(InputError, match="k is"):
            model.recall_at_k(data, k)
    three = rare_class_graph(300)
    three.y = [("a", "b", "c")[i % 3] for i in range(300)]
    with pytest.raises(InputError, match="two classes"):
        canet.NodeClassifier("erm", **QUICK).fit(three).recall_at_k(three, 5)


def test_average_precision_selects_and_scores() -> None:
    data = rare_class_graph(300)
    model = canet.NodeClassifier("erm", "mlp", metric="average_precision", **QUICK).fit(data)
    assert 0.3 < model.score(data) <= 1
    found = canet.diagnose(model, None, rare_class_graph(300, seed=1), repeats=1)
    assert found.model.metric == "average_precision"
    assert found.expected.metric == "average_precision"


@pytest.mark.parametrize("method", METHODS)
def test_sample_weights_of_one_change_nothing_and_others_do(method: str) -> None:
    data, n = rare_class_graph(120, share=0.4), 120
    model = canet.NodeClassifier(method, **QUICK | {"epochs": 3})
    plain, ones, twos, other = (
        model.fit(data, sample_weight=w, environment=np.arange(n) % 2).decision_function(data)
        for w in (None, np.ones(n), np.full(n, 2), np.linspace(0, 2, n))
    )
    assert np.array_equal(plain, ones)
    assert np.array_equal(plain, twos)
    assert not np.allclose(plain, other)


def test_a_node_of_weight_zero_does_not_influence_the_loss() -> None:
    data = rare_class_graph(200, share=0.4)
    changed = data.clone()
    changed.y = [("ok" if y == "fraud" else "fraud") if i < 50 else y for i, y in enumerate(data.y)]
    weight = (np.arange(200) >= 50).astype(float)
    valid = np.arange(150, 200)
    first, second = (
        canet.NodeClassifier("erm", **QUICK).fit(one, sample_weight=weight, valid=valid)
        for one in (data, changed)
    )
    assert np.array_equal(first.decision_function(data), second.decision_function(data))


def test_unknown_weights_of_validation_nodes_are_one_and_all_zeros_are_equal() -> None:
    data, valid = rare_class_graph(200, share=0.4), np.arange(150, 200)
    found = []
    for unknown in (1.0, np.nan, -1.0, 0.0):
        weight = np.where(np.arange(200) < 150, 1.0, unknown)
        model = canet.NodeClassifier(preset="fast", undirected=True)
        model.fit(data, sample_weight=weight, valid=valid)
        found.append(model.predict_proba(data))
    assert all(np.array_equal(found[0], other) for other in found[1:3])
    assert np.isfinite(found[3]).all()


def test_held_out_parts_without_weight_do_not_count(tmp_path: Path) -> None:
    data = rare_class_graph(200, share=0.4)
    weights = {"ok": np.int64(1), "fraud": np.int64(0)}
    model = canet.NodeClassifier(preset="fast", class_weight=weights, undirected=True)
    model.fit(data, environment=np.array(data.y))
    assert not {"without ok", "without fraud"} & set(model.leaderboard_rows()[0])
    model.save(tmp_path / "model")
    assert np.isfinite(canet.load(tmp_path / "model").predict_proba(data)).all()


@pytest.mark.parametrize("weight", [[1.0], np.full(120, -1.0), np.full(120, np.nan), np.zeros(120)])
def test_invalid_sample_weights_are_rejected(weight: Any) -> None:
    with pytest.raises(InputError, match="sample_weight"):
        canet.NodeClassifier("erm", **QUICK).fit(rare_class_graph(120), sample_weight=weight)
