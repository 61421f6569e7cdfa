from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from canet.methods import BACKBONES, Batch, TrainingView
from canet.methods.mixup import Mixup, MixupSettings
from canet.nn import GAT, GCN, NormalisedGraph
from canet.nn.backbones import ResidualModel
from canet.nn.backbones.decoupled import Decoupled
from canet.nn.backbones.transformer import TransformerBranches
from canet.nn.operations import multiply
from canet.util.sparse import components
from tests.support.precision import double_precision

N, D, C = 9, 5, 3
# 3 → 3 is a self-loop, 4 → 2 occurs twice, 0 and 2 have edges both ways, 7 and 8 are isolated.
EDGES = torch.tensor([[0, 1, 2, 3, 3, 4, 4, 5, 2, 6, 6], [1, 2, 3, 3, 4, 2, 2, 0, 0, 2, 5]])
TRAIN = torch.tensor([4, 0, 2, 8, 3])
Y = torch.tensor([1, 0, 2, 1, 0])
PARTNER = torch.tensor([2, 3, 1, 0, 4])

every_backbone = pytest.mark.parametrize("backbone", BACKBONES)
every_depth = pytest.mark.parametrize("num_layers", [1, 2, 3])
double = pytest.fixture(autouse=True)(double_precision)


def make(backbone: Any, num_layers: int = 2) -> tuple[Mixup, Batch, Tensor]:
    """A prepared method without dropout, its batch, and all features."""
    settings = MixupSettings(hidden=4, num_layers=num_layers, dropout=0.0)
    method = Mixup(settings, backbone, D, C)
    for name, parameter in method.named_parameters():
        if name.endswith("bias"):
            torch.nn.init.normal_(parameter)
    x, graph = torch.randn(N, D), NormalisedGraph(EDGES, N, method.model.operators)

    def read(nodes: Tensor) -> Any:
        field = graph.receptive_field(nodes, num_layers)
        return x[field.nodes], field.blocks

    method.prepare(TrainingView(x, EDGES, torch.arange(N), TRAIN, Y, read, lambda: TRAIN))
    return method, Batch(*read(TRAIN), Y), x


def readers(node: int) -> list[int]:
    """Neighbours of a node without itself, once per edge."""
    return [s for s, t in EDGES.T.tolist() if t == node and s != node]


def convolve(model: GCN, layer: int, node: int, own: Tensor, z: Tensor) -> Tensor:
    """A layer of GCN or GAT at a node with state `own`; the states of its neighbours are in z."""
    maps = [model.phi_in, *model.between, model.phi_out]
    weight = maps[layer].weight
    states = [own] + [z[v] for v in readers(node)]
    if isinstance(model, GAT):
        to_dst, to_src = model.attention[layer]
        scores = [to_dst @ (weight @ own) + to_src @ (weight @ state) for state in states]
        shares = F.leaky_relu(torch.stack(scores), 0.2).softmax(dim=0)
    else:
        degree = [1 + len(readers(v)) for v in [node, *readers(node)]]
        shares = torch.tensor([(degree[0] * d) ** -0.5 for d in degree])
    total = sum(share * state for share, state in zip(shares, states, strict=True))
    state = weight @ total + maps[layer].bias
    if model.num_layers == 1:
        return model.phi_out(state)
    return state.relu() if layer < model.num_layers - 1 else state


def residual(model: ResidualModel, layer: int, node: int, own: Tensor, z: Tensor) -> Tensor:
    """The same for a model with residual connections, with attention over the original graph."""
    states = z.clone()
    states[node] = own
    branches = model.layers[layer]
    block = NormalisedGraph(EDGES, N, model.operators).block
    if not isinstance(branches, TransformerBranches):
        return branches.plain(states, block)[node]
    matrix = multiply(block.matrices[branches.gather_operator], torch.eye(N))
    members = components(EDGES, N) == components(EDGES, N)[node]
    whole, size = own, int(members.sum())
    if size > 1:
        scores = F.normalize(branches.key(z[members])) @ F.normalize(branches.query(own), dim=0)
        whole = (size * own + scores @ z[members]) / (size + scores.sum())
    read = torch.cat([(matrix[node] @ states + whole) / 2, own])
    return (read @ branches.weight[0] + own).relu()


