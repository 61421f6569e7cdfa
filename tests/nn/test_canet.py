from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F
from torch_geometric.nn import GATConv, GraphConv

from canet.errors import InputError
from canet.nn import CaNet, Graph, Operator, Prediction
from canet.nn import environment as environment_module
from canet.nn.backbones.gat import NEGATIVE_SLOPE
from tests.support.networks import (
    EDGES,
    HIDDEN,
    NUM_CLASSES,
    NUM_FEATURES,
    NUM_NODES,
    apply,
    predict,
    slow_norm,
    with_biases,
)

K = 3


def make(num_layers: int = 2, num_environments: int = K, **options: object) -> CaNet:
    return CaNet(
        NUM_FEATURES,
        NUM_CLASSES,
        hidden=HIDDEN,
        num_layers=num_layers,
        num_environments=num_environments,
        **options,  # type: ignore[arg-type]
    )


def features() -> Tensor:
    return torch.randn(NUM_NODES, NUM_FEATURES)


# The equations, one node, neighbour and branch at a time ----------------------------------------


def neighbours_of(u: int, direction: str) -> list[int]:
    """Neighbours of u, once per edge."""
    edges = EDGES.T.tolist()
    if direction == "against":
        return [target for source, target in edges if source == u]
    return [source for source, target in edges if target == u]


def convolved(z: list[Tensor], u: int, propagation: str, direction: str) -> Tensor:
    """The sum over neighbours v of z_v, or of z_v / sqrt(d_u d_v)."""
    total = torch.zeros(HIDDEN)
    for v in neighbours_of(u, direction):
        weight = 1.0
        if propagation == "symmetric":
            degrees = len(neighbours_of(u, direction)) * len(neighbours_of(v, direction))
            weight = 1 / math.sqrt(degrees) if degrees else 0.0
        total = total + weight * z[v]
    return total


def attended(model: CaNet, layer: int, z: list[Tensor], u: int, k: int, direction: str) -> Tensor:
    """Attention of branch k at node u over its neighbours and itself."""
    branches = model.branches[layer]
    weight = branches.weight[k]
    vector = torch.cat([branches.attention_dst[k], branches.attention_src[k]])
    read = [v for v in neighbours_of(u, direction) if v != u] + [u]
    exponents = []
    for v in read:
        score = vector @ torch.cat([z[u] @ weight, z[v] @ weight])
        exponents.append(torch.exp(score if score > 0 else NEGATIVE_SLOPE * score))
    total = torch.zeros(HIDDEN)
    for v, exponent in zip(read, exponents, strict=True):
        total = total + exponent / sum(exponents) * (z[v] @ weight)
    return total


def slow_forward(
    model: CaNet,
    x: Tensor,
    *,
    backbone: str = "gcn",
    estimator: str = "node",
    propagation: str = "symmetric",
    direction: str = "along",
    tau: float = 1.0,
    noise: list[Tensor] | None = None,
    drop: Callable[[Tensor], Tensor] = lambda z: z,
) -> tuple[Tensor, list[Tensor], list[Tensor]]:
    """Logits, and per layer the posteriors and the mixing weights."""
    num_environments = model.num_environments
    shared = backbone == "gcn" and propagation == "symmetric"
    estimator_direction = direction if shared else "along"
    dropped = drop(x)
    z = [(model.phi_in.weight @ dropped[u] + model.phi_in.bias).clamp(min=0) for u in range(len(x))]
    posteriors, mixtures = [], []
    for layer in range(model.num_layers):
        z = list(drop(torch.stack(z)))
        posterior, mixture, updated = [], [], []
        for u in range(len(x)):
            linear = model.estimators[layer].linear
            if estimator == "node":
                logits = linear.weight @ z[u] + linear.bias
            else:
                read = convolved(z, u, "symmetric", estimator_direction)
                logits = linear.weight[:, :HIDDEN] @ read + linear.weight[:, HIDDEN:] @ z[u]
            pi = logits.exp() / logits.exp().sum()
            e = pi
            if noise is not None:
                powers = ((pi.log() + noise[layer][u]) / tau).exp()
                e = powers / powers.sum()
            total = z[u]
            for k in range(num_environments):
                if backbone == "gcn":
                    weight = model.branches[layer].weight[k]
                    branch = convolved(z, u, propagation, direction) @ weight[:HIDDEN]
                    branch = branch + z[u] @ weight[HIDDEN:]
                else:
                    branch = attended(model, layer, z, u, k, direction)
                total = total + e[k] * branch
            posterior.append(pi)
            mixture.append(e)
            updated.append(total.clamp(min=0))
        z = slow_norm(updated, model.norms[layer]) if model.norms else updated
        posteriors.append(torch.stack(posterior))
        mixtures.append(torch.stack(mixture))
    z = list(drop(torch.stack(z)))
    logits = torch.stack([model.phi_out.weight @ z[u] + model.phi_out.bias for u in range(len(x))])
    return logits, posteriors, mixtures


