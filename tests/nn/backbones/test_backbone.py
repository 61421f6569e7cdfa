import pytest
import torch

from canet.nn import BACKBONES, CaNet, NormalisedGraph
from tests.support.layers import directions
from tests.support.networks import (
    EDGES,
    HIDDEN,
    NUM_CLASSES,
    NUM_FEATURES,
    NUM_NODES,
    predict,
    slow_norm,
)

RESIDUAL = {
    name: backbone.model is not None
    for name, backbone in BACKBONES.items()
    if backbone.model is None or not backbone.model.has_residual_links
}
"""Backbones, and whether their plain model has a residual connection only with `residual`."""


@directions
@pytest.mark.parametrize("num_layers", [1, 2])
@pytest.mark.parametrize("norm", ["none", "layer"])
@pytest.mark.parametrize(("name", "residual"), RESIDUAL.items())
def test_plain_model_with_a_residual_link_is_canet_with_one_branch(
    name: str, residual: bool, direction: str, num_layers: int, norm: str
) -> None:
    options = {"hidden": HIDDEN, "num_layers": num_layers, "direction": direction, "norm": norm}
    plain = BACKBONES[name].plain(NUM_FEATURES, NUM_CLASSES, residual=residual, **options)
    for parameter in plain.parameters():
        torch.nn.init.normal_(parameter)
    canet = CaNet(
        NUM_FEATURES,
        NUM_CLASSES,
        backbone=name,
        num_environments=1,
        learned_environment=False,
        **options,
    )
    renamed = {k.replace("layers.", "branches."): v for k, v in plain.state_dict().items()}
    canet.load_state_dict(renamed)
    x, target = torch.randn(NUM_NODES, NUM_FEATURES), torch.randn(NUM_NODES, NUM_CLASSES)
    z = torch.relu(plain.phi_in(x))
    block = NormalisedGraph(EDGES, NUM_NODES, canet.operators).block
    for layer, branches in enumerate(plain.layers):
        z = branches.plain(z, block)
        if norm == "layer":
            z = torch.stack(slow_norm(z, plain.norms[layer]))
    for model in (plain, canet):
        logits = predict(model, x).logits
        torch.testing.assert_close(logits, plain.phi_out(z))
        (logits * target).sum().backward()
    ours = dict(canet.named_parameters())
    for key, parameter in plain.named_parameters():
        torch.testing.assert_close(parameter.grad, ours[key.replace("layers.", "branches.")].grad)
