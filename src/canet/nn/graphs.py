"""Which nodes are in one graph: what attention over whole graphs reads."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor


class Graphs:
    """The graphs that sources and destinations of a block are in.

    Args:
        reader: Graph $[n_{dst}]$ of each destination, a number from 0 on.
        read: Graph $[n_{src}]$ of each source; -1 for one that nobody reads.
    """

    def __init__(self, reader: Tensor, read: Tensor) -> None:
        self.reader = reader
        self.read = read

    def to(self, device: torch.device | str) -> Graphs:
        return Graphs(self.reader.to(device), self.read.to(device))

    def select_readers(self, readers: Tensor) -> Graphs:
        """The same graphs, read by the given destinations $[k]$."""
        return Graphs(self.reader[readers], self.read)

    def with_copies(self, num_copies: int) -> Graphs:
        """The same graphs, with sources in front of all that nobody reads."""
        return Graphs(self.reader, torch.cat([self.read.new_full((num_copies,), -1), self.read]))

    @cached_property
    def by_size(self) -> list[GraphsOfASize]:
        """The graphs that somebody reads, those of like size together."""
        numbers, graph = torch.cat([self.reader, self.read]).unique(return_inverse=True)
        reader, read = graph[: self.reader.numel()], graph[self.reader.numel() :]
        size = torch.bincount(read, minlength=numbers.numel())
        num_readers = torch.bincount(reader, minlength=numbers.numel())
        # 1; 2; 3 and 4; 5 to 8; ...: rows of zeros at most double what is computed.
        level = torch.where(num_readers > 0, torch.frexp(size - 0.5).exponent, -1)
        return [
            _of_a_size(level == one, reader, read, size, num_readers)
            for one in level.unique().tolist()
            if one >= 0
        ]

    @cached_property
    def place(self) -> Tensor | None:
        """Of each destination $[n_{dst}]$, in the results of `by_size` one after another; None if
        it is the same.
        """
        if len(self.by_size) < 2:
            return None
        readers = [alike.reader for alike in self.by_size if alike.reader is not None]
        return torch.cat(readers).argsort()


@dataclass(frozen=True)
class GraphsOfASize:
    """B graphs of like size, padded with rows of zeros to S sources and T destinations each.

    Args:
        count: B.
        largest: S, nodes of the largest.
        most_readers: T.
        size: Nodes $[r, 1]$ of each destination's graph.
        reader, read: Ids of the destinations $[r]$ and sources; None: all, in their order.
        reader_slot, read_slot: Their places in the padded rows; None where nothing is padded.
    """

    count: int
    largest: int
    most_readers: int
    size: Tensor
    reader: Tensor | None
    read: Tensor | None
    reader_slot: Tensor | None
    read_slot: Tensor | None

    def pad_read(self, x: Tensor) -> Tensor:
        """$[n_{src}, h]$ → $[B, S, h]$."""
        return self._pad(x, self.read, self.read_slot, self.largest)

    def pad_readers(self, x: Tensor) -> Tensor:
        """$[n_{dst}, h]$ → $[B, T, h]$."""
        return self._pad(x, self.reader, self.reader_slot, self.most_readers)

    def take_readers(self, padded: Tensor) -> Tensor:
        """$[B, T, h]$ → $[r, h]$, in the order of `reader`."""
        rows = padded.flatten(0, 1)
        return rows if self.reader_slot is None else rows.index_select(0, self.reader_slot)

    def _pad(self, x: Tensor, chosen: Tensor | None, slot: Tensor | None, rows: int) -> Tensor:
        if chosen is not None:
            x = x.index_select(0, chosen)
        if slot is not None:
            x = x.new_zeros(self.count * rows, x.shape[1]).index_copy(0, slot, x)
        return x.view(self.count, rows, -1)


def _of_a_size(
    chosen: Tensor, reader: Tensor, read: Tensor, size: Tensor, num_readers: Tensor
) -> GraphsOfASize:
    """Graphs chosen by a mask $[G]$, of the graphs $[n_{dst}]$ and $[n_{src}]$ of all nodes."""
    number = chosen.cumsum(0) - 1
    most_readers, largest = int(num_readers[chosen].max()), int(size[chosen].max())
    readers, reader_slot = _slots(chosen, number, reader, most_readers)
    sources, read_slot = _slots(chosen, number, read, largest)
    alone = int(chosen.sum()) == 1
    return GraphsOfASize(
        count=int(chosen.sum()),
        largest=largest,
        most_readers=most_readers,
        size=size[reader[readers]].unsqueeze(1),
        reader=None if readers.numel() == reader.numel() else readers,
        read=None if sources.numel() == read.numel() else sources,
        reader_slot=None if alone else reader_slot,
        read_slot=None if alone else read_slot,
    )


def _slots(chosen: Tensor, number: Tensor, graph: Tensor, rows: int) -> tuple[Tensor, Tensor]:
    """Nodes of chosen graphs, ascending, and their places where each graph has so many rows."""
    (nodes,) = chosen[graph].nonzero(as_tuple=True)
    own = number[graph[nodes]]
    order = own.argsort(stable=True)
    first = torch.searchsorted(own[order], own[order])
    rank = torch.empty_like(own)
    rank[order] = torch.arange(own.numel(), device=own.device) - first
    return nodes, own * rows + rank
