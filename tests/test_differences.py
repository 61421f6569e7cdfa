"""Checks of all known differences between this package, the paper and its published code.

The table of differences is in docs/reference/paper-to-code.md. Each row has one check here, with
the name of the row, which tests the last column: what this package does. Most checks use a model of
width one, whose hidden states are its features, so expected numbers can be computed by hand.
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
import typer
from torch import Tensor

from canet import cli
from canet.data import load_task
from canet.data.benchmarks.spurious import BaseGraph, spurious_task
from canet.data.task import ShiftTask
from canet.defaults import task_settings
from canet.methods import Batch, InterventionSettings, Settings, get_method
from canet.methods.canet import CaNetMethod, CaNetSettings
from canet.nn import GAT, CaNet, EnvironmentEstimator, Graph
from canet.nn import environment as environment_module
from canet.paper import french_labels
from canet.paper.published import published
from canet.paper.scope import Scope, TaskSpec
from canet.report.comparison import compare
from canet.report.results import find_results
from canet.store.summary import OOD_MEAN, ood_mean
from canet.training import Trainer
from tests.support.finished import make_config, write_run
from tests.support.networks import predict

TABLE = Path(__file__).parents[1] / "docs" / "reference" / "paper-to-code.md"
HEADING = "## Where do paper, published implementation and this code differ?"
LOG3 = math.log(3)  # logits (log 3, 0) give 3/4 and 1/4

CHECKS: dict[str, Callable[..., None]] = {}


def check(point: str) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Register the check of a row; the parameters of the check are fixtures."""

    def register(function: Callable[..., None]) -> Callable[..., None]:
        assert point not in CHECKS, point
        CHECKS[point] = function
        return function

    return register


def rows() -> list[list[str]]:
    """The cells of the table; the first row is the header."""
    _, _, section = TABLE.read_text(encoding="utf-8").partition(f"{HEADING}\n")
    section, _, _ = section.partition("\n## ")
    lines = [line for line in section.splitlines() if line.startswith("|")]
    cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]
    return [cells[0], *cells[2:]]


@pytest.fixture(autouse=True)
def random_state() -> None:
    torch.manual_seed(0)


def test_rows_of_the_table_and_checks_have_the_same_names() -> None:
    head, *differences = rows()
    assert head == ["point", "paper", "published", "here"]
    assert all(len(cells) == 4 and cells[3] for cells in differences)
    assert sorted(cells[0] for cells in differences) == sorted(CHECKS)


# A model to compute by hand -----------------------------------------------------------------------


def column(*values: float) -> Tensor:
    """One feature per node."""
    return torch.tensor(values, dtype=torch.get_default_dtype())[:, None]


def edges(*pairs: tuple[int, int]) -> Tensor:
    """Edges $[2, E]$ from pairs of source and target."""
    return torch.tensor(pairs, dtype=torch.long).reshape(-1, 2).T


def assign(parameter: Tensor, values: Any) -> None:
    """Set the values of a parameter; its shape stays the same."""
    with torch.no_grad():
        parameter.copy_(torch.tensor(values, dtype=parameter.dtype).reshape(parameter.shape))


def narrow(model: CaNet) -> CaNet:
    """Make $\\phi_{in}$ the identity, so that z = x if x is not negative (width one)."""
    assign(model.phi_in.weight, 1.0)
    assign(model.phi_in.bias, 0.0)
    return model


def make(**options: Any) -> CaNet:
    """A model of width one with one layer, in prediction mode."""
    return narrow(CaNet(1, 2, hidden=1, num_layers=1, **options)).eval()


def embedding(model: CaNet, z: Tensor, edge_index: Tensor) -> list[float]:
    """The hidden state of each node after the last layer."""
    return predict(model, z, edge_index, len(z)).embedding.flatten().tolist()


def posteriors(model: CaNet, z: Tensor, edge_index: Tensor) -> Tensor:
    """$\\pi$ $[N, K]$ of the first layer."""
    return predict(model, z, edge_index, len(z)).environments[0].log_posterior.exp()


