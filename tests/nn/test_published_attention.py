"""CaNet-GAT compared with the published attention, written as a loop over nodes.

The published softmax subtracts the maximum over the whole graph and adds 1e-8 to every sum. The
softmax of this package subtracts the maximum of each node and adds nothing. With the same weights,
predictions are the same. They differ with another slope of LeakyReLU.
"""

from __future__ import annotations

from copy import deepcopy
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest
import torch
from torch import Tensor

from canet.data import load_task
from canet.defaults import task_settings
from canet.nn import CaNet, Features, Graph, SparseMatrix
from canet.training import Trainer
from tests.support.networks import EDGES, HIDDEN, NUM_CLASSES, NUM_FEATURES, NUM_NODES

SLOPE = 0.01  # default of torch, used by the published code
OTHER_SLOPE = 0.2  # slope in the GAT paper
ADDED = 1e-8  # added to the sum of a node's exponentials


# Published code -----------------------------------------------------------------------------------


class Published(NamedTuple):
    """Logits $[N, C]$, and the smallest sum of a node's weights in any branch and layer."""

    logits: Tensor
    smallest_sum: float


def published(
    model: CaNet, x: Tensor, edges: Tensor, slope: float = SLOPE, added: float = ADDED
) -> Published:
    """A forward pass with the weights of a model, in prediction mode, node by node.

    A node attends to the targets of its edges and once to itself. The estimator is `graph`, which
    propagates along the edges.
    """
    weights = {name: value.numpy() for name, value in model.state_dict().items()}
    incoming, outgoing = neighbours(edges, x.shape[0])
    attended = [
        np.array([v for v in targets if v != u] + [u]) for u, targets in enumerate(outgoing)
    ]
    z = (x @ torch.from_numpy(weights["phi_in.weight"]).T).numpy() + weights["phi_in.bias"]
    z = np.maximum(z, 0)
    smallest = np.inf
    for layer in range(model.num_layers):
        of_neighbours, of_own = np.split(weights[f"estimators.{layer}.linear.weight"], 2, axis=1)
        logits = convolve(z, incoming) @ of_neighbours.T + z @ of_own.T
        powers = np.exp(logits - logits.max(axis=1, keepdims=True))
        e = powers / powers.sum(axis=1, keepdims=True)
        branches = f"branches.{layer}"
        mapped = np.einsum("ni,kio->nko", z, weights[f"{branches}.weight"], optimize=True)
        score_dst = (mapped * weights[f"{branches}.attention_dst"]).sum(axis=2)
        score_src = (mapped * weights[f"{branches}.attention_src"]).sum(axis=2)
        mixed, smallest_here = attend(mapped, score_dst, score_src, e, attended, slope, added)
        z = np.maximum(mixed + z, 0)
        smallest = min(smallest, smallest_here)
    logits = z @ weights["phi_out.weight"].T + weights["phi_out.bias"]
    return Published(torch.from_numpy(logits), smallest)


def neighbours(edges: Tensor, num_nodes: int) -> tuple[list[list[int]], list[list[int]]]:
    """The sources of each node's incoming edges and the targets of its outgoing ones."""
    incoming: list[list[int]] = [[] for _ in range(num_nodes)]
    outgoing: list[list[int]] = [[] for _ in range(num_nodes)]
    for source, target in edges.T.tolist():
        incoming[target].append(source)
        outgoing[source].append(target)
    return incoming, outgoing


def convolve(z: np.ndarray, incoming: list[list[int]]) -> np.ndarray:
    """$\\sum_v z_v / \\sqrt{d_u d_v}$ $[N, H]$, with $d$ the number of incoming edges."""
    degree = np.array([len(sources) for sources in incoming])
    scale = np.where(degree > 0, 1 / np.sqrt(np.maximum(degree, 1)), 0)
    total = np.zeros_like(z)
    for u, sources in enumerate(incoming):
        if sources:
            total[u] = scale[u] * (scale[sources] @ z[sources])
    return total


def attend(
    mapped: np.ndarray,
    score_dst: np.ndarray,
    score_src: np.ndarray,
    e: np.ndarray,
    attended: list[np.ndarray],
    slope: float,
    added: float,
) -> tuple[np.ndarray, float]:
    """The mixture of the attention of K branches, and the smallest sum of a node's weights.

    Each branch has one maximum over the scores of all edges and self-loops.

    Shapes:
        - mapped $[N, K, H]$, scores and e $[N, K]$ → $[N, H]$
    """
    scores = []
    for u, read in enumerate(attended):
        score = score_dst[u] + score_src[read]
        scores.append(np.maximum(score, slope * score))
    largest = np.concatenate(scores).max(axis=0)
    total, sums = np.empty_like(mapped[:, 0]), np.empty_like(e)
    for u, read in enumerate(attended):
        powers = np.exp(scores[u] - largest)
        share = powers / (powers.sum(axis=0) + added)
        sums[u] = share.sum(axis=0)
        total[u] = (share * e[u]).ravel() @ mapped[read].reshape(share.size, -1)
    return total, float(sums.min())


