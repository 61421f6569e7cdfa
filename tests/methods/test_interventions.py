from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor

import canet
from canet.data import load_task
from canet.data.benchmarks.spurious import NUM_SPURIOUS
from canet.data.graph import Graph
from canet.data.task import ShiftTask
from canet.errors import CanetError, InputWarning
from canet.methods import get_method
from canet.methods.base import TrainingView
from canet.methods.canet import CaNetSettings
from canet.methods.interventions import (
    LARGE_EFFECT,
    GroupSpread,
    Interventions,
    InterventionSettings,
    as_matrix,
    infer_groups,
    spread_between,
)
from canet.models import FittedNetwork, Trainer
from canet.nn import ShiftedFeatures, SparseMatrix
from canet.reading.prepared import PreparedGraph
from canet.settings import override
from tests.support.data_of import data_of
from tests.support.small_task import with_columns
from tests.support.tiny import tiny_task
from tests.support.trainers import make, run_until, same_run

pytestmark = pytest.mark.filterwarnings(
    "ignore::canet.methods.interventions.InterventionWarning"  # most of the few columns shift
)


def two_worlds(sparse: bool = False) -> TrainingView:
    """Two classes in three worlds; column 0 depends on the class, 1 on the world, 2 is noise."""
    random = np.random.default_rng(0)
    n = 300
    y, world = np.arange(n) % 2, np.arange(n) % 3
    x = 0.1 * random.normal(size=(n, 4))
    x[:, 0] += 3 * y
    x[:, 1] += 2.0 * world
    features = torch.from_numpy(x).float()
    return TrainingView(
        x=SparseMatrix.from_torch(features.to_sparse_csr()) if sparse else features,
        edge_index=torch.empty(2, 0, dtype=torch.long),
        observed=torch.arange(n),
        train=torch.arange(0, n - 50),
        y=torch.from_numpy(y)[: n - 50],
        read=lambda nodes: pytest.fail("nothing to read"),
        field=lambda: torch.arange(n),
        environment=torch.from_numpy(world),
    )


def slow_spread(x: Tensor, y: Tensor, group: Tensor) -> tuple[list[float], list[float]]:
    """Spread and share between groups of each column, in loops."""
    spreads, shares = [], []
    for column in x.double().T:
        between = within = total = 0.0
        for label in y.unique():
            cells = [column[(y == label) & (group == g)] for g in group.unique()]
            cells = [cell for cell in cells if len(cell) >= 3]
            if len(cells) < 2:
                continue
            size = int((y == label).sum())
            means = torch.stack([cell.mean() for cell in cells])
            noise = torch.stack([cell.var() / len(cell) for cell in cells]).mean()
            inside = sum(float(c.var()) * len(c) for c in cells) / sum(map(len, cells))
            between += size * max(0.0, float(means.var() - noise))
            within += size * inside
            total += size
        spreads.append((between / total) ** 0.5)
        shares.append(between / (between + within))
    return spreads, shares


@pytest.mark.parametrize("sparse", [False, True])
def test_spread_is_that_of_a_loop_over_classes_and_groups(sparse: bool) -> None:
    view = two_worlds(sparse)
    assert view.environment is not None
    group = view.environment[view.train]
    between = spread_between(view.x, view.train, view.y, group, 3)
    dense = two_worlds().x
    assert isinstance(dense, Tensor)
    spread, share = slow_spread(dense[view.train], view.y, group)
    torch.testing.assert_close(between.spread, torch.tensor(spread), atol=1e-6, rtol=1e-4)
    torch.testing.assert_close(between.share, torch.tensor(share), atol=1e-6, rtol=1e-4)