# The model ----------------------------------------------------------------------------------------


@check("Gumbel-Softmax")
def noise_is_added_to_the_logarithm_of_the_posterior(monkeypatch: pytest.MonkeyPatch) -> None:
    """Draws x are exponential and g = −log x, so e ∝ (π / x)^(1/τ)."""
    estimator = EnvironmentEstimator(hidden=1, num_environments=2, tau=1.0)
    assign(estimator.linear.weight, [0, 0])
    assign(estimator.linear.bias, [math.log(6), math.log(2)])  # π = (3/4, 1/4)
    # Gumbel-max trick: the largest entry of a sample is k with probability π_k.
    first = estimator(torch.ones(20_000, 1)).sample.argmax(dim=1) == 0
    assert first.double().mean().item() == pytest.approx(0.75, abs=0.01)

    estimator.tau = 2.0
    draws = torch.tensor([[3.0, 1 / 4]])
    monkeypatch.setattr(environment_module, "draw", lambda like: draws.clone())
    environment = estimator(torch.ones(1, 1))
    torch.testing.assert_close(environment.log_posterior.exp(), torch.tensor([[3 / 4, 1 / 4]]))
    # π / x = (1/4, 1) has the square roots 1/2 and 1. The published ratio, 6/3 to 2/(1/4), is 1:4.
    torch.testing.assert_close(environment.sample, torch.tensor([[1 / 3, 2 / 3]]))


@check("regulariser's mean")
def regulariser_is_averaged_over_training_nodes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nodes 0 and 1 are training nodes; node 2 is a neighbour in the first layer."""
    monkeypatch.setattr(environment_module, "draw", torch.ones_like)  # no noise: e = π
    settings = CaNetSettings(hidden=1, num_environments=2, estimator="node", dropout=0.0)
    losses = {}
    for weight in (0.0, 1.0):
        method = CaNetMethod(replace(settings, reg_weight=weight), "gcn", 1, 2)
        narrow(method.model)
        assign(method.model.phi_out.weight, [0, 0])
        assign(method.model.phi_out.bias, [0, 0])
        for branches, estimator in zip(method.model.branches, method.model.estimators, strict=True):
            assign(branches.weight, [[0, 0], [0, 0]])  # only the residual link: z does not change
            assign(estimator.linear.weight, [1, 0])
            assign(estimator.linear.bias, [0, 0])
        graph = Graph(edges((2, 0), (3, 2)), 4, method.model.operators)
        field = graph.receptive_field(torch.tensor([0, 1]), num_layers=2)
        for other in (2.0, 0.0):
            x = column(LOG3, 0, other, 0)[field.nodes]
            inferred = method.model(x, field.blocks).environments
            assert [len(environment.sample) for environment in inferred] == [3, 2]
            losses[weight, other] = method.loss(Batch(x, field.blocks, torch.tensor([0, 1]))).item()
    # π is (3/4, 1/4) at node 0 and uniform at node 1, in both layers.
    expected = (3 / 4 * math.log(3 / 2) + 1 / 4 * math.log(1 / 2) + 0) / 2
    assert losses[0.0, 2.0] == pytest.approx(math.log(2))
    assert losses[1.0, 2.0] - losses[0.0, 2.0] == pytest.approx(expected, rel=1e-5)
    assert losses[1.0, 0.0] == pytest.approx(losses[1.0, 2.0])


@check("order in a layer")
def estimator_branches_and_residual_link_read_the_same_dropped_states(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Each node has only a self-loop. A fake dropout doubles z = (1, 2) in the layer."""
    weights = {"gcn": [[-1.5, 0], [1, 1]], "gat": [-1.5, 2]}
    for backbone, weight in weights.items():
        model = make(backbone=backbone, num_environments=2)
        assign(model.branches[0].weight, weight)  # branches map z to -1.5 z and 2 z
        assign(model.estimators[0].linear.weight, [LOG3 / 2, 0])
        assign(model.estimators[0].linear.bias, [0, 0])
        dropped: list[list[float]] = []

        def drop(z: Tensor, dropped: list[list[float]] = dropped) -> Tensor:
            dropped.append(z.flatten().tolist())
            return 2 * z if len(dropped) == 2 else z

        monkeypatch.setattr(model, "drop", drop)
        found = embedding(model, column(1, 2), edges((0, 0), (1, 1)))
        # z = 2 has π = (3/4, 1/4) and 3/4 · -3 + 1/4 · 4 + 2 = 3/4;
        # z = 4 has π = (9/10, 1/10) and 9/10 · -6 + 1/10 · 8 + 4 < 0, which ReLU sets to 0.
        assert found == pytest.approx([3 / 4, 0])
        assert dropped == [[1, 2], [1, 2], found]  # features, z of the layer, final embedding


