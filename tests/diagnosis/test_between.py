"""Columns that moved between groups in training, by what is known of a planted model."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from torch_geometric.data import Data

from canet.diagnosis import Diagnosis, diagnose
from canet.diagnosis.between import BetweenGroups, clear_columns
from canet.estimator.classifier import NodeClassifier, load

from .planted import Planted, moving, planted, random_graph, sign_of


def model_of(*columns: int) -> Planted:
    """Reads column 3; these columns moved between groups when it was trained."""
    model = planted(sign_of(3), random_graph())
    model.reference_ = replace(model.reference_, screen=moving(6, *columns))
    return model


def between(found: Diagnosis) -> BetweenGroups:
    assert found.between_groups is not None
    return found.between_groups


def test_columns_come_by_their_share_and_with_the_way_to_the_new_graph_in_spreads() -> None:
    new = random_graph(n=150, seed=1)
    new.x[:, 5] += 4
    found = between(diagnose(model_of(5, 3), new_data=new, repeats=1))
    assert [column.number for column in found.columns[:2]] == [5, 3]
    assert [column.number for column in found.clear] == [5, 3]
    assert sorted(column.number for column in found.columns) == list(range(6))
    first = found.columns[0]
    way = new.x[:, 5].mean() - random_graph().x[:, 5].mean()
    assert first.moved == pytest.approx(float(way) / 0.5, rel=1e-4)
    assert (first.share, first.spread) == (pytest.approx(0.8), 0.5)
    assert (found.groups, found.given) == (3, False)
    assert found.chance == pytest.approx(0.05)


def test_a_column_without_spread_has_no_units_to_move_in() -> None:
    model = model_of(3)
    screen = model.reference_.screen
    assert screen is not None
    spread = screen.spread.clone()
    spread[0] = 0
    model.reference_ = replace(model.reference_, screen=replace(screen, spread=spread))
    found = diagnose(model, new_data=random_graph(seed=1), repeats=1)
    moved = {column.number: column.moved for column in between(found).columns}
    assert math.isnan(moved.pop(0))
    assert all(map(math.isfinite, moved.values()))
    content = json.loads(json.dumps(found.to_json(), allow_nan=False))["between_groups"]
    assert next(c for c in content["columns"] if c["number"] == 0)["moved"] is None


def test_without_a_new_graph_no_column_moved_since() -> None:
    found = between(diagnose(model_of(3), random_graph(), repeats=1))
    assert all(math.isnan(column.moved) for column in found.columns)


def test_reliance_on_moving_columns_is_tried_on_the_training_graph_where_it_is_given() -> None:
    data, new = random_graph(), random_graph(n=150, seed=1)
    read = between(diagnose(model_of(3, 4), data, new, repeats=3)).relied_on
    ignored = between(diagnose(model_of(0, 1, 2), data, new, repeats=3)).relied_on
    alone = between(diagnose(model_of(3), new_data=new, repeats=3)).relied_on
    assert read is not None
    assert (read.columns, read.name) == (2, "columns that move between groups")
    assert 40 < read.flipped.value < 60
    assert ignored is not None
    assert (ignored.columns, ignored.flipped.value) == (3, 0)
    assert alone is not None
    assert alone.flipped.value > 40


def test_where_nothing_clearly_moves_nothing_is_tried() -> None:
    found = between(diagnose(model_of(), random_graph(), repeats=1))
    assert found.clear == []
    assert found.relied_on is None


def test_a_model_without_a_screen_has_none() -> None:
    model = planted(sign_of(3), random_graph())
    assert clear_columns(model).tolist() == []
    found = diagnose(model, random_graph(), random_graph(seed=1), repeats=1)
    assert found.between_groups is None
    assert found.to_json()["between_groups"] is None


def worlds(seed: int, world: np.ndarray) -> Data:
    """Forty columns of noise: column 0 tells the class everywhere, columns 7 and 9 tell class and
    world together.
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
def test_a_fitted_model_names_the_columns_that_moved_between_worlds(
    method: str, given: bool
) -> None:
    world = np.arange(400) % 3
    data, new = worlds(0, world), worlds(1, np.full(100, 5))
    if given:
        data.environment = torch.from_numpy(world)
    model = NodeClassifier(method, epochs=5, hidden=8, verbose=0, device="cpu").fit(data)
    found = between(diagnose(model, new_data=new, repeats=1))
    assert found.given == given
    assert found.groups == (3 if given else 6)
    assert {column.number for column in found.clear[:2]} == {7, 9}
    assert len(found.clear) == 2 or not given  # inferred groups cut through other columns too
    moved = {column.number: column.moved for column in found.clear}
    assert moved[7] == pytest.approx(4, abs=1.5)
    assert moved[9] == pytest.approx(-4, abs=1.5)
    assert not found.intervened


def test_a_screen_is_saved_and_a_model_that_was_saved_without_one_is_still_diagnosed(
    tmp_path: Path,
) -> None:
    data = worlds(0, np.arange(100) % 3)
    model = NodeClassifier("erm", epochs=2, hidden=8, verbose=0, device="cpu").fit(data)
    model.save(tmp_path / "now")
    now = diagnose(load(tmp_path / "now"), data, repeats=1)
    assert now.between_groups is not None
    assert now.to_json() == diagnose(model, data, repeats=1).to_json()
    model.reference_ = replace(model.reference_, screen=None)
    model.save(tmp_path / "before")
    (before,) = (tmp_path / "before").glob("reference-*")
    assert not any("screen" in name for name in load_file(before))
    assert diagnose(load(tmp_path / "before"), data, repeats=1).between_groups is None


def test_a_model_that_was_trained_with_interventions_is_known_by_it() -> None:
    data = worlds(0, np.arange(400) % 3)
    model = NodeClassifier(
        "canet", epochs=2, hidden=8, verbose=0, device="cpu", interventions="inferred", num_groups=3
    ).fit(data)
    found = between(diagnose(model, new_data=data, repeats=1))
    assert found.intervened
    assert found.groups == 3
