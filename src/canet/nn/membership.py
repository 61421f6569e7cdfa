"""Assignment of nodes to graphs, for attention over whole graphs."""

from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor


@dataclass(eq=False)
class Graphs:
    """Graph numbers of the destination and source nodes of a block."""

    dst: Tensor  # graph number $[n_{dst}]$ of each destination, 0 or larger
    # Graph number $[n_{src}]$ of each source; -1 for a source that no destination reads.
    src: Tensor

    def to(self, device: torch.device | str) -> "Graphs":
        return Graphs(self.dst.to(device), self.src.to(device))

    def select_destinations(self, nodes: Tensor) -> "Graphs":
        """Keep the given destinations $[k]$, in this order, and all sources."""
        return Graphs(self.dst[nodes], self.src)

    def with_copies(self, num_copies: int) -> "Graphs":
        """Add sources in front that no destination reads."""
        return Graphs(self.dst, torch.cat([self.src.new_full((num_copies,), -1), self.src]))

    @cached_property
    def batches(self) -> "list[PaddedGraphs]":
        """The graphs with destinations, in batches of similar size."""
        numbers, graph = torch.cat([self.dst, self.src]).unique(return_inverse=True)
        dst, src = graph[: self.dst.numel()], graph[self.dst.numel() :]
        size = torch.bincount(src, minlength=numbers.numel())
        num_dst = torch.bincount(dst, minlength=numbers.numel())
        # Sizes 1; 2; 3 and 4; 5 to 8; ...: padding at most doubles the work.
        level = torch.where(num_dst > 0, torch.frexp(size - 0.5).exponent, -1)
        return [
            _pad_graphs(level == one, dst, src, size, num_dst)
            for one in level.unique().tolist()
            if one >= 0
        ]

    @cached_property
    def position(self) -> Tensor | None:
        """Row $[n_{dst}]$ of each destination in the concatenated results of `batches`.

        None if the results are already in the order of the destinations.
        """
        if len(self.batches) < 2:
            return None
        return torch.cat([batch.dst for batch in self.batches if batch.dst is not None]).argsort()


@dataclass(frozen=True)
class GraphSums:
    r"""What a node reads from the other nodes of its graph, if these are not sources of a block."""

    # Number $[n_{dst}]$ of each destination's graph; -1 if the node is alone in its graph.
    dst: Tensor
    size: Tensor  # number of nodes $[G]$ of each graph
    sums: Tensor  # $\sum_v k_v [z_v \| 1]^\top$ $[G, H, H + 1]$ over the nodes of each graph

    def to(self, device: torch.device | str) -> "GraphSums":
        return GraphSums(self.dst.to(device), self.size.to(device), self.sums.to(device))


@dataclass(frozen=True)
class PaddedGraphs:
    """B graphs of similar size, padded with zeros to S sources and T destinations each."""

    count: int  # B
    max_src: int  # S, the number of nodes of the largest graph
    max_dst: int  # T
    size: Tensor  # number of nodes $[r, 1]$ of each destination's graph
    # Ids of the destinations $[r]$ and sources; None stands for all, in their order.
    dst: Tensor | None
    src: Tensor | None
    # Their positions in the padded rows; None if nothing is padded.
    dst_slot: Tensor | None
    src_slot: Tensor | None

    def pad_src(self, x: Tensor) -> Tensor:
        """$[n_{src}, h]$ → $[B, S, h]$."""
        return self._pad(x, self.src, self.src_slot, self.max_src)

    def pad_dst(self, x: Tensor) -> Tensor:
        """$[n_{dst}, h]$ → $[B, T, h]$."""
        return self._pad(x, self.dst, self.dst_slot, self.max_dst)

    def unpad_dst(self, padded: Tensor) -> Tensor:
        """$[B, T, h]$ → $[r, h]$, in the order of `dst`."""
        rows = padded.flatten(0, 1)
        return rows if self.dst_slot is None else rows.index_select(0, self.dst_slot)

    def _pad(self, x: Tensor, chosen: Tensor | None, slot: Tensor | None, rows: int) -> Tensor:
        if chosen is not None:
            x = x.index_select(0, chosen)
        if slot is not None:
            x = x.new_zeros(self.count * rows, x.shape[1]).index_copy(0, slot, x)
        return x.view(self.count, rows, -1)


def _pad_graphs(
    chosen: Tensor, dst: Tensor, src: Tensor, size: Tensor, num_dst: Tensor
) -> PaddedGraphs:
    """Batch the graphs in a mask $[G]$.

    `dst` $[n_{dst}]$ and `src` $[n_{src}]$ are the graph numbers of all nodes, `size` and `num_dst`
    $[G]$ the numbers of sources and destinations of each graph.
    """
    number = chosen.cumsum(0) - 1
    max_dst, max_src = int(num_dst[chosen].max()), int(size[chosen].max())
    destinations, dst_slot = _slots(chosen, number, dst, max_dst)
    sources, src_slot = _slots(chosen, number, src, max_src)
    is_single = int(chosen.sum()) == 1
    return PaddedGraphs(
        count=int(chosen.sum()),
        max_src=max_src,
        max_dst=max_dst,
        size=size[dst[destinations]].unsqueeze(1),
        dst=None if destinations.numel() == dst.numel() else destinations,
        src=None if sources.numel() == src.numel() else sources,
        dst_slot=None if is_single else dst_slot,
        src_slot=None if is_single else src_slot,
    )


def _slots(chosen: Tensor, number: Tensor, graph: Tensor, rows: int) -> tuple[Tensor, Tensor]:
    """Return the nodes of the chosen graphs, ascending, and their positions if each graph is padded
    to `rows` rows.
    """
    (nodes,) = chosen[graph].nonzero(as_tuple=True)
    batch = number[graph[nodes]]
    order = batch.argsort(stable=True)
    first = torch.searchsorted(batch[order], batch[order])
    rank = torch.empty_like(batch)
    rank[order] = torch.arange(batch.numel(), device=batch.device) - first
    return nodes, batch * rows + rank
