"""Columns that shift between groups of training nodes, for planted and for trained models."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from torch_geometric.data import Data

from canet.diagnosis import Diagnosis, diagnose
from canet.diagnosis.estimate import Estimate
from canet.diagnosis.sections.between_groups import BetweenGroups
from canet.estimator import NodeClassifier, load
from tests.support.planted import (
    Planted,
    planted,
    random_graph,
    shifting_screen,
    sign_of,
    with_stable_columns,
)


def model_of(*columns: int) -> Planted:
    """A model that uses column 3; `columns` shift between groups of training nodes."""
    return planted(sign_of(3), random_graph(), screen=shifting_screen(6, *columns))


def between(found: Diagnosis) -> BetweenGroups:
    assert found.between_groups is not None
    return found.between_groups


def test_columns_are_sorted_by_share_and_have_their_shift_in_spreads() -> None:
    new = random_graph(n=150, seed=1)
    new.x[:, 5] += 4
    found = between(diagnose(model_of(5, 3), new_data=new, repeats=1))
    assert [column.number for column in found.columns[:2]] == [5, 3]
    assert [column.number for column in found.shifting] == [5, 3]
    assert sorted(column.number for column in found.columns) == list(range(6))
    first = found.columns[0]
    shift = new.x[:, 5].mean() - random_graph().x[:, 5].mean()
    assert first.shift_in_spreads == pytest.approx(float(shift) / 0.5, rel=1e-4)
    assert (first.share, first.spread) == (pytest.approx(0.8), 0.5)
    assert (found.groups, found.uses_environments) == (3, False)
    assert found.chance == pytest.approx(0.05)


def test_the_shift_of_a_column_without_spread_is_nan() -> None:
    model = model_of(3)
    assert model.screen is not None
    model.screen.spread[0] = 0
    found = diagnose(model, new_data=random_graph(seed=1), repeats=1)
    shift = {column.number: column.shift_in_spreads for column in between(found).columns}
    assert math.isnan(shift.pop(0))
    assert all(map(math.isfinite, shift.values()))
    content = json.loads(json.dumps(found.to_json(), allow_nan=False))["between_groups"]
    assert next(c for c in content["columns"] if c["number"] == 0)["shift_in_spreads"] is None


def test_shifting_columns_are_replaced_on_the_training_graph_if_it_is_passed() -> None:
    data, new = random_graph(), random_graph(n=150, seed=1)
    read = between(diagnose(model_of(3, 4), data, new, repeats=3)).effect
    ignored = between(diagnose(model_of(0, 1, 2), data, new, repeats=3)).effect
    alone = between(diagnose(model_of(3), new_data=new, repeats=3)).effect
    assert read is not None
    assert read.columns == 2
    assert 0.4 < read.flip_rate.value < 0.6
    assert ignored is not None
    assert (ignored.columns, ignored.flip_rate.value) == (3, 0)
    assert alone is not None
    assert alone.flip_rate.value > 0.4


def test_without_shifting_columns_there_is_no_effect() -> None:
    found = between(diagnose(model_of(), random_graph(), repeats=1))
    assert all(math.isnan(column.shift_in_spreads) for column in found.columns)
    assert found.shifting == []
    assert found.effect is None


def worlds(seed: int, world: np.ndarray) -> Data:
    """Forty columns of noise: column 0 predicts the class everywhere, columns 7 and 9 by
    world.
    """
    random = np.random.default_rng(seed)
    n = world.size
    y = random.integers(2, size=n)
    x = random.normal(size=(n, 40))
    x[:, 0] += 2 * y
    x[:, 7] += 3 * world + 2 * y
    x[:, 9] -= 3 * world - 2 * y
    edges = torch.from_numpy(random.integers(n, size=(2, 2 * n)))
    both = torch.cat([edges, edges.flip(0)], dim=1)
    return Data(x=torch.from_numpy(x).float(), edge_index=both, y=torch.from_numpy(y), num_nodes=n)


@pytest.mark.parametrize("method", ["erm", "canet"])
@pytest.mark.parametrize("given", [False, True])
def test_a_fitted_model_finds_the_columns_that_shift_between_worlds(
    method: str, given: bool
) -> None:
    world = np.arange(400) % 3
    data, new = worlds(0, world), worlds(1, np.full(100, 5))
    if given:
        data.environment = torch.from_numpy(world)
    model = NodeClassifier(method, epochs=5, hidden=8, verbose=0, device="cpu").fit(data)
    found = between(diagnose(model, new_data=new, repeats=1))
    assert found.uses_environments == given
    assert found.groups == (3 if given else 6)
    assert {column.number for column in found.shifting[:2]} == {7, 9}
    assert len(found.shifting) == 2 or not given  # inferred groups cut through other columns too
    shift = {column.number: column.shift_in_spreads for column in found.shifting}
    assert shift[7] == pytest.approx(4, abs=1.5)
    assert shift[9] == pytest.approx(-4, abs=1.5)
    assert not found.has_interventions


def test_a_loaded_model_is_diagnosed_to_the_same_numbers(tmp_path: Path) -> None:
    data = worlds(0, np.arange(100) % 3)
    model = NodeClassifier("erm", epochs=2, hidden=8, verbose=0, device="cpu").fit(data)
    model.save(tmp_path / "model")
    found = diagnose(load(tmp_path / "model"), data, repeats=1)
    assert found.between_groups is not None
    assert found.to_json() == diagnose(model, data, repeats=1).to_json()


def test_interventions_of_a_model_are_reported() -> None:
    data = worlds(0, np.arange(400) % 3)
    model = NodeClassifier(
        "canet", epochs=2, hidden=8, verbose=0, device="cpu", interventions="inferred", num_groups=3
    ).fit(data)
    found = between(diagnose(model, new_data=data, repeats=1))
    assert found.has_interventions
    assert found.groups == 3
    assert found.supports_interventions


def changed(found: Diagnosis, flips: float = 0.3, **changes: object) -> BetweenGroups:
    """Set the flip rate for the shifting columns."""
    part = between(found)
    assert part.effect is not None
    effect = replace(part.effect, flip_rate=Estimate(flips, flips, flips))
    return replace(part, effect=effect, **changes)  # type: ignore[arg-type]


def test_interventions_are_recommended_if_the_model_relies_on_few_shifting_columns(
    complete: Diagnosis,
) -> None:
    few = with_stable_columns(complete)
    assert changed(few).recommends_interventions
    assert not changed(few, flips=0.015).is_risky
    assert not changed(few, has_interventions=True).recommends_interventions
    assert changed(complete).has_too_many  # a third of the columns
    assert not changed(complete).recommends_interventions


def test_the_furthest_column_need_not_have_the_largest_share(
    complete: Diagnosis,
) -> None:
    columns = [
        replace(column, is_shifting=True, shift_in_spreads=-9.0 if place == 5 else 1.0)
        for place, column in enumerate(between(complete).columns)
    ]
    assert changed(complete, columns=columns).furthest == columns[5]
    still = [replace(column, shift_in_spreads=math.nan) for column in columns]
    assert changed(complete, columns=still).furthest is None
