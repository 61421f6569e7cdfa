from __future__ import annotations

import pytest
import torch

from canet.nn import BACKBONES, CaNet, Graph
from tests.nn.backbones.common import directions
from tests.nn.common import EDGES, HIDDEN, NUM_CLASSES, NUM_FEATURES, NUM_NODES, predict

RESIDUAL = [name for name, backbone in BACKBONES.items() if backbone.model is None]


@directions
@pytest.mark.parametrize("num_layers", [1, 2])
@pytest.mark.parametrize("name", RESIDUAL)
def test_plain_model_is_canet_with_one_branch(name: str, direction: str, num_layers: int) -> None:
    options = {"hidden": HIDDEN, "num_layers": num_layers, "direction": direction}
    plain = BACKBONES[name].plain(NUM_FEATURES, NUM_CLASSES, **options)
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
    block = Graph(EDGES, NUM_NODES, canet.operators).block
    for branches in plain.layers:
        z = branches.plain(z, block)
    for model in (plain, canet):
        logits = predict(model, x).logits
        torch.testing.assert_close(logits, plain.phi_out(z))
        (logits * target).sum().backward()
    ours = dict(canet.named_parameters())
    for key, parameter in plain.named_parameters():
        torch.testing.assert_close(parameter.grad, ours[key.replace("layers.", "branches.")].grad)
