"""CaNet and its loss compared with the paper's equations, written with dense N x N matrices.

The oracle shares weights with the model, but no code. It uses dense adjacency matrices that count
repeated edges, plain torch operations and autograd. It always computes the whole graph.
"""

import math
from collections.abc import Callable, Mapping
from copy import deepcopy
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import torch
from torch import Tensor

from canet.data import load_task
from canet.defaults import task_settings
from canet.methods import Batch
from canet.methods.canet import CaNetMethod, CaNetSettings
from canet.models import Trainer
from canet.nn import CaNet, NormalisedGraph, Prediction
from canet.nn import environment as environment_module
from canet.nn.blocks import ReceptiveField
from tests.support.networks import (
    EDGES,
    HIDDEN,
    NUM_CLASSES,
    NUM_FEATURES,
    NUM_NODES,
    predict,
    with_biases,
)

SLOPE = 0.01  # negative slope of LeakyReLU
TAU = 0.7
REG_WEIGHT = 0.6


class Example(NamedTuple):
    """A graph, its training nodes in random order, and the weights of its edges."""

    edges: Tensor
    num_nodes: int
    some: Tensor
    weight: Tensor | None = None


def random_example(num_nodes: int = 24, connected: int = 21, num_edges: int = 40) -> Example:
    """Random edges between the first nodes; the others are isolated.

    Some edges are repeated, and two nodes have self-loops.
    """
    edges = torch.randint(connected, (2, num_edges), generator=torch.Generator().manual_seed(1))
    edges = torch.cat([edges, edges[:, :3], edges[:, :1], torch.tensor([[4, 11], [4, 11]])], dim=1)
    return Example(edges, num_nodes, torch.tensor([17, 4, 22, 0, 9]))


def weighted_example() -> Example:
    """The random graph with weights from 0 to 3; two edges have weight 0."""
    example = random_example()
    generator = torch.Generator().manual_seed(2)
    weight = 3 * torch.rand(example.edges.shape[1], generator=generator, dtype=torch.double)
    weight[:2] = 0
    return example._replace(weight=weight)


EXAMPLES = {
    "written": Example(EDGES, NUM_NODES, torch.tensor([7, 3, 8])),
    "random": random_example(),
    "weighted": weighted_example(),
}


@dataclass(frozen=True)
class Variant:
    """Options of a CaNet."""

    backbone: str = "gcn"
    propagation: str = "symmetric"
    estimator: str = "node"
    direction: str = "along"
    num_environments: int = 3
    num_layers: int = 2
    shared_environment: bool = False
    learned_environment: bool = True
    loss: str = "cross_entropy"
    norm: str = "none"

    def __str__(self) -> str:
        kind = self.propagation if self.backbone == "gcn" else "attention"
        sizes = f"K{self.num_environments}-L{self.num_layers}"
        return f"{kind}-{self.estimator}-{self.direction}-{sizes}"


VARIANTS = [
    Variant(backbone, propagation, estimator, direction, num_environments, num_layers)
    for backbone, propagation in (("gcn", "symmetric"), ("gcn", "sum"), ("gat", "symmetric"))
    for estimator in ("node", "graph")
    for direction in ("along", "against")
    for num_environments, num_layers in ((1, 2), (3, 1), (3, 3))
]
BRANCHES = [
    Variant(backbone, propagation, estimator, num_layers=3)
    for backbone, propagation in (("gcn", "symmetric"), ("gcn", "sum"), ("gat", "symmetric"))
    for estimator in ("node", "graph")
]
variants = pytest.mark.parametrize("variant", VARIANTS, ids=str)
branches = pytest.mark.parametrize("variant", BRANCHES, ids=str)
passes = pytest.mark.parametrize(
    ("training", "some"),
    [(True, False), (False, False), (True, True)],
    ids=["training", "predicting", "training on some nodes"],
)


# The oracle ---------------------------------------------------------------------------------------


class Dense(NamedTuple):
    """Logits $[N, C]$, and each layer's posterior and mixture, both $[N, K]$."""

    logits: Tensor
    posteriors: list[Tensor]
    mixtures: list[Tensor]


def adjacency(example: Example, direction: str) -> Tensor:
    """$A_{uv}$: number of edges from v to u, or the sum of their weights."""
    matrix = torch.zeros(example.num_nodes, example.num_nodes)
    weights = torch.ones(example.edges.shape[1]) if example.weight is None else example.weight
    for (source, target), weight in zip(example.edges.T.tolist(), weights.tolist(), strict=True):
        if direction == "along":
            matrix[target, source] += weight
        else:
            matrix[source, target] += weight
    return matrix


