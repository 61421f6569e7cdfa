import numpy as np
import pytest

from canet.data.graph_files.edges import edge_statistics


def test_statistics_of_a_small_graph_are_correct() -> None:
    edges = np.array([[0, 1, 1, 2, 2, 3], [1, 0, 2, 3, 3, 3]])
    found = edge_statistics(edges, 6)
    assert (found.edges, found.self_loops, found.repeated) == (6, 1, 1)
    assert found.reverse_share == pytest.approx(2 / 4)
    assert (found.components, found.largest_component, found.isolated) == (3, 4, 2)
    assert (found.degree_median, found.degree_max) == (1, 2)


def test_a_graph_without_edges_has_no_share_of_reverse_edges() -> None:
    found = edge_statistics(np.empty((2, 0), dtype=np.int64), 3)
    assert found.reverse_share is None
    assert (found.components, found.isolated, found.degree_max) == (3, 3, 0)


def test_random_edges_agree_with_a_loop() -> None:
    edges = np.random.default_rng(0).integers(12, size=(2, 60))
    found = edge_statistics(edges, 12)
    pairs = list(zip(*edges.tolist(), strict=True))
    different = {(a, b) for a, b in pairs if a != b}
    assert found.repeated == len(pairs) - len(set(pairs))
    both = sum((b, a) in different for a, b in different)
    assert found.reverse_share == pytest.approx(both / len(different))
    assert found.degree_max == max(np.bincount([b for _, b in set(pairs)]))
