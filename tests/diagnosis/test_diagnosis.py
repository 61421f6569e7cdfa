from __future__ import annotations

import json
from dataclasses import replace
from html import unescape
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
import torch
from torch_geometric.data import Data

from canet.diagnosis import Diagnosis, diagnose
from canet.diagnosis.diagnosis import QUANTITIES
from canet.diagnosis.estimate import Estimate
from canet.errors import InputError, InputWarning
from canet.estimator import NodeClassifier, reference
from tests.support.planted import Planted, planted, random_graph, sign_of
from tests.support.user_graphs import small_user_graph

BLOCKS = {"read": [3], "ignored": [0, 1, 2]}


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
    assert list(complete.reliance) == ["training", "new"]
    assert complete.graphs == {"training": (200, 800), "new": (150, 600)}
    assert complete.reliance["new"].features[0].name == "read"
    assert complete.shift is not None
    assert complete.shift.blocks[0].name == "read"
    assert complete.expected is not None
    assert complete.expected.actual is not None
    assert list(new_alone.reliance) == ["new"]
    assert new_alone.shift is not None
    assert new_alone.shift.columns[0].number == 3
    assert new_alone.shift.without_shifted is None
    assert list(training_alone.reliance) == ["training"]
    assert (training_alone.shift, training_alone.expected) == (None, None)
    assert training_alone.confidence.novelty is None
    assert training_alone.environments == {}


def test_shifted_columns_are_replaced_on_the_training_graph(model: Planted) -> None:
    found = diagnose(model, random_graph(), shifted(), blocks=BLOCKS, repeats=2)
    assert found.shift is not None
    assert found.shift.without_shifted is not None
    assert found.shift.without_shifted.columns == len(found.shift.shifted_columns)
    assert found.shift.score_without_shifted is not None
    assert 0.4 < found.shift.score_without_shifted.value < 0.6
    assert found.is_lower_without_shifted
    same = diagnose(model, random_graph(), random_graph(), blocks=BLOCKS, repeats=2)
    assert same.shift is not None
    assert same.shift.without_shifted is None
    assert not same.is_lower_without_shifted


def test_no_graph_and_no_repeat_are_errors(model: Planted) -> None:
    with pytest.raises(InputError, match="new_data"):
        diagnose(model)
    for repeats in (0, 1.5):
        with pytest.raises(InputError, match="repeats"):
            diagnose(model, random_graph(), repeats=repeats)  # type: ignore[arg-type]


def test_each_graph_is_prepared_once(model: Planted) -> None:
    diagnose(model, random_graph(), shifted(), repeats=1)
    assert model.prepared == 2


def flipping(found: Diagnosis, share: float) -> Diagnosis:
    """With another share of flips on the training graph for the first block."""
    relied = found.reliance["training"]
    first, *others = relied.features
    quiet = replace(
        relied,
        features=[
            replace(first, flip_rate=Estimate(share, share, share), score_loss=None),
            *others,
        ],
    )
    return replace(found, reliance=found.reliance | {"training": quiet})


def test_risky_blocks_are_relied_on_and_shifted(
    complete: Diagnosis, training_alone: Diagnosis
) -> None:
    assert complete.risky_blocks == ["read"]
    assert flipping(complete, 0.002).risky_blocks == []
    assert training_alone.risky_blocks == []
    assert complete.main_reliance == complete.reliance["training"]


@pytest.mark.parametrize(("share", "is_optimistic"), [(0.8, True), (0.2, False)])
def test_an_estimate_for_mostly_novel_nodes_is_optimistic(
    complete: Diagnosis, share: float, is_optimistic: bool
) -> None:
    assert complete.confidence.novelty is not None
    novelty = replace(complete.confidence.novelty, novel=Estimate(share, share, share))
    confidence = replace(complete.confidence, novelty=novelty)
    assert replace(complete, confidence=confidence).is_optimistic == is_optimistic


def test_content_is_plain_json(model: Planted) -> None:
    found = diagnose(model, random_graph(), shifted(), repeats=1)
    content = json.loads(json.dumps(found.to_dict(), allow_nan=False))
    assert content["model"]["method"] == "planted"
    assert content["model"]["scores"] == {"train": 1.0, "valid": 0.9}
    assert content["reliance"]["new"]["features"][0]["name"] == "column 3"
    assert content["shift"]["columns"][0]["effect"] > 0.2


def fitted(method: str, data: Data) -> NodeClassifier:
    return NodeClassifier(method, epochs=20, hidden=8, verbose=0, device="cpu").fit(data)


@pytest.fixture(scope="module")
def spurious() -> tuple[Data, Data]:
    """Column 0 is the label in training and noise later; column 1 is the label with noise."""
    random = np.random.default_rng(0)
    graphs = []
    for told in (1.0, 0.0):
        y = torch.from_numpy(random.integers(2, size=300))
        x = torch.from_numpy(random.normal(size=(300, 4)).astype(np.float32))
        x[:, 0] = (2 * y - 1) * told + (1 - told) * x[:, 0] + 0.1 * x[:, 0]
        x[:, 1] += (2 * y - 1) / 2
        edges = torch.from_numpy(random.integers(300, size=(2, 600)))
        both = torch.cat([edges, edges.flip(0)], dim=1)
        graphs.append(Data(x=x, edge_index=both, y=y, num_nodes=300))
    return graphs[0], graphs[1]


