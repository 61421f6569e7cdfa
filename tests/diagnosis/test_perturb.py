import numpy as np
import pytest
import torch
from torch_geometric.utils import coalesce, to_undirected

from canet.diagnosis.perturb import draw_donors, rewire
from canet.util.sparse import unique_edges


@pytest.fixture
def random() -> np.random.Generator:
    return np.random.default_rng(0)


def test_donors_are_a_permutation_without_fixed_points(random: np.random.Generator) -> None:
    for n in (2, 3, 50):
        donors = draw_donors(n, random)
        assert sorted(donors) == list(range(n))
        assert (donors != np.arange(n)).all()


def test_donors_are_uniform_over_other_environments(random: np.random.Generator) -> None:
    environment = np.array([5, -1, 5, 2, 2, 5, 2, 5])
    drawn = np.stack([draw_donors(8, random, environment) for _ in range(4000)])
    for node in range(8):
        others = np.flatnonzero(environment != environment[node])
        counts = np.bincount(drawn[:, node], minlength=8)
        assert counts[others].min() > 0.8 * 4000 / others.size
        assert counts[others].sum() == 4000


def test_one_environment_is_the_same_as_none(random: np.random.Generator) -> None:
    assert sorted(draw_donors(6, random, np.ones(6))) == list(range(6))


def test_rewired_edges_keep_targets_loops_and_their_graph(random: np.random.Generator) -> None:
    edges = torch.tensor([[0, 1, 2, 3, 4, 4, 2, 5, 6], [1, 2, 2, 0, 5, 4, 3, 6, 4]])
    graph, sources = np.array([0, 0, 0, 0, 7, 7, 7]), set()
    for _ in range(50):
        changed, _ = rewire(edges, graph, random)
        assert changed[1].equal(edges[1])
        assert (graph[changed[0]] == graph[changed[1]]).all()
        assert changed[0, [2, 5]].tolist() == [2, 4]
        sources.add(int(changed[0, 0]))
    assert sources == {0, 2}


@pytest.mark.parametrize("undirected", [False, True])
def test_rewired_edges_are_other_edges_and_keep_both_degrees(
    random: np.random.Generator, undirected: bool
) -> None:
    drawn = torch.from_numpy(random.integers(60, size=(2, 150)))
    edges = to_undirected(drawn) if undirected else coalesce(drawn)
    changed, _ = rewire(edges, np.zeros(60), random, undirected)
    assert changed.shape == edges.shape
    for ends in (0, 1):
        assert changed[ends].bincount(minlength=60).equal(edges[ends].bincount(minlength=60))
    before, after = ({*zip(*e.tolist(), strict=True)} for e in (edges, changed))
    assert len(after) == edges.shape[1]
    assert len(before & after) < 0.3 * len(before)
    if undirected:
        assert after == {(target, source) for source, target in after}


def test_edges_of_a_star_cannot_be_rewired(random: np.random.Generator) -> None:
    star = torch.tensor([[0, 0, 0, 1, 2, 3], [1, 2, 3, 0, 0, 0]])
    assert rewire(star, np.zeros(4), random, undirected=True)[0].equal(star)


def test_a_graph_without_edges_is_unchanged(random: np.random.Generator) -> None:
    none = torch.empty(2, 0, dtype=torch.long)
    assert rewire(none, np.zeros(4), random)[0].shape == (2, 0)


@pytest.mark.parametrize("undirected", [False, True])
def test_weights_stay_with_the_edges_that_are_kept(undirected: bool) -> None:
    random = np.random.default_rng(0)
    edges, _ = unique_edges(torch.from_numpy(random.integers(0, 30, (2, 80))), 30, undirected)
    weight = (edges[0] * edges[1]).float() + 1  # the same in both directions
    changed, weights = rewire(edges, np.zeros(30), random, undirected, weight)
    assert sorted(weights.tolist()) == sorted(weight.tolist())
    if undirected:
        pairs = dict(zip(map(tuple, changed.T.tolist()), weights.tolist(), strict=True))
        assert all(pairs[target, source] == w for (source, target), w in pairs.items())
