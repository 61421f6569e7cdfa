import json
import math
from dataclasses import replace
from html import unescape
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from torch_geometric.data import Data

from canet.diagnosis import Diagnosis, diagnose
from canet.diagnosis.advice import CHECK, STOP
from canet.diagnosis.diagnosis import QUANTITIES
from canet.errors import InputError, InputWarning
from canet.estimator import NodeClassifier, reference
from canet.estimator.reference import Reference
from tests.support.orders import fitted_to_orders, orders
from tests.support.planted import Planted, planted, random_graph, sign_of
from tests.support.user_graphs import small_user_graph


@pytest.fixture
def model() -> Planted:
    return planted(sign_of(3), random_graph())


def shifted() -> Data:
    data = random_graph(n=150, seed=1)
    data.x[:, 3] += 1
    return data


def test_the_passed_graphs_determine_the_sections(
    complete: Diagnosis, new_alone: Diagnosis, training_alone: Diagnosis
) -> None:
    assert complete.reliance.graph == training_alone.reliance.graph == "training"
    assert complete.graphs == {"training": (200, 800), "new": (150, 600)}
    assert complete.reliance.features[0].name == "read"
    assert new_alone.reliance.graph == "new"
    assert new_alone.shift.columns[0].number == 3
    assert (training_alone.shift, training_alone.expected) == (None, None)
    assert training_alone.confidence.novelty is None
    assert training_alone.environments == {}


def test_the_headline_is_the_advice_and_the_score(
    complete: Diagnosis, unlabelled: Diagnosis, training_alone: Diagnosis
) -> None:
    measured = f"accuracy {100 * complete.expected.actual.value:.0f} % ("
    assert complete.headline.startswith(f"{complete.verdict}: {measured}")
    assert complete.verdict == STOP
    value = f"accuracy {100 * unlabelled.expected.value:.0f} %"
    assert unlabelled.headline == f"{CHECK}: expected {value}"
    assert unlabelled.expectation.startswith(f"Expected {value}; in 9 of 10 comparable shifts")
    assert "A test on held-out parts" in unlabelled.expectation
    known = replace(unlabelled, expected=replace(unlabelled.expected, held_out=0.8))
    assert "held-out" not in known.expectation
    rare = replace(unlabelled.expected, metric="average_precision", share=0.03)
    assert "3.0 % of the nodes" in replace(unlabelled, expected=rare).expectation
    assert training_alone.headline == "The model relies most on read"
    assert training_alone.expectation == ""


def test_each_graph_is_prepared_once(model: Planted) -> None:
    diagnose(model, random_graph(), shifted(), repeats=1)
    assert model.prepared == 2


def test_a_trained_model_is_diagnosed_to_the_same_numbers_again() -> None:
    data = small_user_graph()
    model = NodeClassifier("canet", epochs=3, hidden=8, undirected=True).fit(data)
    found = diagnose(model, data, repeats=1)
    assert found.to_json() == diagnose(model, data, repeats=1).to_json()
    assert list(found.environments) == ["training"]
    assert "pseudo-environments" in found.page()


def test_another_graph_in_place_of_the_training_graph_is_a_warning() -> None:
    model = NodeClassifier("erm", epochs=3, hidden=8, undirected=True).fit(small_user_graph())
    with pytest.warns(InputWarning, match="new_data"):
        diagnose(model, small_user_graph(50), repeats=1)


def test_a_diagnosis_is_shown_in_a_notebook_and_saved(complete: Diagnosis, tmp_path: Path) -> None:
    complete.save(tmp_path / "page.html")
    complete.save(tmp_path / "all.json")
    complete.save(tmp_path / "page.txt")
    assert json.loads((tmp_path / "all.json").read_text()) == complete.to_dict()
    assert "NaN" not in complete.to_json()
    assert (tmp_path / "page.txt").read_text() == str(complete)
    for name in ("page.pdf", "page", ""):
        with pytest.raises(InputError, match=r"\.html, \.json, \.txt"):
            complete.save(tmp_path / name)
    page = (tmp_path / "page.html").read_text(encoding="utf-8")
    frame = complete._repr_html_()
    assert frame.startswith("<iframe srcdoc=")
    assert unescape(frame.partition('srcdoc="')[2].rpartition('" width')[0]) == page


def test_conditions_are_checked_against_the_quantities(
    complete: Diagnosis, training_alone: Diagnosis
) -> None:
    assert set(complete.quantities) == set(QUANTITIES) - {"held_out"}
    assert training_alone.quantities == {}
    value = complete.quantities["expected"]
    assert complete.exceeded(f"expected < {value + 0.01:.4f}") is not None
    assert complete.exceeded(f"expected<{value - 0.01:.4f}") is None
    assert complete.exceeded("shifted>0") is not None
    for condition, found in (("expected<0.5", training_alone), ("held_out<0.5", complete)):
        with pytest.raises(InputError, match="is not known for this diagnosis"):
            found.exceeded(condition)
    with pytest.raises(InputError, match="write it as"):
        complete.exceeded("expected=3")


