"""Are gradients with sampled neighbours those of all neighbours, on average?

A sum over drawn neighbours, scaled to the number of all neighbours, is correct on average. A layer
applies a nonlinear function to it, and the mean of a nonlinear function of a random number is not
the function of its mean. So the gradients of a model have a bias, which shrinks as more neighbours
are drawn. `python -m experiments.sampled_gradients` measures it for each backbone.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from canet.methods import BACKBONES, Method, get_method
from canet.nn import NormalisedGraph

NUM_NODES, DEGREE, NUM_FEATURES, NUM_CLASSES = 300, 40, 8, 3
HOMOPHILY = 0.7
FANOUTS = ((2, 2), (5, 5), (10, 10), (20, 20))
NUM_DRAWS = 200


def random_graph() -> tuple[Tensor, Tensor, Tensor]:
    """Return edges, features and labels of a random graph.

    Every node has `DEGREE` incoming edges, most of them from nodes of its class.
    """
    random = torch.Generator().manual_seed(0)
    y = torch.arange(NUM_NODES) % NUM_CLASSES
    target = torch.arange(NUM_NODES).repeat_interleave(DEGREE)
    source = torch.randint(NUM_NODES // NUM_CLASSES, target.shape, generator=random) * NUM_CLASSES
    is_same = torch.rand(target.shape, generator=random) < HOMOPHILY
    other = torch.randint(NUM_CLASSES, target.shape, generator=random)
    source += torch.where(is_same, y[target], other)
    x = torch.randn(NUM_NODES, NUM_FEATURES, generator=random) + y[:, None] - 1
    return torch.stack([source, target]), x.double(), y


def method_of(name: str, backbone: str) -> Method:
    """Return a method with random weights in double precision, without dropout."""
    kind = get_method(name)
    torch.manual_seed(0)
    settings = kind.settings_type(hidden=16, dropout=0.0)
    return kind(settings, BACKBONES[backbone], NUM_FEATURES, NUM_CLASSES).double().eval()


def gradients(
    method: Method, fanouts: Sequence[Sequence[int]] = FANOUTS, num_draws: int = NUM_DRAWS
) -> dict[tuple[int, ...], tuple[float, float]]:
    """Return fanout → bias and its standard error, relative to the norm of the exact gradient.

    The method is in evaluation mode, so that only the neighbours are random.
    """
    edges, x, y = random_graph()
    graph = NormalisedGraph(edges, NUM_NODES, method.model.operators, dtype=torch.double)
    nodes = torch.arange(NUM_NODES)
    parameters = list(method.parameters())

    def gradient(fanout: Sequence[int], seed: int) -> Tensor:
        field = graph.sampled_field(nodes, fanout, seed)
        logits = method.model(x[field.nodes], field.blocks).logits
        loss = torch.nn.functional.cross_entropy(logits, y)
        found = torch.autograd.grad(loss, parameters, allow_unused=True)
        return torch.cat([part.flatten() for part in found if part is not None])

    exact = gradient((-1, -1), 0)
    result = {}
    for fanout in fanouts:
        draws = torch.stack([gradient(fanout, 10 * seed) for seed in range(num_draws)])
        bias = draws.mean(dim=0) - exact
        error = (draws.var(dim=0) / num_draws).sum().sqrt()
        result[tuple(fanout)] = float(bias.norm() / exact.norm()), float(error / exact.norm())
    return result


def main() -> None:
    columns = [",".join(map(str, fanout)) for fanout in FANOUTS]
    print(
        "| bias of the gradient, % | " + " | ".join(columns) + " |\n|---|" + "--:|" * len(columns)
    )
    for name in ("erm", "canet"):
        for backbone in BACKBONES:
            if backbone in ("mlp", "transformer"):
                continue
            cells = [
                f"{100 * bias:.1f} (± {100 * error:.1f})"
                for bias, error in gradients(method_of(name, backbone)).values()
            ]
            print(f"| {name}-{backbone} | " + " | ".join(cells) + " |", flush=True)


if __name__ == "__main__":
    main()
