import pytest
import torch
import torch_geometric.nn as pyg

from canet.nn import GAT, GCN
from tests.support.layers import directions
from tests.support.networks import (
    EDGES,
    HIDDEN,
    NUM_CLASSES,
    NUM_FEATURES,
    NUM_NODES,
    predict,
    slow_norm,
    with_biases,
)

BACKBONES = {"gcn": (GCN, pyg.GCN), "gat": (GAT, pyg.GAT)}

backbones = pytest.mark.parametrize("name", BACKBONES)


def make(
    name: str, num_layers: int, direction: str = "along", dropout: float = 0.0, norm: str = "none"
) -> GCN:
    cls = BACKBONES[name][0]
    return with_biases(cls(NUM_FEATURES, NUM_CLASSES, HIDDEN, num_layers, dropout, direction, norm))


def same_in_pyg(model: GCN, name: str) -> torch.nn.Module:
    """PyG's model of the same depth, holding the same weights."""
    other = BACKBONES[name][1](NUM_FEATURES, HIDDEN, model.num_layers, NUM_CLASSES)
    maps = [model.phi_in, *model.between, model.phi_out]
    with torch.no_grad():
        for layer, (conv, linear) in enumerate(zip(other.convs, maps, strict=True)):
            conv.lin.weight.copy_(linear.weight)
            conv.bias.copy_(linear.bias)
            if isinstance(model, GAT):
                conv.att_dst.copy_(model.attention[layer][0])
                conv.att_src.copy_(model.attention[layer][1])
    return other


@backbones
@directions
@pytest.mark.parametrize("num_layers", [2, 3, 4])
def test_backbone_and_its_gradients_equal_those_of_pyg(
    name: str, direction: str, num_layers: int
) -> None:
    model = make(name, num_layers, direction)
    other = same_in_pyg(model, name)
    x = torch.randn(NUM_NODES, NUM_FEATURES)
    target = torch.randn(NUM_NODES, NUM_CLASSES)
    ours = predict(model, x).logits
    theirs = other(x, EDGES if direction == "along" else EDGES.flip(0))
    torch.testing.assert_close(ours, theirs)

    (ours * target).sum().backward()
    (theirs * target).sum().backward()
    for layer, linear in enumerate([model.phi_in, *model.between, model.phi_out]):
        conv = other.convs[layer]
        torch.testing.assert_close(linear.weight.grad, conv.lin.weight.grad)
        torch.testing.assert_close(linear.bias.grad, conv.bias.grad)
        if isinstance(model, GAT):
            attention = torch.cat([conv.att_dst.grad[0], conv.att_src.grad[0]])
            torch.testing.assert_close(model.attention[layer].grad, attention)


@backbones
@directions
def test_one_layer_is_one_convolution_and_a_linear_map(name: str, direction: str) -> None:
    model = make(name, 1, direction)
    conv = {"gcn": pyg.GCNConv, "gat": pyg.GATConv}[name](NUM_FEATURES, HIDDEN)
    with torch.no_grad():
        conv.lin.weight.copy_(model.phi_in.weight)
        conv.bias.copy_(model.phi_in.bias)
        if isinstance(model, GAT):
            conv.att_dst.copy_(model.attention[0][0])
            conv.att_src.copy_(model.attention[0][1])
    x = torch.randn(NUM_NODES, NUM_FEATURES)
    embedding = conv(x, EDGES if direction == "along" else EDGES.flip(0))
    prediction = predict(model, x)
    torch.testing.assert_close(prediction.embedding, embedding)
    torch.testing.assert_close(prediction.logits, model.phi_out(embedding))


@backbones
@pytest.mark.parametrize("num_layers", [2, 3])
def test_norm_is_that_of_each_hidden_state_before_the_nonlinearity(
    name: str, num_layers: int
) -> None:
    model = make(name, num_layers, norm="layer")
    *hidden, last = same_in_pyg(model, name).convs
    x = z = torch.randn(NUM_NODES, NUM_FEATURES)
    for conv, norm in zip(hidden, model.norms, strict=True):
        z = torch.stack(slow_norm(conv(z, EDGES), norm)).relu()
    torch.testing.assert_close(predict(model, x).logits, last(z, EDGES))


@backbones
def test_norm_of_one_layer_is_that_of_the_embedding(name: str) -> None:
    plain, normed = make(name, 1), make(name, 1, norm="layer")
    plain.load_state_dict(normed.state_dict(), strict=False)
    x = torch.randn(NUM_NODES, NUM_FEATURES)
    expected = torch.stack(slow_norm(predict(plain, x).embedding, normed.norms[0]))
    torch.testing.assert_close(predict(normed, x).embedding, expected)


@backbones
def test_training_drops_the_input_of_every_layer(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    widths = (NUM_FEATURES, HIDDEN, HIDDEN)
    masks = [torch.randint(2, (NUM_NODES, width)) * 2.0 for width in widths]
    model = make(name, 3, dropout=0.5)
    first, second, third = same_in_pyg(model, name).convs
    x = torch.randn(NUM_NODES, NUM_FEATURES)
    z = first(x * masks[0], EDGES).relu()
    z = second(z * masks[1], EDGES).relu()
    expected = third(z * masks[2], EDGES)
    drawn = iter(masks)
    monkeypatch.setattr(model, "drop", lambda z: z * next(drawn))
    torch.testing.assert_close(predict(model, x).logits, expected)
    assert next(drawn, None) is None