@torch.no_grad()
def predicted(model: CaNet, x: Features, edges: Tensor) -> Tensor:
    """This package's logits of all nodes."""
    field = Graph(edges, x.shape[0], model.operators).whole(model.num_layers)
    logits: Tensor = model.eval()(x, field.blocks).logits
    return logits


# A small graph ------------------------------------------------------------------------------------


def make(factor: float = 5.0) -> tuple[CaNet, Tensor]:
    """A model with published attention and scaled scores, and features."""
    model = CaNet(
        NUM_FEATURES,
        NUM_CLASSES,
        hidden=HIDDEN,
        backbone="gat",
        estimator="graph",
        direction="against",
    )
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if "attention" in name:
                parameter.mul_(factor)
    return model, torch.randn(NUM_NODES, NUM_FEATURES)


def test_small_graph_is_attended_as_published() -> None:
    model, x = make()
    ours = predicted(model, x, EDGES)
    exact, theirs = published(model, x, EDGES, added=0), published(model, x, EDGES)
    torch.testing.assert_close(ours, exact.logits, rtol=1e-10, atol=1e-12)
    torch.testing.assert_close(ours, theirs.logits, rtol=0, atol=1e-6)
    assert ours.argmax(dim=1).equal(theirs.logits.argmax(dim=1))


def test_small_graph_is_not_attended_with_another_slope() -> None:
    model, x = make()
    theirs = published(model, x, EDGES, slope=OTHER_SLOPE)
    assert (predicted(model, x, EDGES) - theirs.logits).abs().max() > 1e-3


def test_published_sum_loses_nodes_whose_scores_are_far_below_the_largest_of_the_graph() -> None:
    model, x = make(factor=100)
    ours = predicted(model, x, EDGES)
    exact, theirs = published(model, x, EDGES, added=0), published(model, x, EDGES)
    torch.testing.assert_close(ours, exact.logits, rtol=1e-10, atol=1e-12)
    assert exact.smallest_sum == pytest.approx(1)
    assert theirs.smallest_sum < 0.1
    assert (ours - theirs.logits).abs().max() > 1e-3


# Cora with the published settings -----------------------------------------------------------------


class Trained(NamedTuple):
    """A model after a few epochs in single precision, and its inputs."""

    model: CaNet
    x: Tensor
    edges: Tensor

    def doubled(self) -> tuple[CaNet, Tensor, Tensor]:
        return deepcopy(self.model).double(), self.x.double(), self.edges

    def predicted(self) -> Tensor:
        """The logits of all nodes in double precision."""
        model, x, edges = self.doubled()
        return predicted(model, SparseMatrix.from_torch(x), edges)


@pytest.fixture(scope="module")
def trained(data_root: Path) -> Trained:
    """Trained once, before tests switch to double precision."""
    task = load_task("cora", data_root)
    settings = replace(task_settings("cora", "canet", "gat"), epochs=20)
    run = Trainer(task, "canet", "gat", settings, device="cpu").run()
    assert isinstance(run.method.model, CaNet)
    return Trained(run.method.model, task.data.x, task.data.edge_index)


@pytest.mark.slow
def test_cora_is_attended_as_published_except_for_the_added_constant(trained: Trained) -> None:
    exact = published(*trained.doubled(), added=0)
    torch.testing.assert_close(trained.predicted(), exact.logits, rtol=1e-10, atol=1e-12)


@pytest.mark.slow
def test_cora_is_predicted_as_published_on_all_nodes(trained: Trained) -> None:
    ours, theirs = trained.predicted(), published(*trained.doubled())
    assert ours.argmax(dim=1).equal(theirs.logits.argmax(dim=1))
    # The added constant changes weights and logits by a few millionths.
    assert 0 < 1 - theirs.smallest_sum < 1e-5
    bound = 1e-5 * float(ours.abs().max())
    torch.testing.assert_close(ours, theirs.logits, rtol=0, atol=bound)
    # Single precision, as in training, is within the same bound.
    torch.set_default_dtype(torch.float32)
    single = predicted(trained.model, SparseMatrix.from_torch(trained.x), trained.edges)
    torch.testing.assert_close(single.double(), theirs.logits, rtol=0, atol=bound)