def decoupled_loss(method: Mixup, x: Tensor, partner: Tensor, ratio: float) -> Tensor:
    """The same for a decoupled model: propagation, then an MLP on the mean of the hops."""
    model = method.model
    assert isinstance(model, Decoupled)
    matrix = multiply(
        NormalisedGraph(EDGES, N, model.operators).block.matrices[model.operator], torch.eye(N)
    )
    plain = [x @ model.phi_in.weight.T]
    for _ in range(model.num_layers):
        plain.append(matrix @ plain[-1])
    total = torch.tensor(0.0)
    for i, j in enumerate(partner.tolist()):
        ends = (int(TRAIN[i]), int(TRAIN[j]))
        state = ratio * plain[0][ends[0]] + (1 - ratio) * plain[0][ends[1]]
        mean = state
        for hop in plain[:-1]:
            read = [matrix[u] @ hop + matrix[u, u] * (state - hop[u]) for u in ends]
            state = ratio * read[0] + (1 - ratio) * read[1]
            mean = mean + state
        z = (mean / len(plain) + model.phi_in.bias).relu()
        z = (model.inner(z) + z).relu()
        log_probability = model.phi_out(z).log_softmax(dim=0)
        total = total - ratio * log_probability[Y[i]] - (1 - ratio) * log_probability[Y[j]]
    return total / len(Y)


def slow_loss(method: Mixup, x: Tensor, partner: Tensor, ratio: float) -> Tensor:
    """The paper's two stages, node by node: the plain states, then every pair with them."""
    model, depth = method.model, method.model.num_layers
    if isinstance(model, Decoupled):
        return decoupled_loss(method, x, partner, ratio)
    with_links = isinstance(model, ResidualModel)
    step: Any = residual if with_links else convolve
    plain = [model.phi_in(x).relu() if with_links else x]
    for layer in range(depth - 1):
        rows = [step(model, layer, u, plain[-1][u], plain[-1]) for u in range(N)]
        plain.append(torch.stack(rows))
    total = torch.tensor(0.0)
    for i, j in enumerate(partner.tolist()):
        ends = (int(TRAIN[i]), int(TRAIN[j]))
        mixed = ratio * x[ends[0]] + (1 - ratio) * x[ends[1]]
        if with_links:
            mixed = model.phi_in(mixed).relu()
        for layer in range(depth):
            both = [step(model, layer, u, mixed, plain[layer]) for u in ends]
            mixed = ratio * both[0] + (1 - ratio) * both[1]
        log_probability = (model.phi_out(mixed) if with_links else mixed).log_softmax(dim=0)
        total = total - ratio * log_probability[Y[i]] - (1 - ratio) * log_probability[Y[j]]
    return total / len(Y)


@every_depth
@every_backbone
def test_loss_and_gradients_are_those_of_the_papers_sum_over_pairs(
    backbone: str, num_layers: int
) -> None:
    method, batch, x = make(backbone, num_layers)
    ours = method.mixed_loss(batch, PARTNER, 0.3)
    theirs = slow_loss(method, x, PARTNER, 0.3)
    torch.testing.assert_close(ours, theirs)
    parameters = list(method.parameters())
    for got, wanted in zip(
        torch.autograd.grad(ours, parameters), torch.autograd.grad(theirs, parameters), strict=True
    ):
        torch.testing.assert_close(got, wanted)


@every_backbone
def test_prediction_is_the_plain_models(backbone: str) -> None:
    method, batch, _ = make(backbone)
    assert method.predict(batch).equal(method.model(batch.x, batch.blocks).logits)


def test_ratio_and_partners_are_drawn_in_each_step(monkeypatch: pytest.MonkeyPatch) -> None:
    method, batch, _ = make("gcn")
    drawn: list[tuple[Tensor, float]] = []
    monkeypatch.setattr(method, "mixed_loss", lambda _, *pair: drawn.append(pair))
    for _ in range(2000):
        method.loss(batch)
    ratios = torch.tensor([ratio for _, ratio in drawn])
    partners = torch.stack([partner for partner, _ in drawn])
    assert partners.sort(dim=1).values.equal(torch.arange(len(Y)).expand_as(partners))
    assert len(partners.unique(dim=0)) == 120
    assert ratios.mean().item() == pytest.approx(0.5, abs=0.02)
    assert ratios.var().item() == pytest.approx(1 / 36, rel=0.1)  # Beta(4, 4)