@check("GCN branch")
def gcn_branch_has_one_weight_for_neighbours_and_node_and_no_self_loops() -> None:
    """Node 0 has four incoming edges, node 1 has one, the others have none."""
    model = make(num_environments=1, learned_environment=False)
    assert [tuple(p.shape) for p in model.branches[0].parameters()] == [(1, 2, 1)]
    assign(model.branches[0].weight, [10, 1])  # W_D above W_S
    graph = edges((1, 0), (2, 0), (3, 0), (4, 0), (0, 1))
    # Edges between 0 and 1 have weight 1 / √(4 · 1), edges from nodes of in-degree 0 weight 0.
    node0, node1 = 10 * 2 / 2 + 1 + 1, 10 * 1 / 2 + 2 + 2
    assert embedding(model, column(1, 2, 4, 8, 16), graph) == [node0, node1, 4 + 4, 8 + 8, 16 + 16]


@check("plain sum")
def citing_papers_sum_the_states_of_the_papers_they_cite(small_root: Path) -> None:
    """Paper 2 cites 0 and 1."""
    citing, cited = load_task("arxiv", small_root).data.edge_index
    assert (citing > cited).all()  # in these files a paper cites earlier ones

    def read(settings: Settings) -> list[float]:
        narrower = replace(settings, hidden=1, num_layers=1, num_environments=1)
        model = narrow(CaNetMethod(narrower, "gcn", 1, 2).model).eval()
        assign(model.branches[0].weight, [10, 0])
        return embedding(model, column(1, 2, 4), edges((2, 0), (2, 1)))

    for task in ("arxiv", "elliptic"):
        published = task_settings(task, "canet", "gcn")
        assert read(published) == [1, 2, 10 * (1 + 2) + 4]
        assert read(replace(published, direction="along")) == [10 * 4 + 1, 10 * 4 + 2, 4]
        # With normalisation, one end of each edge has degree 0, so all weights are 0.
        assert read(replace(published, propagation="symmetric")) == [1, 2, 4]
    for task in ("cora", "citeseer", "pubmed", "twitch"):
        assert read(task_settings(task, "canet", "gcn")) == [1, 2, 4]


@check("GAT branch")
def gat_branch_attends_to_neighbours_and_the_node_itself_with_one_weight() -> None:
    """Node 0 attends to node 1 and itself, node 1 only to itself; z = (1, 3)."""
    model = make(backbone="gat", num_environments=1, learned_environment=False)
    shapes = {name: tuple(p.shape) for name, p in model.branches[0].named_parameters()}
    assert shapes == {"weight": (1, 1, 1), "attention_dst": (1, 1), "attention_src": (1, 1)}
    assign(model.branches[0].attention_dst, 5)
    assign(model.branches[0].attention_src, LOG3 / 4)
    # Scores differ by log(3)/4 · W · (3 - 1): W = 2 gives weights 3/4 and 1/4, W = 4 gives 9/10 and
    # 1/10. The residual link adds z.
    expected = {2: [2 * (3 / 4 * 3 + 1 / 4) + 1, 2 * 3 + 3], 4: [4 * (2.7 + 0.1) + 1, 4 * 3 + 3]}
    for weight, states in expected.items():
        assign(model.branches[0].weight, weight)
        assert embedding(model, column(1, 3), edges((1, 0))) == pytest.approx(states)


