import numpy as np
import pytest
import torch

from canet.util.sparse import unique_edges


@pytest.mark.parametrize("seed", range(20))
@pytest.mark.parametrize("both_ways", [False, True])
def test_unique_edges_are_a_sorted_set_of_pairs(seed: int, both_ways: bool) -> None:
    edges = torch.from_numpy(np.random.default_rng(seed).integers(9, size=(2, 40)))
    pairs = {*zip(*edges.tolist(), strict=True)}
    if both_ways:
        pairs |= {(target, source) for source, target in pairs}
    found, _ = unique_edges(edges, 9, both_ways)
    assert found.dtype == torch.int64
    assert found.t().tolist() == [list(pair) for pair in sorted(pairs)]


def test_a_graph_without_edges_has_no_unique_edges() -> None:
    assert unique_edges(torch.empty(2, 0, dtype=torch.long), 4, True)[0].shape == (2, 0)