def normalised(matrix: Tensor) -> Tensor:
    """$A_{uv} / \\sqrt{d_u d_v}$, with $d$ the row sums; 0 if one of them is 0."""
    degree = matrix.sum(dim=1)
    product = degree[:, None] * degree[None, :]
    return torch.where(product > 0, matrix / product.clamp(min=1e-30).sqrt(), 0.0)


def with_loops(matrix: Tensor) -> Tensor:
    """Replace self-loops by exactly one per node."""
    return matrix - matrix.diag().diag() + torch.eye(len(matrix))


def attention(counts: Tensor, mapped: Tensor, b_u: Tensor, b_v: Tensor) -> Tensor:
    """$w_{uv}$ $[N, N]$: a softmax over v, with one term per edge."""
    scores = (mapped @ b_u)[:, None] + (mapped @ b_v)[None, :]
    powers = counts * torch.where(scores > 0, scores, SLOPE * scores).exp()
    return powers / powers.sum(dim=1, keepdim=True)


def published_attention(counts: Tensor, mapped: Tensor, b_u: Tensor, b_v: Tensor) -> Tensor:
    """The same in the published code: one maximum of all scores, and 1e-8 added to each sum."""
    scores = (mapped @ b_u)[:, None] + (mapped @ b_v)[None, :]
    scores = torch.where(scores > 0, scores, SLOPE * scores)
    powers = counts * (scores - scores[counts > 0].max()).exp()
    return powers / (powers.sum(dim=1, keepdim=True) + 1e-8)


def softmax(logits: Tensor) -> Tensor:
    powers = logits.exp()
    return powers / powers.sum(dim=1, keepdim=True)


def dense_forward(
    weights: Mapping[str, Tensor],
    example: Example,
    x: Tensor,
    variant: Variant,
    exponentials: list[Tensor] | None,
    drop: Callable[[Tensor], Tensor] = lambda z: z,
    attend: Callable[..., Tensor] = attention,
) -> Dense:
    """The model on the whole graph.

    `exponentials` $[N, K]$ per layer are the -log u of the Gumbel noise -log(-log u); None stands
    for prediction, where the mixture is the posterior.
    """
    read = adjacency(example, variant.direction)
    propagation = read if variant.propagation == "sum" else normalised(read)
    convolution = variant.backbone == "gcn"
    shares = convolution and variant.propagation == "symmetric"
    estimated = propagation if shares else normalised(adjacency(example, "along"))
    z = (drop(x) @ weights["phi_in.weight"].T + weights["phi_in.bias"]).clamp(min=0)
    width, uniform = (
        z.shape[1],
        torch.full((len(x), variant.num_environments), 1 / variant.num_environments),
    )
    posteriors: list[Tensor] = []
    mixtures: list[Tensor] = []
    for layer in range(variant.num_layers):
        z, posterior, mixture = drop(z), uniform, uniform
        if variant.learned_environment and variant.shared_environment and layer > 0:
            posterior, mixture = posteriors[0], mixtures[0]
        elif variant.learned_environment:
            weight = weights[f"estimators.{layer}.linear.weight"]
            if variant.estimator == "graph":
                logits = (estimated @ z) @ weight[:, :width].T + z @ weight[:, width:].T
            else:
                logits = z @ weight.T + weights[f"estimators.{layer}.linear.bias"]
            posterior = mixture = softmax(logits)
            if exponentials is not None:
                mixture = softmax((posterior.log() - exponentials[layer].log()) / TAU)
        total = z
        for k in range(variant.num_environments):
            weight = weights[f"branches.{layer}.weight"][k]
            if convolution:
                branch = propagation @ z @ weight[:width] + z @ weight[width:]
            else:
                mapped = z @ weight
                b_u = weights[f"branches.{layer}.attention_dst"][k]
                b_v = weights[f"branches.{layer}.attention_src"][k]
                branch = attend(with_loops(read), mapped, b_u, b_v) @ mapped
            total = total + mixture[:, k : k + 1] * branch
        z = total.clamp(min=0)
        if f"norms.{layer}.weight" in weights:
            spread = ((z - z.mean(1, keepdim=True)) ** 2).mean(1, keepdim=True) + 1e-5
            normed = (z - z.mean(1, keepdim=True)) / spread.sqrt()
            z = normed * weights[f"norms.{layer}.weight"] + weights[f"norms.{layer}.bias"]
        posteriors.append(posterior)
        mixtures.append(mixture)
    z = drop(z)
    return Dense(z @ weights["phi_out.weight"].T + weights["phi_out.bias"], posteriors, mixtures)


