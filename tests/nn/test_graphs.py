from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from canet.nn.graphs import Graphs

SIZES = (1, 1, 2, 3, 4, 4, 6, 9, 16, 17)


def of_sizes(*sizes: int) -> Graphs:
    """Graphs of so many nodes, each read by all of its own, in no order."""
    graph = torch.repeat_interleave(torch.arange(len(sizes)), torch.tensor(sizes))
    graph = graph[torch.randperm(len(graph))]
    return Graphs(graph, graph)


def some_readers(graphs: Graphs, share: float = 0.3) -> Graphs:
    nodes = torch.randperm(len(graphs.reader))
    return graphs.select_readers(nodes[: int(share * len(nodes))])


CASES: dict[str, Callable[[], Graphs]] = {
    "unequal": lambda: of_sizes(*SIZES),
    "one": lambda: of_sizes(7),
    "equal": lambda: of_sizes(3, 3, 3),
    "of like size": lambda: of_sizes(5, 8, 7),
    "each alone": lambda: of_sizes(1, 1, 1, 1),
    "one node": lambda: of_sizes(1),
    "some readers": lambda: some_readers(of_sizes(*SIZES)),
    "some readers of one": lambda: some_readers(of_sizes(7)),
    "one reader": lambda: of_sizes(*SIZES).select_readers(torch.tensor([5])),
    "repeated readers": lambda: of_sizes(*SIZES).select_readers(torch.tensor([5, 3, 5, 9, 5, 0])),
    "copies": lambda: of_sizes(*SIZES).with_copies(6),
    "copies of one": lambda: of_sizes(7).with_copies(3),
    "some readers with copies": lambda: some_readers(of_sizes(*SIZES)).with_copies(4),
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
    """Rows that say whose they are, none of them zero."""
    return torch.arange(1.0, n + 1).unsqueeze(1).expand(n, 2)


def filled(rows: Tensor) -> list[int]:
    """Whose rows those of one graph are, in any order; all others are zeros."""
    return sorted(int(number) - 1 for number, same in rows.tolist() if number == same != 0)


@cases
def test_every_graph_that_is_read_has_its_nodes_once_and_zeros_beside_them(case: str) -> None:
    graphs = CASES[case]()
    readers, read = members(graphs.reader), members(graphs.read)
    expected = sorted((readers[graph], read[graph]) for graph in readers)
    found = []
    for alike in graphs.by_size:
        padded_readers = alike.pad_readers(numbered(len(graphs.reader)))
        padded_read = alike.pad_read(numbered(len(graphs.read)))
        assert padded_readers.shape == (alike.count, alike.most_readers, 2)
        assert padded_read.shape == (alike.count, alike.largest, 2)
        pairs = [(filled(a), filled(b)) for a, b in zip(padded_readers, padded_read, strict=True)]
        assert alike.most_readers == max(len(own) for own, _ in pairs)
        assert alike.largest == max(len(own) for _, own in pairs)
        for padded, own in ((padded_readers, 0), (padded_read, 1)):
            rows = sum(len(pair[own]) for pair in pairs)
            assert (padded != 0).sum() == 2 * rows
        found += pairs
    assert sorted(found) == expected


@cases
def test_a_reader_knows_the_size_of_its_graph(case: str) -> None:
    graphs = CASES[case]()
    for alike in graphs.by_size:
        chosen = graphs.reader if alike.reader is None else graphs.reader[alike.reader]
        sizes = [[int((graphs.read == graph).sum())] for graph in chosen]
        assert alike.size.tolist() == sizes
        # Zeros at most double what is computed.
        assert alike.largest < 2 * min(sizes)[0]


@cases
def test_what_readers_take_back_is_theirs_and_in_their_order(case: str) -> None:
    graphs = CASES[case]()
    x = torch.randn(len(graphs.reader), 3)
    parts = []
    for alike in graphs.by_size:
        parts.append(alike.take_readers(alike.pad_readers(x)))
        assert parts[-1].equal(x if alike.reader is None else x[alike.reader])
    results = torch.cat(parts)
    assert results.equal(x) if graphs.place is None else results[graphs.place].equal(x)


def test_graphs_of_like_size_are_together() -> None:
    found = [(alike.count, alike.largest) for alike in of_sizes(*SIZES).by_size]
    assert found == [(2, 1), (1, 2), (3, 4), (1, 6), (2, 16), (1, 17)]


def test_copies_are_in_front_and_nobody_reads_them() -> None:
    graphs = of_sizes(2, 3)
    copies = graphs.with_copies(4)
    assert copies.reader.equal(graphs.reader)
    assert copies.read.tolist() == [-1] * 4 + graphs.read.tolist()


def test_readers_are_selected_in_their_order_and_read_the_same() -> None:
    graphs = Graphs(torch.tensor([0, 1, 2]), torch.tensor([0, 1, 2, 1]))
    selected = graphs.select_readers(torch.tensor([2, 0, 0]))
    assert selected.reader.tolist() == [2, 0, 0]
    assert selected.read.equal(graphs.read)