VARIANTS = [
    {"backbone": backbone, "estimator": estimator, "propagation": propagation, "direction": way}
    for backbone, propagation in (("gcn", "symmetric"), ("gcn", "sum"), ("gat", "symmetric"))
    for estimator in ("node", "graph")
    for way in ("along", "against")
]
variants = pytest.mark.parametrize("variant", VARIANTS, ids=lambda v: "-".join(v.values()))


def assert_same(
    model: CaNet, ours: Prediction, theirs: tuple[Tensor, list[Tensor], list[Tensor]]
) -> None:
    """Equal logits, posteriors and mixtures, and equal gradients of a random sum of them all."""
    logits, posteriors, mixtures = theirs
    torch.testing.assert_close(ours.logits, logits)
    got, wanted = [ours.logits], [logits]
    for environment, posterior, mixture in zip(
        ours.environments, posteriors, mixtures, strict=True
    ):
        torch.testing.assert_close(environment.log_posterior.exp(), posterior)
        torch.testing.assert_close(environment.sample, mixture)
        got += [environment.log_posterior, environment.sample, environment.total_expected_log()]
        wanted += [posterior.log(), mixture, (mixture * posterior.log()).sum()]
    parameters = dict(model.named_parameters())
    weights = [torch.randn_like(output) for output in got]
    gradients = [
        torch.autograd.grad(
            sum((output * weight).sum() for output, weight in zip(outputs, weights, strict=True)),
            list(parameters.values()),
        )
        for outputs in (got, wanted)
    ]
    for name, mine, other in zip(parameters, *gradients, strict=True):
        assert (other != 0).any(), name
        torch.testing.assert_close(mine, other)