@check("slope of LeakyReLU")
def slope_is_a_hundredth_in_canet_and_a_fifth_in_a_plain_gat() -> None:
    """Node 0 attends to z = (1, 3) with scores -s z; the slope times their difference is log 3."""
    canet = make(backbone="gat", num_environments=1, learned_environment=False)
    assign(canet.branches[0].weight, 1)
    assign(canet.branches[0].attention_dst, 0)
    assign(canet.branches[0].attention_src, -LOG3 / (2 * 0.01))
    attended = 1 / 4 * 3 + 3 / 4 * 1
    states = embedding(canet, column(1, 3), edges((1, 0)))
    assert states == pytest.approx([attended + 1, 3 + 3], rel=1e-5)

    plain = GAT(1, 2, hidden=1, num_layers=1).eval()
    assign(plain.phi_in.weight, 1)
    assign(plain.attention[0], [0, -LOG3 / (2 * 0.2)])
    states = predict(plain, column(1, 3), edges((1, 0)), 2).embedding.flatten().tolist()
    assert states == pytest.approx([attended, 3])


@check("softmax of attention")
def attention_weights_are_exact_for_very_different_scores() -> None:
    """Nodes 0 and 1 have scores of about 100,000, nodes 2 and 3 of about 10,000."""
    model = make(backbone="gat", num_environments=1, learned_environment=False).double()
    assign(model.branches[0].weight, 1)
    assign(model.branches[0].attention_dst, 10_000)
    assign(model.branches[0].attention_src, LOG3)  # a neighbour with z + 1 has weight 3/4
    z = column(10, 11, 1, 2).double()
    graph = Graph(edges((1, 0), (3, 2)), 4, model.operators).whole(1).to("cpu", torch.double)
    states = model(z, graph.blocks).embedding.flatten().tolist()
    expected = [10 / 4 + 33 / 4 + 10, 11 + 11, 1 / 4 + 6 / 4 + 1, 2 + 2]
    assert states == pytest.approx(expected, rel=1e-10)  # detects an epsilon of 1e-8 in a sum


@check("estimator")
def node_estimator_has_a_bias_and_graph_estimator_a_symmetric_convolution() -> None:
    """The edge from node 1 to node 0 has weight 1 / √(4 · 1); node 2 has no neighbours."""
    graph, z = edges((1, 0), (2, 0), (3, 0), (4, 0), (0, 1)), column(1, 2, 1, 5, 5)
    model = make(estimator="node", num_environments=2)
    assign(model.estimators[0].linear.weight, [LOG3, 0])
    assign(model.estimators[0].linear.bias, [LOG3, 0])
    once, twice = torch.tensor([3 / 4, 1 / 4]), torch.tensor([9 / 10, 1 / 10])
    for pi in posteriors(model, z, graph)[[0, 2]]:
        torch.testing.assert_close(pi, twice)  # log 3 · z + log 3

    for backbone, propagation, direction in (
        ("gcn", "symmetric", "along"),
        ("gcn", "sum", "against"),
        ("gat", "symmetric", "against"),
    ):
        options = {"backbone": backbone, "propagation": propagation, "direction": direction}
        model = make(estimator="graph", num_environments=2, **options)
        assert model.estimators[0].linear.bias is None
        assign(model.estimators[0].linear.weight, [[LOG3, LOG3], [0, 0]])  # W_N next to W_S
        found = posteriors(model, z, graph)
        torch.testing.assert_close(found[0], twice)  # log 3 · 2/2 + log 3 · z
        torch.testing.assert_close(found[2], once)  # log 3 · z