def test_a_number_that_is_not_known_never_passes(complete: Diagnosis) -> None:
    unknown = replace(complete, expected=replace(complete.expected, value=math.nan))
    assert unknown.exceeded("expected<0.0") is not None
    assert unknown.exceeded("expected>1.0") is not None


def test_distributions_of_shifted_columns_sum_to_one(complete: Diagnosis) -> None:
    first = complete.shift.distributions[0]
    assert first.name == complete.shift.columns[0].name
    for side in ("before", "after"):
        assert sum(getattr(bar, side) for bar in first.bars) == pytest.approx(1)
    assert all(low.high == high.low for low, high in pairwise(first.bars))
    assert "<title>" in complete._repr_html_().replace("&lt;", "<").replace("&gt;", ">")


def test_only_the_chosen_nodes_are_diagnosed() -> None:
    data = small_user_graph()
    model = NodeClassifier("canet", epochs=5, hidden=8, undirected=True).fit(data)
    new = small_user_graph()
    new.x = new.x + 0.1
    n = new.num_nodes
    everything = diagnose(model, None, new, repeats=2)
    same = diagnose(model, None, new, nodes=np.arange(n), repeats=2)
    assert same.to_json() == everything.to_json()
    some = diagnose(model, None, new, nodes=np.arange(20), repeats=2)
    assert some.reliance.nodes == 20
    assert some.expected.nodes == 20
    assert some.expected.actual.value == pytest.approx(model.score(new, np.arange(20)))
    assert some.shift.nodes[1] == 20
    with pytest.raises(InputError, match="nodes is empty"):
        diagnose(model, None, new, nodes=np.zeros(n, dtype=bool))


@pytest.mark.filterwarnings("ignore:columns that are empty")
def test_a_column_that_became_empty_is_named_with_its_reliance_on_training_values() -> None:
    model = fitted_to_orders()
    found = diagnose(model, None, orders(1, filled=0.0), repeats=2)
    assert found.shift.constant == ["late"]
    first = next(one for one in found.reliance.features if one.name == "late")
    with_training = diagnose(model, orders(), orders(1, filled=0.0), repeats=2).reliance.features
    assert first.changed.value == pytest.approx(with_training[0].changed.value, abs=0.1)
    assert any("late (" in one.found for one in found.findings)
    assert diagnose(model, None, orders(1), repeats=1).shift.constant == []


def test_a_graph_is_searched_for_empty_columns_once(monkeypatch: pytest.MonkeyPatch) -> None:
    model, searched = fitted_to_orders(), list[int]()
    new = model.open_graph(orders(1))
    monkeypatch.setattr(Reference, "constant_columns", lambda *_: searched.append(1) or [])
    model.predict(new)
    model.predict_proba(new, nodes=[3])
    assert searched == [1]


@pytest.mark.parametrize("filled", [0.05, 0.4])
def test_a_column_with_more_empty_cells_is_a_finding_even_if_the_model_hardly_needs_it(
    filled: float,
) -> None:
    nodes, edges = orders()
    model = NodeClassifier("linear", undirected=True).fit(
        (nodes.assign(noise=nodes["late"]), edges), label="is_late", without="late"
    )
    new, edges = orders(1, filled=filled)
    found = diagnose(model, None, (new.assign(noise=new["late"]), edges), repeats=1).findings
    assert any("noise (62 → 95 %)" in one.found for one in found) == (filled == 0.05)


@pytest.mark.parametrize("has_ids", [True, False])
def test_training_nodes_in_the_new_graph_give_a_warning(has_ids: bool) -> None:
    data = small_user_graph()
    if has_ids:
        data.node_id = np.array([f"n{i}" for i in range(data.num_nodes)])
    train = np.arange(30)
    model = NodeClassifier("erm", epochs=2, undirected=True).fit(data, train=train)
    with pytest.warns(InputWarning, match=r"of the .* labelled nodes .* were training nodes"):
        diagnose(model, None, data, repeats=1)
    diagnose(model, None, data, nodes=np.arange(40, data.num_nodes), repeats=1)
    later = data.clone()  # the same ids, but other features for most nodes
    later.x[5:] += 1
    diagnose(model, None, later, repeats=1)
    with pytest.warns(InputWarning, match="24 of the 60"):
        diagnose(model, data, data, repeats=1)


def test_training_nodes_in_a_sample_are_not_all_of_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reference, "MAX_NODES", 12)
    data = small_user_graph()
    data.node_id = np.array([f"n{i}" for i in range(data.num_nodes)])
    model = NodeClassifier("erm", epochs=2, undirected=True).fit(data, train=np.arange(30))
    with pytest.warns(InputWarning, match=r"at least 12 of the .* labelled nodes"):
        diagnose(model, None, data, repeats=1)