@pytest.mark.parametrize("filled", [0.05, 0.9])
def test_groups_and_spreads_are_those_of_the_same_features_stored_sparse(filled: float) -> None:
    random = torch.Generator().manual_seed(0)
    x = torch.randn(120, 600, generator=random)
    x *= torch.rand(120, 600, generator=random) < filled
    x[:, :20] += 3 * torch.randn(4, 20, generator=random)[torch.arange(120) % 4]
    assert isinstance(as_matrix(x), np.ndarray) == (filled > 0.5)
    stored = SparseMatrix.from_torch(x.to_sparse_csr())
    y, nodes = torch.arange(120) % 2, torch.arange(120)
    view = replace(two_worlds(), x=x, train=nodes, y=y, field=lambda: nodes)
    group = infer_groups(view, 4)
    assert group.equal(infer_groups(replace(view, x=stored), 4))
    pair = (spread_between(some, nodes, y, group, 4) for some in (x, stored))
    for one, other in zip(*pair, strict=True):
        assert one.equal(other)


def test_a_column_that_differs_between_classes_only_is_not_shifted() -> None:
    view = two_worlds()
    assert view.environment is not None
    between = spread_between(view.x, view.train, view.y, view.environment[view.train], 3)
    assert between.is_shifted.tolist() == [False, True, False, False]
    assert between.spread[1] == pytest.approx(2.0, abs=0.05)
    assert (between.share[[0, 2, 3]] < LARGE_EFFECT).all()


def test_a_class_in_one_group_has_no_spread() -> None:
    x, y = torch.rand(20, 2), torch.arange(20) % 2
    between = spread_between(x, torch.arange(20), y, y, 2)
    assert between.spread.tolist() == [0, 0]
    assert not between.is_shifted.any()


@pytest.mark.parametrize("sparse", [False, True])
def test_groups_of_training_nodes_are_assigned_to_all_nodes_of_the_batch(sparse: bool) -> None:
    view = two_worlds(sparse)
    group = infer_groups(view, 6)
    assert view.environment is not None
    assert (group >= 0).all()
    for g in range(6):  # two classes in each of three worlds
        assert view.environment[group == g].unique().numel() == 1


@pytest.mark.parametrize("scale", [1e20, 1e37, 1e-30])
@pytest.mark.parametrize("sparse", [False, True])
def test_groups_do_not_depend_on_the_unit_of_the_features(
    scale: float, sparse: bool, capfd: pytest.CaptureFixture[str]
) -> None:
    view = two_worlds()
    assert isinstance(view.x, Tensor)
    large = scale * view.x
    spoilt = replace(view, x=SparseMatrix.from_torch(large.to_sparse_csr()) if sparse else large)
    assert infer_groups(spoilt, 6).equal(infer_groups(view, 6))
    assert capfd.readouterr() == ("", "")  # LAPACK prints there


def test_other_nodes_change_neither_groups_nor_spreads_of_training_nodes() -> None:
    view = two_worlds()
    assert isinstance(view.x, Tensor)
    garbage = view.x.clone()
    garbage[250:] = 1e38
    spoilt = replace(view, x=garbage)
    assert infer_groups(view, 4)[:250].equal(infer_groups(spoilt, 4)[:250])


def test_offsets_are_the_same_within_a_group_and_new_in_each_step() -> None:
    view = two_worlds()
    settings = InterventionSettings(interventions="given", intervention_width=5.0)
    interventions = Interventions(settings, view, torch.device("cpu"))
    batch = canet.methods.Batch(view.x, (), view.y)
    first, second = interventions(batch).x, interventions(batch).x
    assert isinstance(first, ShiftedFeatures)
    assert isinstance(second, ShiftedFeatures)
    assert first.offset.shape == (3, 4)
    assert (first.offset[:, [0, 2, 3]] == 0).all()
    assert (first.offset != second.offset)[:, 1].all()
    assert first.member.argmax(dim=1).equal(view.environment)
    drawn = torch.stack([interventions(batch).x.offset[:, 1] for _ in range(2000)])  # type: ignore[union-attr]
    width = 5.0 * float(interventions.group_spread.spread[1])
    assert float(drawn.std()) == pytest.approx(width, rel=0.05)
    assert float((drawn.abs() < width).float().mean()) == pytest.approx(0.683, abs=0.02)  # normal
    assert abs(np.corrcoef(drawn.numpy().T)[np.triu_indices(3, 1)]).max() < 0.1  # independent