def dense_loss(dense: Dense, nodes: Tensor, y: Tensor, loss: str) -> Tensor:
    """The supervised loss of the training nodes, and their environments' divergence from uniform.

    A layer that uses the environment of another layer counts, too.
    """
    target = torch.eye(NUM_CLASSES)[y]
    logits = dense.logits[nodes]
    if loss == "cross_entropy":
        supervised = -(target * softmax(logits).log()).sum(dim=1)
    else:
        odds = 1 / (1 + (-logits).exp())
        supervised = -(target * odds.log() + (1 - target) * (1 - odds).log()).mean(dim=1)
    divergence = torch.zeros(len(nodes))
    for posterior, mixture in zip(dense.posteriors, dense.mixtures, strict=True):
        pi, e = posterior[nodes], mixture[nodes]
        divergence = divergence + (e * (pi.log() + math.log(pi.shape[1]))).sum(dim=1)
    return (supervised + REG_WEIGHT / len(dense.mixtures) * divergence).mean()


# Model and oracle side by side --------------------------------------------------------------------


def make(variant: Variant) -> CaNetMethod:
    settings: dict[str, Any] = asdict(variant)
    backbone = settings.pop("backbone")
    settings |= {"hidden": HIDDEN, "dropout": 0.0, "tau": TAU, "reg_weight": REG_WEIGHT}
    method = CaNetMethod(CaNetSettings(**settings), backbone, NUM_FEATURES, NUM_CLASSES)
    if variant.norm == "layer":
        with_biases(method.model)
    return method


def assert_equal(ours: Tensor, theirs: Tensor) -> None:
    torch.testing.assert_close(ours, theirs, rtol=1e-10, atol=1e-12)


def assert_same_environments(
    variant: Variant, prediction: Prediction, dense: Dense, nodes: Tensor
) -> None:
    """Check posteriors and mixtures of the layers that have an estimator."""
    inferred = len(prediction.environments)
    own_layers = 1 if variant.shared_environment else variant.num_layers
    assert inferred == (own_layers if variant.learned_environment else 0)
    for layer, environment in enumerate(prediction.environments):
        own = environment.first(len(nodes))
        assert_equal(own.log_posterior.exp(), dense.posteriors[layer][nodes])
        assert_equal(own.sample, dense.mixtures[layer][nodes])


def assert_same(
    variant: Variant,
    example: Example,
    training: bool,
    monkeypatch: pytest.MonkeyPatch,
    of_some_nodes: bool = False,
) -> None:
    """Check logits, environments, loss, and gradients of all parameters.

    The model trains on all nodes of the graph, or on some nodes with their receptive field. The
    oracle always computes the whole graph.
    """
    method = make(variant).train(training)
    graph = NormalisedGraph(
        example.edges, example.num_nodes, method.model.operators, edge_weight=example.weight
    )
    field: ReceptiveField = graph.whole(variant.num_layers)
    nodes = field.nodes
    if of_some_nodes:
        nodes = example.some
        field = graph.receptive_field(nodes, variant.num_layers)
    x = torch.randn(example.num_nodes, NUM_FEATURES)
    y = torch.randint(NUM_CLASSES, (len(nodes),))
    batch = Batch(x[field.nodes], field.blocks, y)

    shape = (variant.num_layers, example.num_nodes, variant.num_environments)
    exponentials = list(torch.empty(shape).exponential_())
    calls: list[int] = []

    def replay(like: Tensor) -> Tensor:
        """Return the random numbers of the next layer, for its nodes."""
        layer = len(calls) % max(1, len(method.model.estimators))
        calls.append(layer)
        return exponentials[layer][field.nodes[: len(like)]]

    monkeypatch.setattr(environment_module, "draw", replay)
    prediction = method.model(batch.x, batch.blocks)
    loss = method.loss(batch)
    # The forward pass above and the one in the loss drew once per estimator.
    assert len(calls) == (2 * len(method.model.estimators) if training else 0)

    weights = dict(method.model.named_parameters())
    dense = dense_forward(weights, example, x, variant, exponentials if training else None)
    wanted = dense_loss(dense, nodes, y, variant.loss)
    assert_equal(prediction.logits, dense.logits[nodes])
    assert_same_environments(variant, prediction, dense, nodes)
    assert_equal(loss, wanted)
    ours, theirs = (torch.autograd.grad(value, list(weights.values())) for value in (loss, wanted))
    several = variant.num_environments > 1
    many = several and not of_some_nodes and example is not EXAMPLES["written"]
    for name, mine, other in zip(weights, ours, theirs, strict=True):
        assert_equal(mine, other)
        # A single environment has probability one, so its estimator has no gradient. If all scores
        # of a destination have the same sign, softmax cancels their common shift; with many
        # destinations, some have scores of both signs.
        idle = ("attention" in name and not many) or ("estimators" in name and not several)
        assert idle or other.abs().max() > 1e-6, name


