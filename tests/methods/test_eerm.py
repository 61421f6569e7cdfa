import math
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from canet.methods import BACKBONES, Batch, TrainingView
from canet.methods.eerm import (
    EERM,
    NUM_CANDIDATES,
    Editors,
    EERMSettings,
    draw_candidates,
    find_entries,
    log_probability,
    training_components,
)
from canet.methods.erm import ERM
from canet.nn import NormalisedGraph
from canet.training.fields import TaskFields
from tests.support.precision import double_precision
from tests.support.small_task import with_columns
from tests.support.tiny import tiny_task

CPU = torch.device("cpu")
EDGES = torch.tensor([[1, 2, 2, 3, 0, 0, 1], [0, 0, 0, 1, 1, 3, 1]])  # 2 → 0 twice, a loop at 1
double = pytest.fixture(autouse=True)(double_precision)


def make(
    backbone: Any = "gcn", inductive: bool = False, sparse: bool = False, **settings: Any
) -> tuple[EERM, Batch]:
    """A prepared method and the training batch of the tiny task, in double precision."""
    chosen = {"hidden": 4, "dropout": 0.0, "edits_per_node": 2, **settings}
    task = tiny_task(inductive=inductive, sparse=sparse)
    task = with_columns(task, x=task.data.x.double())
    method = EERM(EERMSettings(**chosen), backbone, task.num_features, task.num_classes)
    fields = TaskFields(task, method.model.operators, method.model.num_layers, CPU)
    method.prepare(fields.view())
    return method, fields.batch("train")


def editors_of(method: EERM) -> Editors:
    assert method.editors is not None
    return method.editors


def literal_editors(candidates: Tensor) -> Editors:
    """Editors of the literal graph with given candidates $[4, C]$."""
    editors = Editors(EDGES, 4, num_editors=2, edits_per_node=1, device=CPU)
    entries = (EDGES[1] * 4 + EDGES[0]).unique()
    editors.candidates, editors.candidate_entry = candidates, find_entries(entries, candidates)
    return editors


def adam(method: EERM, **options: Any) -> torch.optim.Adam:
    return torch.optim.Adam(method.parameter_groups(), **options)


def flipped(editors: Editors, draw: Tensor) -> Tensor:
    """Edges (source, destination) after the flips $[N, s]$ of one editor."""
    editor, *edges = editors.flip(draw[None])
    assert not editor.any()
    return torch.stack(edges)


def edge_list(edge_index: Tensor) -> list[tuple[int, int]]:
    return sorted((int(u), int(v)) for u, v in edge_index.t())


# The draw and its probability


def slow_probability(weights: list[float], draw: tuple[int, ...]) -> float:
    """Probability of a draw without replacement, one factor at a time."""
    probability, left = 1.0, sum(weights)
    for m in draw:
        probability *= weights[m] / left
        left -= weights[m]
    return probability


def test_log_probability_by_hand() -> None:
    logits = torch.tensor([[1.0, 2.0, 3.0, 4.0]]).log()
    expected = math.log(3 / 10 * 1 / 7)
    assert log_probability(logits, torch.tensor([[2, 0]])).item() == pytest.approx(expected)
    assert log_probability(logits, torch.tensor([[3]])).item() == pytest.approx(math.log(0.4))


def test_draws_come_as_often_as_their_probability_says() -> None:
    editors = Editors(EDGES, 4, num_editors=5000, edits_per_node=2, device=CPU)
    weights = torch.arange(1.0, NUM_CANDIDATES + 1)
    editors.logits = weights.log().expand(5000, 4, -1)
    drawn = editors.draw().view(-1, 2)
    assert (drawn[:, 0] != drawn[:, 1]).all()
    for draw in ((19, 18), (18, 19), (0, 19), (2, 1)):
        often = (drawn == torch.tensor(draw)).all(dim=1).double().mean().item()
        expected = slow_probability(weights.tolist(), draw)
        assert often == pytest.approx(expected, abs=4 * math.sqrt(expected / 20000))


# Edits


def test_flips_remove_existing_edges_and_add_missing_ones() -> None:
    #                                       removes 2 → 0, adds 2 → 1 and 3 → 2; 3 itself
    editors = literal_editors(torch.tensor([[2, 1], [2, 3], [3, 0], [3, 0]]))
    edited = flipped(editors, torch.zeros(4, 1, dtype=torch.long))
    assert edge_list(edited) == [(0, 1), (0, 3), (1, 0), (1, 1), (2, 1), (3, 1), (3, 2)]
    #                                       removes 1 → 0, 3 → 1 and 0 → 3, adds 0 → 2
    edited = flipped(editors, torch.ones(4, 1, dtype=torch.long))
    assert edge_list(edited) == [(0, 1), (0, 2), (1, 1), (2, 0), (2, 0)]