@pytest.mark.parametrize("sparse", [False, True])
def test_shifted_features_are_mapped_as_if_they_were_written_out(sparse: bool) -> None:
    torch.manual_seed(0)
    model = canet.nn.CaNet(4, 2, hidden=5).double().eval()
    x, member = torch.rand(7, 4).double(), torch.eye(3).double()[torch.arange(7) % 3]
    member[6] = 0
    offset = torch.rand(3, 4).double()
    features = SparseMatrix.from_torch(x.to_sparse_csr()) if sparse else x
    shifted = ShiftedFeatures(features, offset, member)
    expected = model.project(x + member @ offset, model.phi_in.bias)
    torch.testing.assert_close(model.project(shifted, model.phi_in.bias), expected)


def uneven_task() -> ShiftTask:
    """Training nodes in random order and three environments; columns 2 and 5 shift.

    The last nodes of the batch belong to an environment without training nodes.
    """
    random = torch.Generator().manual_seed(3)
    task = tiny_task(num_classes=2)
    data = data_of(task)
    data.environment = torch.tensor([4, 4, 4, 7, 7, 8])[torch.randperm(60, generator=random) % 6]
    data.environment[35:40] = 6
    data.x[:, 2] += 5 * (data.environment == 7)
    data.x[:, 5] -= 9 * (data.environment == 8)
    train = torch.randperm(30, generator=random)
    valid, test = torch.arange(30, 40).split(5)
    return replace(task, data=data, train=train, valid=valid, test_id=test)


