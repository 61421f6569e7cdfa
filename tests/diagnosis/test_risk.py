from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from sklearn.metrics import accuracy_score, average_precision_score, roc_auc_score
from torch_geometric.data import Data

from canet import NodeClassifier
from canet.diagnosis import Diagnosis, diagnose
from canet.diagnosis.blocks import OTHERS
from canet.diagnosis.risk import MAX_ROWS, Risk, risks_of
from canet.scoring.intervals import Estimate
from tests.support.orders import fitted_to_orders, orders

N, DRAWS = 400, 3
VALID = np.arange(N) >= 200
METRICS = ("accuracy", "roc_auc", "average_precision")


def graph(seed: int, shift: float = 0.0) -> Data:
    """Twelve columns, of which the first six say less and less about a class of 20 %."""
    random = np.random.default_rng(seed)
    y = (random.random(N) < 0.2).astype(np.int64)
    x = random.normal(size=(N, 12)) + y[:, None] * np.maximum(1.5 - 0.3 * np.arange(12), 0)
    x[:, 1] += shift
    pairs = random.integers(N, size=(4 * N, 2))
    edges = torch.from_numpy(pairs[y[pairs[:, 0]] == y[pairs[:, 1]]].T.copy())
    return Data(x=torch.from_numpy(x).float(), edge_index=edges, y=torch.from_numpy(y))


@pytest.fixture(scope="module", params=METRICS)
def model(request: pytest.FixtureRequest) -> NodeClassifier:
    """A network for each metric, trained on the first nodes and validated on the others."""
    how: dict[str, Any] = {"epochs": 30, "hidden": 16, "undirected": True, "device": "cpu"}
    model = NodeClassifier("erm", "gcn", metric=request.param, **how)
    return model.fit(graph(0), train=~VALID, valid=VALID)


def loss(metric: str, y: np.ndarray, before: np.ndarray, after: np.ndarray) -> float:
    """What the metric loses, by scikit-learn, for probabilities $[n, 2]$."""
    if metric == "accuracy":
        first, second = (accuracy_score(y, p.argmax(axis=1)) for p in (before, after))
    else:
        function = {"roc_auc": roc_auc_score, "average_precision": average_precision_score}[metric]
        first, second = (function(y, p[:, 1]) for p in (before, after))
    return float(first - second)


def change(metric: str, before: np.ndarray, after: np.ndarray) -> float:
    """Share of the classes that change; else of all pairs, by the probability of the first node."""
    if metric == "accuracy":
        return float((before.argmax(axis=1) != after.argmax(axis=1)).mean())
    first, second = (np.sign(p[:, [1]] - p[:, 1]) for p in (before, after))
    return float(before[:, 1] @ (first != second).mean(axis=1) / before[:, 1].sum())


@pytest.mark.parametrize("has_labels", [True, False])
def test_permutation_by_hand_gives_the_printed_reliance(
    model: NodeClassifier, has_labels: bool
) -> None:
    data, new, random = graph(0), graph(1, shift=2), np.random.default_rng(5)
    del new.y
    found = diagnose(model, data if has_labels else None, new)
    used, rows = (data, VALID) if has_labels else (new, np.full(N, True))
    known = model.reference_.x  # without the training graph, donors are training nodes
    donors = used.x if has_labels else torch.cat([known, known])
    before = model.predict_proba(used)[rows]
    assert len(found.risks) == MAX_ROWS
    assert max(risk.reliance.value for risk in found.risks) > 0.02
    for risk in found.risks:
        column, sizes = int(risk.name.removeprefix("column ")), []
        for _ in range(DRAWS):
            changed = used.clone()
            changed.x = used.x.clone()
            changed.x[:, column] = donors[random.permutation(N), column]
            after = model.predict_proba(changed)[rows]
            given = (data.y.numpy()[VALID], before, after) if has_labels else (before, after)
            sizes.append((loss if has_labels else change)(model.metric, *given))
        noise = 2 * np.std(sizes, ddof=1) / np.sqrt(DRAWS)
        assert risk.reliance.low - noise <= np.mean(sizes) <= risk.reliance.high + noise


def risks(found: Diagnosis, sizes: dict[str, float], shifts: dict[str, float]) -> list[Risk]:
    """The risks of blocks with one column each, in this order of columns."""
    effect, column = found.reliance.features[0], found.shift.columns[0]
    effects = [
        replace(effect, name=name, lost=Estimate(size, size - 0.01, size + 0.01))
        for name, size in sizes.items()
    ]
    blocks = {name: np.array([i]) for i, name in enumerate(sizes)}
    columns = [
        replace(column, name=name, number=list(sizes).index(name), effect=shift, p_value=0.0)
        for name, shift in shifts.items()
    ]
    moved = replace(found.shift, columns=columns)
    return risks_of(replace(found.reliance, features=effects), moved if shifts else None, blocks)


def test_the_largest_products_of_reliance_and_shift_come_first(complete: Diagnosis) -> None:
    sizes = {"a": 0.3, "b": 0.2, "c": 0.1, "d": 0.005, "e": -0.1}
    shifts = {"a": 0.05, "b": 0.5, "c": 0.3, "d": 0.9, "e": 0.9}
    found = risks(complete, sizes, shifts)
    assert [one.name for one in found] == ["b", "c", "a", "d", "e"]
    assert [one.name for one in found if one.is_at_risk] == ["b", "c"]
    assert [one.shift for one in found][:2] == [0.5, 0.3]
    without = risks(complete, sizes, {})
    assert [one.name for one in without] == list(sizes)
    assert not any(one.is_at_risk for one in without)
    many = {f"column {i}": 0.01 * i for i in range(15)}
    assert len(risks(complete, many, {})) == MAX_ROWS


def test_all_other_columns_are_no_risk_unless_they_are_all_columns(complete: Diagnosis) -> None:
    found = risks(complete, {OTHERS: 0.5, "b": 0.1}, {OTHERS: 0.9, "b": 0.2})
    assert [one.name for one in found] == ["b"]
    assert [one.name for one in risks(complete, {OTHERS: 0.5}, {})] == [OTHERS]


@pytest.mark.filterwarnings("ignore:columns that are empty")
def test_shares_of_values_are_in_percent_and_the_same_for_every_new_graph() -> None:
    model = fitted_to_orders()
    names = model.feature_names_in_.tolist()
    on, empty = model.reference_.x.mean(dim=0)[
        [names.index("signal=on"), names.index("late=empty")]
    ]
    for seed in range(6):
        new = orders(seed + 1, on=0.9 + 0.01 * seed, filled=0.0)
        rows = {one.name: one.column for one in diagnose(model, None, new, repeats=1).risks}
        assert rows["signal"].means == (f"on {100 * on:.0f} %", f"{90 + seed} %")
        assert rows["late"].means == (f"empty {100 * empty:.0f} %", "100 %")