def test_candidates_are_up_to_half_edges_and_no_other_node_twice() -> None:
    random = torch.Generator().manual_seed(3)
    num_nodes = 200
    reader = torch.randint(20, (2000,), generator=random) * 10
    entries = (reader * num_nodes + torch.randint(num_nodes, (2000,), generator=random)).unique()
    candidates = draw_candidates(entries, num_nodes)
    assert candidates.shape == (num_nodes, NUM_CANDIDATES)
    for v in range(num_nodes):
        sources = [u for u in candidates[v].tolist() if u != v]
        neighbours = {int(e) % num_nodes for e in entries if int(e) // num_nodes == v}
        assert len(set(sources)) == len(sources)
        assert len(neighbours & set(sources)) >= min(len(neighbours - {v}), NUM_CANDIDATES // 2) - 1


def test_graph_without_edges_can_be_edited() -> None:
    none = torch.empty(2, 0, dtype=torch.long)
    editors = Editors(none, 30, num_editors=2, edits_per_node=1, device=CPU)
    edited = flipped(editors, editors.draw()[0])
    assert 0 < edited.shape[1] <= 30
    assert (edited[0] != edited[1]).all()


# The edited graph


def test_edited_graph_is_the_components_of_the_training_nodes() -> None:
    edges = torch.tensor([[5, 1, 2, 7, 6], [1, 4, 3, 7, 2]])  # {5, 1, 4}, {2, 3, 6}, {7}, {0}
    view = TrainingView(
        x=torch.zeros(8, 1),
        edge_index=edges,
        observed=torch.arange(8),
        train=torch.tensor([4, 0]),
        y=torch.tensor([0, 1]),
        read=lambda nodes: pytest.fail("nothing to read"),
        field=lambda: pytest.fail("nothing to read"),
    )
    nodes, local, component = training_components(view)
    assert nodes.tolist() == [4, 0, 1, 5]
    assert (component == component[:, None]).int().tolist() == [
        [1, 0, 1, 1],
        [0, 1, 0, 0],
        [1, 0, 1, 1],
        [1, 0, 1, 1],
    ]
    assert edge_list(local) == [(2, 0), (3, 2)]


@pytest.mark.parametrize("backbone", BACKBONES)
@pytest.mark.parametrize("direction", ["along", "against"])
@pytest.mark.parametrize("sparse", [False, True], ids=["dense", "sparse"])
@pytest.mark.parametrize(("num_layers", "far"), [(1, False), (3, False), (2, True)])
def test_without_edits_the_risk_is_that_of_erm(
    backbone: str, direction: str, sparse: bool, num_layers: int, far: bool
) -> None:
    method, batch = make(backbone, sparse=sparse, direction=direction, num_layers=num_layers)
    method.uses_field = far
    editors = editors_of(method)
    editors.candidates = torch.arange(editors.candidates.shape[0])[:, None].expand(
        -1, NUM_CANDIDATES
    )
    editors.candidate_entry = torch.full_like(editors.candidates, editors.num_entries)
    risks = method.risks(batch.y, editors.draw())
    erm = ERM.loss(method, batch)  # type: ignore[arg-type]
    torch.testing.assert_close(risks, erm.expand(3), rtol=1e-12, atol=0)
    torch.testing.assert_close(method.objective(risks), erm, rtol=1e-12, atol=0)


@pytest.mark.parametrize("backbone", BACKBONES)
@pytest.mark.parametrize("direction", ["along", "against"])
@pytest.mark.parametrize("far", [False, True], ids=["near", "far"])
def test_risks_are_those_of_a_model_on_each_edited_graph(
    backbone: str, direction: str, far: bool
) -> None:
    method, batch = make(backbone, direction=direction)
    method.uses_field = far
    editors, draw = editors_of(method), editors_of(method).draw()
    view = TaskFields(tiny_task(), method.model.operators, 2, CPU).view()
    nodes, _, component = training_components(view)
    x = view.x[nodes].double()  # type: ignore[index]
    risks = method.risks(batch.y, draw)
    assert len(set(risks.tolist())) == (3 if method.model.operators else 1)
    for k in range(3):
        edges = flipped(editors, draw[k])
        edges = edges if direction == "along" else edges.flip(0)
        whole = NormalisedGraph(edges, x.shape[0], method.model.operators, component).whole(2)
        logits = method.model(x, whole.blocks).logits[: batch.y.numel()]
        torch.testing.assert_close(risks[k], F.cross_entropy(logits, batch.y))


@pytest.mark.parametrize("direction", ["along", "against"])
def test_edits_change_what_a_node_reads(direction: str) -> None:
    method, _ = make(direction=direction)
    edges = tiny_task().data.edge_index
    source, reader = edges if direction == "along" else edges.flip(0)
    editors = editors_of(method)
    nodes, *_ = training_components(TaskFields(tiny_task(), method.model.operators, 2, CPU).view())
    there = editors.candidate_entry < editors.num_entries
    pairs = {(int(u), int(v)) for u, v in zip(source, reader, strict=True)}
    for v, slot in there.nonzero().tolist():
        assert (int(nodes[editors.candidates[v, slot]]), int(nodes[v])) in pairs
    for v, slot in (~there).nonzero().tolist():
        u = int(editors.candidates[v, slot])
        assert u == v or (int(nodes[u]), int(nodes[v])) not in pairs


# Steps of model and editors


def test_objective_is_the_variance_plus_beta_times_the_mean() -> None:
    method, _ = make(beta=0.5)
    risks = torch.tensor([1.0, 2.0, 6.0])
    variance = ((1 - 3) ** 2 + (2 - 3) ** 2 + (6 - 3) ** 2) / 2
    assert method.objective(risks).item() == pytest.approx(variance + 0.5 * 3)


def frozen_draw(method: EERM, monkeypatch: pytest.MonkeyPatch) -> Tensor:
    draw = editors_of(method).draw()
    monkeypatch.setattr(editors_of(method), "draw", lambda: draw)
    return draw


@pytest.mark.parametrize("backbone", ["gcn", "gat"])
def test_update_is_one_step_of_each_player_along_its_own_gradient(
    backbone: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    method, batch = make(backbone, beta=2.0, learning_rate=0.1, editor_learning_rate=7.0)
    draw, editors = frozen_draw(method, monkeypatch), editors_of(method)
    risks = method.risks(batch.y, draw)
    model = list(method.parameters())
    variance = risks.var()
    downhill = torch.autograd.grad(variance + 2 * risks.mean(), model)
    (uphill,) = torch.autograd.grad(log_probability(editors.logits, draw), [editors.logits])
    before = [p.detach().clone() for p in model]
    logits = editors.logits.detach().clone()
    loss = method.update(batch, torch.optim.SGD(method.parameter_groups()))
    assert loss.item() == pytest.approx((variance + 2 * risks.mean()).item())
    assert not loss.requires_grad
    torch.testing.assert_close(editors.logits.detach(), logits + 7.0 * variance * uphill)
    for parameter, then, gradient in zip(model, before, downhill, strict=True):
        torch.testing.assert_close(parameter.detach(), then - 0.1 * gradient)


def test_steps_of_editors_and_model_do_not_change_the_other() -> None:
    method, batch = make(inner_steps=3)
    editors, optimizer = editors_of(method), adam(method, weight_decay=0.1)
    steps: list[set[str]] = []
    step = optimizer.step

    def watched() -> None:
        model = [p.detach().clone() for p in method.parameters()]
        logits = editors.logits.detach().clone()
        step()
        changed = set()
        if any(not p.equal(then) for p, then in zip(method.parameters(), model, strict=True)):
            changed.add("model")
        if not editors.logits.equal(logits):
            changed.add("editors")
        steps.append(changed)

    optimizer.step = watched  # type: ignore[assignment, method-assign]
    method.update(batch, optimizer)
    method.update(batch, optimizer)
    assert steps == 2 * [{"editors"}, {"editors"}, {"editors"}, {"model"}]


@pytest.mark.slow
def test_editors_learn_to_make_risks_differ() -> None:
    method, batch = make(edits_per_node=1, editor_learning_rate=0.05, inner_steps=1)
    editors, optimizer = editors_of(method), adam(method)
    optimizer.param_groups[0]["lr"] = 0.0
    for parameter in method.parameters():
        torch.nn.init.normal_(parameter.detach())

    def expected_variance() -> float:
        with torch.no_grad():
            return sum(method.risks(batch.y, editors.draw()).var().item() for _ in range(200)) / 200

    before = expected_variance()
    for _ in range(400):
        method.update(batch, optimizer)
    assert expected_variance() > 1.5 * before


# State


def test_editors_learn_at_their_own_rate_without_decay_and_stay_out_of_the_weights() -> None:
    method, _ = make(learning_rate=0.02, editor_learning_rate=0.3)
    optimizer = adam(method, weight_decay=0.1)
    model, editors = optimizer.param_groups
    assert (model["lr"], model["weight_decay"]) == (0.02, 0.1)
    assert (editors["lr"], editors["weight_decay"]) == (0.3, 0.0)
    assert editors["params"][0] is editors_of(method).logits
    fresh = EERM(method.settings, "gcn", 8, 3)
    assert fresh.state_dict().keys() == method.state_dict().keys()
    assert fresh.training_state() == {}
    assert method.training_state()["editors.logits"] is editors_of(method).logits


@pytest.mark.parametrize(("train", "far"), [([1, 2], True), (list(range(9)), False)])
def test_receptive_field_is_cut_if_it_has_less_than_half_of_the_nodes(
    train: list[int], far: bool
) -> None:
    chain = torch.stack([torch.arange(9), torch.arange(1, 10)])
    nodes = torch.tensor(train)
    method = EERM(EERMSettings(num_layers=2), "gcn", 3, 2)
    x, graph = torch.rand(10, 3), NormalisedGraph(chain, 10, method.model.operators)
    view = TrainingView(
        x=x,
        edge_index=chain,
        observed=nodes,
        train=nodes,
        y=torch.zeros_like(nodes),
        read=lambda nodes: (x, graph.receptive_field(nodes, 2).blocks),
        field=lambda: pytest.fail("nothing to read"),
    )
    method.prepare(view)
    assert method.uses_field == far
