import numpy as np
import pytest
import torch
from torch import Tensor

from canet.data.benchmarks.structural import (
    _adjacency,
    _normalised,
    _singular_vectors,
    structural_features,
)

N = 240
KNOWN = torch.arange(N) < 160


def graph(seed: int = 0, edges: int = 900) -> Tensor:
    return torch.randint(N, (2, edges), generator=torch.Generator().manual_seed(seed))


def all_nodes(n: int = N) -> Tensor:
    return torch.ones(n, dtype=torch.bool)


def test_features_have_128_standardised_columns() -> None:
    x = structural_features(graph(), all_nodes())
    assert x.shape == (N, 128)
    assert x.dtype == torch.float32
    torch.testing.assert_close(x.mean(dim=0), torch.zeros(128), atol=1e-5, rtol=0)
    torch.testing.assert_close(x.std(dim=0, correction=0), torch.ones(128))


def test_edge_order_and_duplicate_edges_do_not_change_features() -> None:
    edges = graph()
    doubled = torch.cat([edges.flip(1), edges[:, :50]], dim=1)
    first, second = (structural_features(edges, all_nodes()) for _ in range(2))
    assert first.equal(second)
    torch.testing.assert_close(first, structural_features(doubled, all_nodes()))


def test_local_columns_agree_with_a_loop() -> None:
    edges = graph().unique(dim=1)
    out = [[v for u, v in edges.T.tolist() if u == node] for node in range(N)]
    into = [[u for u, v in edges.T.tolist() if v == node] for node in range(N)]
    degrees = np.array([[np.log1p(len(into[u])), np.log1p(len(out[u]))] for u in range(N)])

    def mean(neighbours: list[list[int]], values: np.ndarray) -> np.ndarray:
        return np.array([values[ids].mean(axis=0) if ids else [0, 0] for ids in neighbours])

    columns = [degrees]
    for neighbours in (into, out):
        columns += [mean(neighbours, degrees), mean(neighbours, mean(neighbours, degrees))]
    expected = np.hstack(columns)
    expected = (expected - expected.mean(axis=0)) / expected.std(axis=0)
    x = structural_features(edges, all_nodes())
    np.testing.assert_allclose(x[:, 118:], expected, atol=1e-5)


def test_singular_vectors_are_those_of_the_normalised_adjacency() -> None:
    edges = graph(edges=200)[:, :200] % 60
    matrix = _normalised(_adjacency(edges.numpy(), 60))
    vectors = _singular_vectors(matrix)
    assert vectors.shape == (60, 118)
    assert not vectors[:, 60:].any()
    strengths = np.linalg.norm(matrix @ vectors[:, :60], axis=0)
    expected = np.linalg.svd(matrix.toarray(), compute_uv=False)
    np.testing.assert_allclose(strengths, expected, atol=1e-4)
    largest = np.abs(vectors[:, :60]).argmax(axis=0)
    assert (vectors[largest, np.arange(60)] > 0).all()


@pytest.mark.parametrize("change", ["remove", "rewire", "add"])
def test_features_of_known_nodes_do_not_depend_on_other_nodes(change: str) -> None:
    edges = graph()
    inner = KNOWN[edges].all(dim=0)
    if change == "remove":
        changed = edges[:, inner]
    elif change == "rewire":
        changed = edges.clone()
        changed[0, ~inner] = 200
    else:
        changed = torch.cat([edges, torch.stack([torch.arange(160), torch.arange(160) + 80])], 1)
        changed = changed[:, ~(KNOWN[changed].all(dim=0) & (torch.arange(changed.shape[1]) >= 900))]
    before, after = structural_features(edges, KNOWN), structural_features(changed, KNOWN)
    assert after[KNOWN].equal(before[KNOWN])
    assert not after[~KNOWN].equal(before[~KNOWN])
    assert torch.isfinite(after).all()


def test_all_rows_are_finite_for_a_graph_without_edges() -> None:
    x = structural_features(torch.empty(2, 0, dtype=torch.int64), all_nodes(5))
    assert x.shape == (5, 128)
    assert torch.isfinite(x).all()