@pytest.mark.parametrize("example", [EXAMPLES["written"], EXAMPLES["weighted"]], ids=str)
@variants
@passes
def test_model_and_gradients_are_those_of_the_dense_equations(
    variant: Variant, example: Example, training: bool, some: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert_same(variant, example, training, monkeypatch, some)


@passes
@pytest.mark.parametrize(
    "change",
    [
        {"shared_environment": True},
        {"learned_environment": False},
        {"loss": "binary_cross_entropy"},
        {"norm": "layer", "num_layers": 2, "estimator": "graph"},
    ],
)
@branches
def test_other_options_follow_the_dense_equations(
    variant: Variant,
    change: dict[str, Any],
    training: bool,
    some: bool,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert_same(replace(variant, **change), EXAMPLES["random"], training, monkeypatch, some)


@pytest.mark.parametrize("backbone", ["gcn", "gat"])
def test_dropout_comes_first_in_every_layer_and_before_both_linear_maps(
    backbone: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    variant, example = Variant(backbone, estimator="graph"), EXAMPLES["random"]
    model = make(variant).model.eval()
    x = torch.randn(example.num_nodes, NUM_FEATURES)
    widths = [NUM_FEATURES, HIDDEN, HIDDEN, HIDDEN]
    masks = [torch.randint(2, (example.num_nodes, width)) * 2.0 for width in widths]
    ours, theirs = iter(masks), iter(masks)
    monkeypatch.setattr(model, "drop", lambda z: z * next(ours))
    logits = predict(model, x, example.edges, example.num_nodes).logits
    weights = dict(model.named_parameters())
    dense = dense_forward(weights, example, x, variant, None, lambda z: z * next(theirs))
    assert_equal(logits, dense.logits)
    assert next(ours, None) is None


def published(model: CaNet, example: Example, x: Tensor, variant: Variant) -> Tensor:
    """Logits with the attention of the published code."""
    weights = dict(model.named_parameters())
    return dense_forward(
        weights, example, x, variant, None, attend=published_attention
    ).logits.detach()


@pytest.mark.parametrize(("factor", "is_same"), [(5, True), (100, False)])
def test_published_attention_differs_only_for_scores_far_below_the_largest_of_the_graph(
    factor: int, is_same: bool
) -> None:
    variant, example = Variant("gat", estimator="graph", direction="against"), EXAMPLES["written"]
    model, x = make(variant).model.eval(), torch.randn(NUM_NODES, NUM_FEATURES)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            parameter.mul_(factor if "attention" in name else 1)
    difference = predict(model, x).logits - published(model, example, x, variant)
    assert (difference.abs().max() < 1e-6) == is_same


@pytest.mark.slow
def test_cora_is_predicted_as_with_the_published_attention(data_root: Path) -> None:
    torch.set_default_dtype(torch.float32)
    task = load_task("cora", data_root)
    settings = replace(task_settings("cora", "canet", "gat"), epochs=20)
    single = Trainer(task, "canet", "gat", settings, device="cpu").run().method.model.eval()
    one = task.data.subgraph((task.data.environment == 0).nonzero().squeeze(1))
    x, edges = one.x.to_dense(), one.edge_index
    rounded = predict(single, x, edges, one.num_nodes).logits
    torch.set_default_dtype(torch.float64)
    model, x = deepcopy(single).double(), x.double()
    logits = predict(model, x, edges, one.num_nodes).logits
    example, variant = Example(edges, one.num_nodes, edges[0]), Variant("gat", estimator="graph")
    theirs = published(model, example, x, variant)
    assert logits.argmax(dim=1).equal(theirs.argmax(dim=1))
    bound = 1e-5 * float(logits.detach().abs().max())
    for ours in (logits, rounded.double()):
        torch.testing.assert_close(ours, theirs, rtol=0, atol=bound)
