from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from canet.nn.membership import Graphs

SIZES = (1, 1, 2, 3, 4, 4, 6, 9, 16, 17)


def of_sizes(*sizes: int) -> Graphs:
    """Graphs of the given sizes, whose nodes are all destinations and sources, in random order."""
    graph = torch.repeat_interleave(torch.arange(len(sizes)), torch.tensor(sizes))
    graph = graph[torch.randperm(len(graph))]
    return Graphs(graph, graph)


def some_destinations(graphs: Graphs, share: float = 0.3) -> Graphs:
    nodes = torch.randperm(len(graphs.dst))
    return graphs.select_destinations(nodes[: int(share * len(nodes))])


CASES: dict[str, Callable[[], Graphs]] = {
    "unequal": lambda: of_sizes(*SIZES),
    "one": lambda: of_sizes(7),
    "equal": lambda: of_sizes(3, 3, 3),
    "of similar size": lambda: of_sizes(5, 8, 7),
    "single nodes": lambda: of_sizes(1, 1, 1, 1),
    "one node": lambda: of_sizes(1),
    "some destinations": lambda: some_destinations(of_sizes(*SIZES)),
    "some destinations of one": lambda: some_destinations(of_sizes(7)),
    "one destination": lambda: of_sizes(*SIZES).select_destinations(torch.tensor([5])),
    "repeated destinations": lambda: of_sizes(*SIZES).select_destinations(
        torch.tensor([5, 3, 5, 9, 5, 0])
    ),
    "copies": lambda: of_sizes(*SIZES).with_copies(6),
    "copies of one": lambda: of_sizes(7).with_copies(3),
    "some destinations with copies": lambda: some_destinations(of_sizes(*SIZES)).with_copies(4),
    "numbers with gaps": lambda: Graphs(torch.tensor([9, 2, 9]), torch.tensor([9, 2, 9, 4, 2, 9])),
}
cases = pytest.mark.parametrize("case", CASES)


def members(graph: Tensor) -> dict[int, list[int]]:
    """The nodes of each graph, ascending."""
    nodes: dict[int, list[int]] = {}
    for node, number in enumerate(graph.tolist()):
        nodes.setdefault(number, []).append(node)
    return nodes


def numbered(n: int) -> Tensor:
    """Row i contains i + 1."""
    return torch.arange(1.0, n + 1).unsqueeze(1).expand(n, 2)


def filled(rows: Tensor) -> list[int]:
    """Node ids of the rows of one graph that are not padding."""
    return sorted(int(number) - 1 for number, same in rows.tolist() if number == same != 0)


@cases
def test_every_graph_with_destinations_is_padded_with_zeros(case: str) -> None:
    graphs = CASES[case]()
    dst, src = members(graphs.dst), members(graphs.src)
    expected = sorted((dst[graph], src[graph]) for graph in dst)
    found = []
    for batch in graphs.batches:
        padded_dst = batch.pad_dst(numbered(len(graphs.dst)))
        padded_src = batch.pad_src(numbered(len(graphs.src)))
        assert padded_dst.shape == (batch.count, batch.max_dst, 2)
        assert padded_src.shape == (batch.count, batch.max_src, 2)
        pairs = [(filled(a), filled(b)) for a, b in zip(padded_dst, padded_src, strict=True)]
        assert batch.max_dst == max(len(own) for own, _ in pairs)
        assert batch.max_src == max(len(own) for _, own in pairs)
        for padded, own in ((padded_dst, 0), (padded_src, 1)):
            rows = sum(len(pair[own]) for pair in pairs)
            assert (padded != 0).sum() == 2 * rows
        found += pairs
    assert sorted(found) == expected


@cases
def test_size_is_the_number_of_nodes_of_the_graph_of_each_destination(case: str) -> None:
    graphs = CASES[case]()
    for batch in graphs.batches:
        chosen = graphs.dst if batch.dst is None else graphs.dst[batch.dst]
        sizes = [[int((graphs.src == graph).sum())] for graph in chosen]
        assert batch.size.tolist() == sizes
        # Padding at most doubles the work.
        assert batch.max_src < 2 * min(sizes)[0]


@cases
def test_unpadding_reverses_padding(case: str) -> None:
    graphs = CASES[case]()
    x = torch.randn(len(graphs.dst), 3)
    parts = []
    for batch in graphs.batches:
        parts.append(batch.unpad_dst(batch.pad_dst(x)))
        assert parts[-1].equal(x if batch.dst is None else x[batch.dst])
    results = torch.cat(parts)
    assert results.equal(x) if graphs.position is None else results[graphs.position].equal(x)


def test_graphs_of_similar_size_are_in_one_batch() -> None:
    found = [(batch.count, batch.max_src) for batch in of_sizes(*SIZES).batches]
    assert found == [(2, 1), (1, 2), (3, 4), (1, 6), (2, 16), (1, 17)]


def test_copies_are_in_front_and_are_not_read() -> None:
    graphs = of_sizes(2, 3)
    copies = graphs.with_copies(4)
    assert copies.dst.equal(graphs.dst)
    assert copies.src.tolist() == [-1] * 4 + graphs.src.tolist()


def test_selected_destinations_keep_all_sources() -> None:
    graphs = Graphs(torch.tensor([0, 1, 2]), torch.tensor([0, 1, 2, 1]))
    selected = graphs.select_destinations(torch.tensor([2, 0, 0]))
    assert selected.dst.tolist() == [2, 0, 0]
    assert selected.src.equal(graphs.src)