@variants
def test_training_pass_and_gradients_follow_the_equations(
    variant: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    model, x = make(tau=0.7, **variant), features()
    noise = [torch.randn(NUM_NODES, K) for _ in range(2)]
    drawn = iter(noise)
    monkeypatch.setattr(environment_module, "draw", lambda like: next(drawn).neg().exp())
    assert_same(model, predict(model, x), slow_forward(model, x, tau=0.7, noise=noise, **variant))


@variants
def test_prediction_follows_the_equations_with_the_posterior_as_mixture(
    variant: dict[str, str],
) -> None:
    model, x = make(tau=0.1, dropout=0.9, **variant).eval(), features()
    assert_same(model, predict(model, x), slow_forward(model, x, **variant))


@pytest.mark.parametrize("backbone", ["gcn", "gat"])
def test_norm_is_that_of_the_hidden_state_after_each_layer(backbone: str) -> None:
    model, x = with_biases(make(backbone=backbone, norm="layer")).eval(), features()
    assert_same(model, predict(model, x), slow_forward(model, x, backbone=backbone))


@pytest.mark.parametrize("backbone", ["gcn", "gat"])
def test_dropout_comes_first_in_every_layer_and_before_both_linear_maps(
    backbone: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    model, x = make(backbone=backbone, estimator="graph", dropout=0.5).eval(), features()
    widths = [NUM_FEATURES, HIDDEN, HIDDEN, HIDDEN]
    masks = [torch.randint(2, (NUM_NODES, width)) * 2.0 for width in widths]
    first, second = iter(masks), iter(masks)
    monkeypatch.setattr(model, "drop", lambda z: z * next(first))
    theirs = slow_forward(
        model, x, backbone=backbone, estimator="graph", drop=lambda z: z * next(second)
    )
    assert_same(model, predict(model, x), theirs)
    assert next(first, None) is None


@pytest.mark.parametrize(
    ("backbone", "names"),
    [
        ("gcn", ["branches.0.weight", "estimators.0.linear.weight", "phi_in.bias"]),
        ("gat", ["branches.1.weight", "branches.0.attention_dst", "branches.0.attention_src"]),
    ],
)
def test_gradients_pass_gradcheck(backbone: str, names: list[str]) -> None:
    model = make(backbone=backbone, estimator="graph", num_environments=2).eval()
    x, blocks = features(), Graph(EDGES, NUM_NODES, model.operators).whole(2).blocks

    def logits(*values: Tensor) -> Tensor:
        parameters = dict(zip(names, values, strict=True))
        return torch.func.functional_call(model, parameters, (x, blocks)).logits

    assert torch.autograd.gradcheck(
        logits, tuple(model.get_parameter(name).detach().requires_grad_() for name in names)
    )


# One branch ---------------------------------------------------------------------------------------


def test_one_environment_is_a_plain_convolution_with_a_residual_link() -> None:
    model, x = make(num_environments=1, learned_environment=False), features()
    degree = torch.bincount(EDGES[1], minlength=NUM_NODES).double()
    product = degree[EDGES[0]] * degree[EDGES[1]]
    edge_weight = torch.where(product > 0, product.rsqrt(), 0.0)
    z = F.relu(model.phi_in(x))
    for branches in model.branches:
        conv = GraphConv(HIDDEN, HIDDEN, bias=False)
        with torch.no_grad():
            conv.lin_rel.weight.copy_(branches.weight[0, :HIDDEN].T)
            conv.lin_root.weight.copy_(branches.weight[0, HIDDEN:].T)
        z = F.relu(conv(z, EDGES, edge_weight) + z)
    torch.testing.assert_close(predict(model, x).logits, model.phi_out(z))


def test_one_environment_is_a_plain_attention_network_with_a_residual_link() -> None:
    model = make(num_environments=1, learned_environment=False, backbone="gat")
    x = features()
    z = F.relu(model.phi_in(x))
    for branches in model.branches:
        conv = GATConv(HIDDEN, HIDDEN, heads=1, bias=False, negative_slope=NEGATIVE_SLOPE)
        with torch.no_grad():
            conv.lin.weight.copy_(branches.weight[0].T)
            conv.att_dst.copy_(branches.attention_dst[None])
            conv.att_src.copy_(branches.attention_src[None])
        z = F.relu(conv(z, EDGES) + z)
    torch.testing.assert_close(predict(model, x).logits, model.phi_out(z))


@pytest.mark.parametrize("backbone", ["gcn", "gat"])
def test_one_learned_environment_is_the_same_as_none(backbone: str) -> None:
    learned = make(num_environments=1, backbone=backbone)
    plain = make(num_environments=1, backbone=backbone, learned_environment=False)
    plain.load_state_dict(learned.state_dict(), strict=False)
    x = features()
    torch.testing.assert_close(predict(learned, x).logits, predict(plain, x).logits)


@pytest.mark.parametrize("backbone", ["gcn", "gat"])
def test_equal_branches_are_one_branch(backbone: str) -> None:
    several = make(backbone=backbone)
    single = make(backbone=backbone, num_environments=1, learned_environment=False)
    with torch.no_grad():
        for branches in several.branches:
            for parameter in branches.parameters():
                parameter.copy_(parameter[:1].expand_as(parameter).clone())
    first = {
        name: value[:1] if name.startswith("branches") else value
        for name, value in several.state_dict().items()
        if not name.startswith("estimators")
    }
    single.load_state_dict(first)
    x = features()
    torch.testing.assert_close(predict(several, x).logits, predict(single, x).logits)


# Ablations ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("backbone", ["gcn", "gat"])
def test_shared_environment_has_one_estimator_and_one_mixture_for_all_layers(
    backbone: str,
) -> None:
    model = make(num_layers=3, backbone=backbone, estimator="graph", shared_environment=True)
    mixtures = []
    for branches in model.branches:
        branches.register_forward_pre_hook(lambda _, inputs: mixtures.append(inputs[-1]))
    prediction = predict(model, features())
    assert len(model.estimators) == 1
    (environment,) = prediction.environments
    assert len(mixtures) == 3
    assert all(mixture.equal(environment.sample) for mixture in mixtures)


def test_without_sharing_every_layer_has_its_own_environment() -> None:
    model = make(num_layers=3)
    prediction = predict(model, features())
    assert len(model.estimators) == len(prediction.environments) == 3
    first, second, _ = prediction.environments
    assert not first.sample.allclose(second.sample)


@pytest.mark.parametrize("backbone", ["gcn", "gat"])
def test_without_a_learned_environment_the_branches_are_averaged(backbone: str) -> None:
    model = make(num_layers=1, backbone=backbone, learned_environment=False)
    x = features()
    prediction = predict(model, x)
    assert len(model.estimators) == 0
    assert prediction.environments == ()
    z = F.relu(model.phi_in(x))
    e = torch.full((NUM_NODES, K), 1 / K)
    torch.testing.assert_close(prediction.embedding, apply(model.branches[0], z, e))


def test_estimator_shares_a_symmetric_propagation_and_else_has_one_along_the_edges() -> None:
    against = Operator("symmetric", "against")
    assert make(estimator="graph", direction="against").operators == (against,)
    assert make(estimator="node", propagation="sum").operators == (Operator("sum"),)
    assert make(estimator="graph", propagation="sum", direction="against").operators == (
        Operator("sum", "against"),
        Operator("symmetric", "along"),
    )
    assert make(estimator="graph", backbone="gat", learned_environment=False).operators == (
        Operator("attention"),
    )


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("estimator", "edge"),
        ("norm", "batch"),
        ("direction", "up"),
        ("propagation", "mean"),
        ("num_layers", 0),
        ("num_environments", 0),
    ],
)
def test_invalid_options_are_rejected(option: str, value: Any) -> None:
    with pytest.raises(InputError, match=option):
        CaNet(NUM_FEATURES, NUM_CLASSES, **{option: value})
