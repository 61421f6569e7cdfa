import numpy as np
import pytest
import torch
from torch_geometric.data import Data

from canet.data.graph_files.encoding import ColumnEncoding, Encoding
from canet.diagnosis.sections.shift import ClassShare, Part, Shift, compute
from tests.support.planted import make_context, planted, random_graph, sign_of


def shifted(new: Data, before: Data | None = None) -> Shift:
    model = planted(sign_of(3), before or random_graph(n=600))
    return compute(make_context(model, new))


def part(found: Shift, name: str) -> Part:
    (one,) = [part for part in found.parts if part.name == name]
    return one


@pytest.fixture(scope="module")
def nothing() -> Shift:
    return shifted(random_graph(n=500, seed=1))


@pytest.fixture(scope="module")
def mean() -> Shift:
    new = random_graph(n=500, seed=1)
    new.x[:, 4] += 1
    return shifted(new)


def test_without_shift_nothing_is_found(nothing: Shift) -> None:
    assert min(p.p_value for p in nothing.parts if p.name != "homophily") > 0.05
    assert nothing.shifted_columns == []
    assert not any(part.has_shifted for part in nothing.parts)
    assert nothing.changed_classes == []
    auc = part(nothing, "features").auc
    assert auc.value == pytest.approx(0.5, abs=0.06)


def test_a_column_whose_mean_shifted_is_first(mean: Shift) -> None:
    first, second = mean.columns[:2]
    assert (first.name, first.number) == ("e", 4)
    assert first.after - first.before == pytest.approx(1, abs=0.15)
    assert first.p_value < 1e-10 < second.p_value
    assert [column.name for column in mean.shifted_columns] == ["e"]
    assert mean.parts[0].name == "features"
    assert part(mean, "features").effect > 0.3
    assert mean.parts[0].has_shifted


def test_a_shift_of_a_used_column_shifts_predictions() -> None:
    new = random_graph(n=500, seed=1)
    new.x[:, 3] += 2
    found = shifted(new)
    assert part(found, "predictions").effect > 0.3
    assert part(found, "labels").p_value > 0.05


def test_classes_that_vanish_or_double_are_changed() -> None:
    rows = [(0.5, 0.5, 0.04), (0.2, 0.1, 0.41), (0.5, 0.5, 0.06), (0.2, 0.1, 0.39)]
    rows += [(0.01, 0.01, 0.0), (0.01, 0.01, 0.05)]  # too rare to vanish; only 4 points more
    classes = [ClassShare("a", *row, np.nan) for row in rows]
    assert Shift([], [], classes, (9, 9), []).changed_classes == classes[:2]
    assert [one.has_vanished for one in classes[:2]] == [True, False]


def test_degrees_are_compared() -> None:
    found = shifted(random_graph(n=500, seed=1, degree=9))
    assert found.parts[0].name == "degrees"
    assert (found.parts[0].before, found.parts[0].after) == pytest.approx((4, 9))


def test_label_rates_and_homophily_are_compared_if_there_are_labels() -> None:
    new = random_graph(n=500, seed=1)
    new.y = torch.ones(500, dtype=torch.long)
    found = shifted(new)
    rate = float(random_graph(n=600).y.double().mean())
    assert part(found, "labels").effect == pytest.approx(1 - rate)
    first, second = found.classes
    assert (first.training, first.actual) == pytest.approx((1 - rate, 0))
    assert (second.training, second.actual) == pytest.approx((rate, 1))
    assert first.new + second.new == pytest.approx(1)
    assert part(found, "homophily").after == 1
    del new.y
    names = {one.name for one in shifted(new).parts}
    assert names == {"features", "degrees", "predictions"}
    assert np.isnan(shifted(new).classes[0].actual)


def test_unknown_labels_are_counted() -> None:
    new = random_graph(n=100, seed=1)
    new.y[:25] = 9
    last = shifted(new).classes[-1]
    assert (last.name, last.training, last.new, last.actual) == ("other classes", 0, 0, 0.25)


def test_means_are_in_the_units_of_the_table() -> None:
    kinds = [("number", 40.0, 12.0), ("date", 1.6e9, 1e6), *[("number", 0.0, 1.0)] * 4]
    columns = [ColumnEncoding(f"c{i}", k, m, s) for i, (k, m, s) in enumerate(kinds)]
    before, new = random_graph(n=100), random_graph(n=90, seed=1)
    model = planted(sign_of(3), before)
    model.encoding_ = Encoding(tuple(columns))
    found = compute(make_context(model, new))
    by_number = {column.number: column for column in found.columns}
    means = 40 + 12 * before.x[:, 0].mean().item(), 40 + 12 * new.x[:, 0].mean().item()
    assert (by_number[0].before, by_number[0].after) == pytest.approx(means)
    assert by_number[1].before == pytest.approx(1.6e9, rel=1e-3)
    assert [by_number[i].is_date for i in range(3)] == [False, True, False]


def test_nodes_with_the_same_ids_do_not_hide_a_shift() -> None:
    before = random_graph(n=600)
    before.node_id = [f"c{i}" for i in range(600)]
    new = before.clone()
    new.x = before.x + 0.01 * torch.randn(600, 6, generator=torch.Generator().manual_seed(0))
    still = shifted(new, before)
    assert part(still, "features").effect < 0.1
    assert still.columns[0].effect < 0.1
    new.x[:, 4] += 0.5
    assert "features" in {one.name for one in shifted(new, before).parts if one.has_shifted}
