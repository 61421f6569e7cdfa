import pytest
import torch

from canet.data.splits import split_50_25_25


@pytest.mark.parametrize("n", [0, 1, 4, 7, 100, 8124])
def test_parts_are_disjoint_complete_and_of_exact_size(n: int) -> None:
    nodes = 3 * torch.arange(n) + 1
    parts = split_50_25_25(nodes, torch.Generator().manual_seed(0))
    assert [part.numel() for part in parts] == [n // 2, n // 4, n - n // 2 - n // 4]
    assert torch.cat(parts).sort().values.equal(nodes)


def test_the_split_depends_on_the_seed() -> None:
    first, same, other = (
        split_50_25_25(torch.arange(50), torch.Generator().manual_seed(seed)) for seed in (0, 0, 1)
    )
    assert all(a.equal(b) for a, b in zip(first, same, strict=True))
    assert not first[0].equal(other[0])