@pytest.mark.parametrize("method", [pytest.param("erm", marks=pytest.mark.slow), "canet"])
def test_a_trained_model_is_diagnosed_to_the_same_numbers_again(
    method: str, spurious: tuple[Data, Data]
) -> None:
    data, new = spurious
    model = fitted(method, data)
    blocks = {"spurious": [0], "stable": [1], "noise": [2, 3]}
    found = diagnose(model, data, new, blocks=blocks, repeats=1)
    assert found.to_json() == diagnose(model, data, new, blocks=blocks, repeats=1).to_json()
    names = [effect.name for effect in found.reliance["training"].features]
    assert names[0] == "spurious"
    assert names[-1] == "noise"
    assert bool(found.environments) == (method == "canet")
    assert found.shift is not None
    assert found.shift.columns[0].number == 0
    assert found.shift.without_shifted is not None


def test_canet_is_diagnosed_on_its_training_graph_alone() -> None:
    data = small_user_graph()
    model = NodeClassifier("canet", epochs=3, hidden=8, undirected=True).fit(data)
    assert "pseudo-environments" in str(diagnose(model, data, repeats=1))


def test_another_graph_in_place_of_the_training_graph_is_a_warning() -> None:
    model = NodeClassifier("erm", epochs=3, hidden=8, undirected=True).fit(small_user_graph())
    with pytest.warns(InputWarning, match="new_data"):
        diagnose(model, small_user_graph(50), repeats=1)


def test_a_path_in_place_of_the_model_is_an_error() -> None:
    with pytest.raises(InputError, match="NodeClassifier"):
        diagnose("model", small_user_graph())  # type: ignore[arg-type]


def test_a_diagnosis_is_shown_in_a_notebook_and_saved(complete: Diagnosis, tmp_path: Path) -> None:
    complete.save(tmp_path / "page.html")
    complete.save(tmp_path / "all.json")
    complete.save(tmp_path / "page.txt")
    assert json.loads((tmp_path / "all.json").read_text()) == complete.to_dict()
    assert complete.to_dict() == json.loads(complete.to_json())
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
    assert set(complete.quantities) <= set(QUANTITIES)
    value = complete.quantities["expected"]
    assert complete.exceeded(f"expected < {value + 0.01:.4f}") is not None
    assert complete.exceeded(f"expected<{value - 0.01:.4f}") is None
    assert complete.exceeded("shifted>0") is not None
    with pytest.raises(InputError, match="is not known for this diagnosis"):
        training_alone.exceeded("expected<0.5")
    with pytest.raises(InputError, match="write it as"):
        complete.exceeded("expected=3")


def test_distributions_of_shifted_columns_sum_to_one(complete: Diagnosis) -> None:
    assert complete.shift is not None
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
    assert some.main_reliance.nodes == 20
    assert some.expected is not None
    assert some.expected.nodes == 20
    assert some.expected.actual is not None
    assert some.expected.actual.value == pytest.approx(model.score(new, np.arange(20)))
    assert some.shift is not None
    assert some.shift.nodes[1] == 20
    with pytest.raises(InputError, match="nodes is empty"):
        diagnose(model, None, new, nodes=np.zeros(n, dtype=bool))


def test_training_nodes_in_the_new_graph_give_a_warning() -> None:
    data = small_user_graph()
    data.node_id = np.array([f"n{i}" for i in range(data.num_nodes)])
    train = np.arange(30)
    model = NodeClassifier("erm", epochs=2, undirected=True).fit(data, train=train)
    with pytest.warns(InputWarning, match=r"of the .* labelled nodes .* were training nodes"):
        diagnose(model, None, data, repeats=1)
    diagnose(model, None, data, nodes=np.arange(40, data.num_nodes), repeats=1)
    later = data.clone()  # the same ids, but other features for most nodes
    later.x[5:] += 1
    diagnose(model, None, later, repeats=1)


def test_training_nodes_in_a_sample_are_not_all_of_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reference, "MAX_NODES", 12)
    data = small_user_graph()
    data.node_id = np.array([f"n{i}" for i in range(data.num_nodes)])
    model = NodeClassifier("erm", epochs=2, undirected=True).fit(data, train=np.arange(30))
    with pytest.warns(InputWarning, match=r"at least 12 of the .* labelled nodes"):
        diagnose(model, None, data, repeats=1)


def test_shifted_degrees_are_advice_if_the_model_relies_on_edges(complete: Diagnosis) -> None:
    assert complete.shift is not None
    assert not complete.relies_on_shifted_edges
    degrees = next(part for part in complete.shift.parts if part.name == "degrees")
    moved = replace(degrees, effect=0.9, p_value=0.0)
    others = [part for part in complete.shift.parts if part.name != "degrees"]
    reliance = complete.main_reliance
    edges = [replace(reliance.edges[0], flip_rate=Estimate(0.5, 0.4, 0.6)), *reliance.edges[1:]]
    changed = replace(
        complete,
        shift=replace(complete.shift, parts=[moved, *others]),
        reliance=complete.reliance | {"training": replace(reliance, edges=edges)},
    )
    assert changed.relies_on_shifted_edges
    assert "Check the edges" in str(changed)