@pytest.mark.parametrize("method", ["erm", "canet"])
@pytest.mark.parametrize("backbone", ["gcn", "sage"])
def test_a_step_adds_the_offset_of_each_group_to_its_features(
    method: str, backbone: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    task = uneven_task()
    offset = torch.zeros(3, 8)
    offset[:, [2, 5]] = torch.tensor([[3.0, -2.0], [7.0, 1.0], [-4.0, 0.5]])
    monkeypatch.setattr(Interventions, "draw", lambda self: torch.where(self.scale > 0, offset, 0))
    by_hand = data_of(task)
    for environment, shift in zip((4, 7, 8), offset, strict=True):
        by_hand.x[by_hand.environment == environment] += shift
    changes = {"hidden": 8, "epochs": 1, "dropout": 0.0}  # offsets are not dropped
    settings = override(get_method(method).settings_type(), changes)
    given = replace(settings, interventions="given")
    with_offsets, expected, without = (
        Trainer(some, method, backbone, how, "cpu").run(0).method.state_dict()
        for some, how in ((task, given), (replace(task, data=by_hand), settings), (task, settings))
    )
    for name, tensor in expected.items():
        torch.testing.assert_close(with_offsets[name], tensor)
    assert not all(with_offsets[name].allclose(without[name]) for name in without)


@pytest.mark.parametrize("method", ["erm", "canet"])
@pytest.mark.parametrize("kind", ["inferred", "given"])
def test_offsets_are_drawn_once_in_a_step_and_never_for_a_score(
    method: str, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    drawn: list[Tensor] = []
    draw = Interventions.draw

    def kept(self: Interventions) -> Tensor:
        drawn.append(draw(self))
        return drawn[-1]

    monkeypatch.setattr(Interventions, "draw", kept)
    changes = {"hidden": 8, "epochs": 5, "interventions": kind, "num_groups": 3}
    settings = override(get_method(method).settings_type(), changes)
    task = uneven_task()
    run = Trainer(task, method, "gcn", settings, "cpu").run(0)
    assert len(drawn) == 5
    own = Graph(task.data.x, task.data.edge_index)
    FittedNetwork(run.method, "gcn").read(PreparedGraph(own), torch.arange(60))
    assert len(drawn) == 5


@pytest.mark.parametrize("method", ["erm", "canet"])
@pytest.mark.parametrize("kind", ["inferred", "given"])
@pytest.mark.parametrize("sparse", [False, True])
def test_garbage_at_test_nodes_changes_no_bit_of_training(
    method: str, kind: str, sparse: bool
) -> None:
    task = tiny_task(inductive=True, sparse=sparse)
    changes = {"hidden": 8, "epochs": 6, "interventions": kind, "num_groups": 2}
    settings = override(get_method(method).settings_type(), changes)
    outside = ~task.in_distribution
    data = data_of(task)
    dense = data.x.to_dense()
    dense[outside] = 1e3
    data.x = dense.to_sparse_csr() if sparse else dense
    data.y = torch.where(outside, 0, data.y)
    data.environment = torch.where(outside, 99, data.environment)
    spoilt = replace(task, data=data)
    first, second = (
        Trainer(t, method, "gcn", settings, "cpu").run(0).method.state_dict()
        for t in (task, spoilt)
    )
    assert all(first[name].equal(second[name]) for name in first)


def test_a_stopped_run_with_interventions_resumes_to_the_same_bits(tmp_path: Path) -> None:
    of = make(name="canet", interventions="inferred", num_groups=2)
    run_until(7, tmp_path, of)
    assert same_run(of.run(0, tmp_path), of.run(0))


def test_given_interventions_need_environments() -> None:
    task = with_columns(tiny_task(), environment=None)
    settings = CaNetSettings(hidden=8, epochs=2, interventions="given")
    with pytest.raises(CanetError, match="interventions=inferred"):
        Trainer(task, "canet", "gcn", settings, "cpu").run(0)


@pytest.mark.parametrize("method", ["erm", "canet"])
def test_a_result_names_the_shifted_columns(method: str) -> None:
    changes = {"hidden": 8, "epochs": 2, "interventions": "given"}
    settings = override(get_method(method).settings_type(), changes)
    task = tiny_task()
    data = data_of(task)
    data.x[:, 5] += 9 * data.environment
    run = Trainer(replace(task, data=data), method, "gcn", settings, "cpu").run(0)
    found = run.result.findings
    assert found.num_columns == data.x.shape[1]
    assert found.shifted_columns[0] == 5
    assert found.share == sorted(found.share, reverse=True)
    assert found.share[-1] >= LARGE_EFFECT
    assert Trainer(task, method, "gcn", None, "cpu", 2).run(0).result.findings is None


@pytest.mark.parametrize(
    "x", [torch.ones(60, 4), torch.randn(60, 1)], ids=["constant", "one column"]
)
def test_features_without_groups_are_rejected(x: Tensor) -> None:
    task = tiny_task()
    task = with_columns(task, x=x)
    settings = CaNetSettings(hidden=8, epochs=2, interventions="inferred", num_groups=3)
    with pytest.raises(CanetError, match="interventions=none"):
        Trainer(task, "canet", "gcn", settings, "cpu").run(0)


@pytest.mark.parametrize(("columns", "words"), [([], "no effect"), ([1, 2, 5], "3 of 8")])
def test_interventions_on_no_or_too_many_columns_give_a_warning(
    columns: list[int], words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    share = torch.zeros(8)
    share[columns] = 0.5
    monkeypatch.setattr(
        "canet.methods.interventions.spread_between", lambda *args: GroupSpread(share, share)
    )
    settings = CaNetSettings(hidden=8, epochs=1, interventions="given")
    with pytest.warns(InputWarning, match=words):
        Trainer(tiny_task(), "canet", "gcn", settings, "cpu").run(0)


def test_too_few_nodes_for_the_groups_are_rejected() -> None:
    settings = CaNetSettings(hidden=8, epochs=2, interventions="inferred", num_groups=50)
    with pytest.raises(CanetError, match="num_groups"):
        Trainer(tiny_task(), "canet", "gcn", settings, "cpu").run(0)


def test_the_spurious_columns_are_found_without_any_environment_label(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("canet.data.benchmarks.synthetic.NUM_USERS", 600)
    for generator in ("shared", "redrawn", "resampled"):
        task = load_task("synthetic", protocol="disjoint", generator=generator)
        settings = CaNetSettings(hidden=8, epochs=1, interventions="inferred")
        method = Trainer(task, "canet", "gcn", settings, "cpu").run(0).method
        is_shifted = method.interventions.group_spread.is_shifted  # type: ignore[union-attr]
        assert is_shifted[-NUM_SPURIOUS:].sum() >= 9, generator
        assert is_shifted[:-NUM_SPURIOUS].float().mean() < 0.1, generator
