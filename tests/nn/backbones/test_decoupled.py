import math

import pytest
import torch
from torch import Tensor

from canet.nn import BACKBONES
from canet.nn.backbones.decoupled import Decoupled
from tests.support.layers import directions, read_by
from tests.support.networks import (
    HIDDEN,
    NUM_CLASSES,
    NUM_FEATURES,
    NUM_NODES,
    predict,
    slow_norm,
    with_biases,
)


def slow_logits(model: Decoupled, x: Tensor) -> Tensor:
    """The plain model's equation, one hop, node and neighbour at a time."""
    others = [[v for v in read_by(u, model.direction) if v != u] for u in range(NUM_NODES)]
    hops = [[model.phi_in.weight @ row for row in x]]
    for _ in range(model.num_layers):
        hop = []
        for u in range(NUM_NODES):
            state = hops[-1][u] / (1 + len(others[u]))
            for v in others[u]:
                state = state + hops[-1][v] / math.sqrt((1 + len(others[u])) * (1 + len(others[v])))
            hop.append(state)
        hops.append(hop)
    z = [sum(hop[u] for hop in hops) / len(hops) + model.phi_in.bias for u in range(NUM_NODES)]
    z = [state.clamp(min=0) for state in z]
    if model.norms:
        z = slow_norm(z, model.norms[0])
    z = [(model.inner.weight @ state + model.inner.bias + state).clamp(min=0) for state in z]
    if model.norms:
        z = slow_norm(z, model.norms[1])
    return torch.stack([model.phi_out(state) for state in z])


@directions
@pytest.mark.parametrize("norm", ["none", "layer"])
@pytest.mark.parametrize("num_layers", [1, 2, 4])
def test_plain_model_and_its_gradients_follow_its_equation(
    direction: str, norm: str, num_layers: int
) -> None:
    options = {"hidden": HIDDEN, "num_layers": num_layers, "direction": direction, "norm": norm}
    model = with_biases(BACKBONES["decoupled"].plain(NUM_FEATURES, NUM_CLASSES, **options))
    assert isinstance(model, Decoupled)
    x, target = torch.randn(NUM_NODES, NUM_FEATURES), torch.randn(NUM_NODES, NUM_CLASSES)
    ours, theirs = predict(model, x).logits, slow_logits(model, x)
    torch.testing.assert_close(ours, theirs)
    gradients = (
        torch.autograd.grad((logits * target).sum(), list(model.parameters()))
        for logits in (ours, theirs)
    )
    for got, wanted in zip(*gradients, strict=True):
        torch.testing.assert_close(got, wanted)


def test_training_drops_features_and_hidden_units_and_nothing_between_hops(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    model = Decoupled(NUM_FEATURES, NUM_CLASSES, HIDDEN, 3, dropout=0.5)
    widths: list[int] = []
    monkeypatch.setattr(model, "drop", lambda z: widths.append(z.shape[1]) or z)
    predict(model, torch.randn(NUM_NODES, NUM_FEATURES))
    assert widths == [NUM_FEATURES, HIDDEN, HIDDEN]


def test_decoupled_always_has_a_residual_connection() -> None:
    model = BACKBONES["decoupled"].plain(NUM_FEATURES, NUM_CLASSES, residual=True)
    assert isinstance(model, Decoupled)