@check("prediction")
def predictions_mix_branches_by_the_posterior_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    """π = (3/4, 1/4) at any temperature; branches map z = 1 to 4 and -8."""
    model = make(backbone="gat", num_environments=2, tau=0.1)
    assign(model.branches[0].weight, [4, -8])
    assign(model.estimators[0].linear.weight, [LOG3, 0])
    assign(model.estimators[0].linear.bias, [0, 0])
    draws = torch.tensor([[1e6, 1e-6]])
    monkeypatch.setattr(environment_module, "draw", lambda like: draws.clone())
    found = predict(model, column(1), edges(), 1)
    assert found.embedding.item() == pytest.approx(3 / 4 * 4 + 1 / 4 * -8 + 1)
    torch.testing.assert_close(found.environments[0].sample, torch.tensor([[3 / 4, 1 / 4]]))
    assert embedding(model.train(), column(1), edges()) == [0]  # training uses the sample: -8 + 1


@check("two classes")
def twitch_and_elliptic_use_the_binary_loss_on_both_columns() -> None:
    """Logits (0, log 3) have sigmoids 1/2 and 3/4, and softmax 1/4 and 3/4."""
    logits, y = torch.tensor([[0, LOG3], [0, LOG3]]), torch.tensor([0, 1])
    binary = [(math.log(2) + math.log(4)) / 2, (math.log(2) + math.log(4 / 3)) / 2]
    together = [math.log(4), math.log(4 / 3)]
    for task in ("twitch", "elliptic", "cora", "citeseer", "pubmed", "arxiv"):
        expected = binary if task in ("twitch", "elliptic") else together
        for backbone in ("gcn", "gat"):
            settings = task_settings(task, "canet", backbone)
            losses = CaNetMethod(settings, backbone, 1, 2).node_losses(logits, y)
            assert losses.tolist() == pytest.approx(expected)
    other = replace(task_settings("twitch", "canet", "gcn"), loss="cross_entropy")
    losses = CaNetMethod(other, "gcn", 1, 2).node_losses(logits, y)
    assert losses.tolist() == pytest.approx(together)


def assert_uniform(parameters: list[Tensor], bound: float) -> None:
    """Assert that the values are uniform in ±bound."""
    values = torch.cat([parameter.detach().flatten() for parameter in parameters]).double()
    assert len(values) > 5000
    assert values.abs().max() <= bound * (1 + 1e-6)
    for end in (values.max(), -values.min()):
        assert end > 0.99 * bound
    assert values.mean().item() == pytest.approx(0, abs=0.04 * bound)
    assert values.std().item() == pytest.approx(bound / math.sqrt(3), rel=0.03)


@check("branch weights at the start")
def branch_weights_start_uniform_by_the_width() -> None:
    for backbone in ("gcn", "gat"):
        model = CaNet(1, 2, hidden=16, num_layers=6, num_environments=4, backbone=backbone)
        assert_uniform([branches.weight for branches in model.branches], bound=1 / 4)


@check("attention vectors at the start")
def attention_vectors_start_uniform_by_width_and_branches() -> None:
    """√2 · √(6 / (2 · 44 + 8)) = √(1/8)."""
    model = CaNet(1, 2, hidden=44, num_layers=16, num_environments=8, backbone="gat")
    for name in ("attention_dst", "attention_src"):
        vectors = [getattr(branches, name) for branches in model.branches]
        assert_uniform(vectors, bound=math.sqrt(1 / 8))


# The tasks ----------------------------------------------------------------------------------------

RING = 40


def ring(protocol: str = "paper", data_seed: int = 0) -> ShiftTask:
    """Six domains of a ring of 40 nodes; base features are one-hot."""
    nodes = torch.arange(RING)
    around = torch.stack([nodes, (nodes + 1) % RING])
    graph = BaseGraph(torch.eye(RING).to_sparse_csr(), around, nodes % 4)
    return spurious_task("ring", graph, data_seed, protocol)


def options_of(command: str) -> set[str]:
    """The options of a `canet` command."""
    group = typer.main.get_command(cli.app)
    return {name for parameter in group.commands[command].params for name in parameter.opts}


@check("spurious features")
def scored_nodes_have_training_copies_unless_the_protocol_is_disjoint() -> None:
    """The copy of node v in the next domain is node v + 40."""
    for protocol in ("paper", "disjoint"):
        task = ring(protocol)
        source, target = task.data.edge_index
        assert source.equal(torch.arange(6 * RING))
        assert (source // RING).equal(target // RING)  # copies are disjoint
        assert task.data.x.to_dense()[:, :RING].equal(torch.eye(RING).repeat(6, 1))
        tested = [task.test_id, *task.test_ood.values()]
        domains = [set((nodes // RING).tolist()) for nodes in tested]
        assert domains == [{0, 1, 2}, {3}, {4}, {5}]
        seen = set((task.train % RING).tolist())
        known = [len(set((nodes % RING).tolist()) & seen) for nodes in tested]
        sizes = [len(nodes) for nodes in (task.train, task.valid, *tested)]
        if protocol == "paper":
            assert sizes == [60, 30, 30, 40, 40, 40]
            assert known[1:] == [len(seen)] * 3
            assert known[0] > 0
            assert len(seen) > 20  # copies of a node are in different splits
        else:
            assert sizes == [60, 30, 30, 10, 10, 10]
            assert known == [0, 0, 0, 0]


@check("Elliptic's OOD sets")
def steps_11_to_42_are_eight_ood_sets_and_later_steps_are_left_out(small_root: Path) -> None:
    """Each step has nine transactions, six of them labelled."""
    task = load_task("elliptic", small_root)
    steps = {
        name: sorted(set((nodes // 9 + 1).tolist()))
        for name, nodes in (*task.test_ood.items(), *task.left_out.items())
    }
    assert list(steps.values()) == [
        *([first, first + 1, first + 2, first + 3] for first in (11, 15, 19, 23, 27, 31, 35, 39)),
        *([6, 7, 8, 9, 10], [43, 44, 45, 46, 47, 48, 49]),
    ]
    assert [len(nodes) for nodes in task.test_ood.values()] == [24] * 8
    trainer = Trainer(task, "erm", settings=InterventionSettings(hidden=2), device="cpu")
    method = get_method("erm")(trainer.settings, "gcn", task.num_features, 2)
    scores = trainer.scores(method)
    left_out = {name for name in scores if name.startswith("left_out/")}
    assert left_out == {"left_out/steps 6-10", "left_out/steps 43-49"}
    constant = {name: 0.1 if name in left_out else 0.7 for name in scores}
    assert ood_mean(constant) == pytest.approx(0.7)


def arxiv_year(nodes: Tensor) -> Tensor:
    """The year of each paper in the small files."""
    return 2004 + nodes % 17


@check("Arxiv's split")
def papers_before_2014_are_in_distribution_and_inductive_training_uses_no_later_ones(
    small_root: Path,
) -> None:
    """The first feature of paper i is i, which identifies the papers in the training batch."""
    last_year_read = {}
    for inductive in (False, True):
        task = load_task("arxiv", small_root, inductive=inductive)
        inside = torch.cat([task.train, task.valid, task.test_id]).sort().values
        assert inside.equal((arxiv_year(torch.arange(170)) < 2014).nonzero().flatten())
        assert (arxiv_year(torch.cat(list(task.test_ood.values()))) >= 2014).all()
        trainer = Trainer(
            task, "erm", settings=InterventionSettings(hidden=2, num_layers=2), device="cpu"
        )
        read = trainer.fields.batch("train").x[:, 0].long()
        last_year_read[inductive] = arxiv_year(read).max().item()
    assert last_year_read == {False: 2020, True: 2013}
    assert "--inductive" in options_of("train")


@check("Arxiv's environments")
def training_papers_have_three_periods(small_root: Path) -> None:
    task = load_task("arxiv", small_root)
    trainer = Trainer(task, "irm", settings=None, device="cpu")
    environment = trainer.fields.batch("train").environment
    assert environment is not None
    found: dict[int, set[int]] = {0: set(), 1: set(), 2: set()}
    for year, label in zip(arxiv_year(task.train).tolist(), environment.tolist(), strict=True):
        found[label].add(year)
    assert found == {0: {2004, 2005, 2006, 2007, 2008, 2009}, 1: {2010, 2011}, 2: {2012, 2013}}


@check("Twitch's features")
def rows_of_3170_features_sum_to_one_unless_they_are_multi_hot(small_root: Path) -> None:
    """User u has games u (listed twice) and 3169; user 0 has none."""
    for features, value in ((None, 0.5), ("multi-hot", 1.0)):
        x = load_task("twitch", small_root, features=features).data.x.to_dense()
        expected = torch.zeros(20, 3170)
        for user in range(1, 20):
            expected[user, [user, 3169]] = value
        assert x.equal(expected.repeat(6, 1))
    assert "--features" in options_of("train")


@check("Twitch's labels")
def labels_are_assigned_by_new_id_and_the_published_score_is_compared_with_shifted_labels(
    small_root: Path,
) -> None:
    """Even users are mature. FR's rows contain users 19 to 0, then users 3 and 18 again."""
    task = load_task("twitch", small_root)
    assert task.data.y.tolist() == [1, 0] * 60
    users = french_labels.shift_labels(torch.arange(1022)).tolist()
    assert users == [*range(1019), 1018, 1019, 1020]  # user 1018 is twice in the published file

    config = make_config("twitch", "erm", "gcn")
    assert published(config, "ood/FR") is None
    compared = published(config, french_labels.SHIFTED)
    assert compared is not None
    assert compared.text == "52.62 ± 0.01"
    scores = {"ood/ES": 0.6, "ood/FR": 0.62, french_labels.SHIFTED: 0.1}
    assert ood_mean(scores) == pytest.approx(0.61)  # not part of the mean


@check("five runs")
def data_seed_and_run_seed_are_separate_and_have_separate_spreads(tmp_path: Path) -> None:
    """One step with a tiny learning rate does not change the initial weights."""
    settings = InterventionSettings(hidden=4, epochs=1, learning_rate=1e-6, dropout=0.0)
    weights: dict[tuple[int, int], Tensor] = {}
    drawn = {data_seed: ring(data_seed=data_seed) for data_seed in (0, 1)}
    assert not drawn[0].train.equal(drawn[1].train)
    for data_seed, seed in ((0, 0), (0, 1), (1, 0)):
        run = Trainer(drawn[data_seed], "erm", settings=settings, device="cpu").run(seed)
        assert (run.config.data_seed, run.config.seed) == (data_seed, seed)
        weights[data_seed, seed] = run.method.model.phi_in.weight.detach()
    torch.testing.assert_close(weights[1, 0], weights[0, 0])
    assert (weights[0, 1] - weights[0, 0]).abs().max() > 0.1

    cora = TaskSpec("cora", "original", "cora")
    assert Scope().repeats(cora) == [(0, 0), (1, 0), (2, 0), (3, 0), (4, 0)]
    assert Scope().repeats_on_first_draw(cora) == [(0, 0), (0, 1), (0, 2), (0, 3), (0, 4)]
    for (data_seed, seed), score in {(0, 0): 0.5, (0, 1): 0.54, (1, 0): 0.6}.items():
        config = make_config(data_seed=data_seed, seed=seed)
        write_run(tmp_path, config, {"ood/only": score, "test_id": 0.9})
    ((contender,),) = (comparison.contenders for comparison in compare(find_results(tmp_path)[0]))
    assert sorted(contender.score(OOD_MEAN).values) == [0.5, 0.6]
    assert contender.score_over_runs(OOD_MEAN).values == [0.5, 0.54]


# The checks as tests ------------------------------------------------------------------------------


@pytest.mark.parametrize("point", CHECKS)
def test_the_package_does_what_the_row_says(point: str, request: pytest.FixtureRequest) -> None:
    fixtures = inspect.signature(CHECKS[point]).parameters
    CHECKS[point](**{name: request.getfixturevalue(name) for name in fixtures})
