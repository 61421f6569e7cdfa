"""Graph numbers of nodes, for sums over whole graphs; connected components of a graph on disk."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

import torch
from torch import Tensor

from canet.nn.blocks import ReceptiveField
from canet.nn.graphs import GraphSums


@dataclass(frozen=True)
class Membership:
    """The graph of each node, where a node that is alone in its graph has none.

    Args:
        number: Number $[N]$ of each node's graph; -1 if the node is alone.
        size: Number of nodes $[G]$ of each graph.
    """

    number: Tensor
    size: Tensor

    @classmethod
    def of(cls, graph: Tensor) -> Membership:
        """Build from graph numbers $[N]$ that start at 0."""
        count = torch.bincount(graph)
        is_kept = count > 1
        number = torch.where(is_kept, is_kept.cumsum(0) - 1, -1)
        return cls(number[graph], count[is_kept])

    def with_sums(self, field: ReceptiveField, sums: Iterable[Tensor]) -> ReceptiveField:
        """Add the sums over graphs, one for each layer, to the blocks of a receptive field."""
        device = field.nodes.device
        number = self.number[field.nodes.to(self.number.device)].to(device)
        return field.with_graphs(
            GraphSums(number[: block.num_dst], self.size.to(device), one)
            for block, one in zip(field.blocks, sums, strict=True)
        )


def components(
    num_nodes: int,
    pieces: Callable[[], Iterable[Tensor]],
    edges: Callable[[Tensor], tuple[Tensor, Tensor]],
) -> Tensor:
    """Return the number $[N]$ of each node's connected component, with arrays over nodes only.

    A label is the number of a node. Each pass over the edges gives both ends of an edge, and the
    nodes of their labels, the smaller label of both. Then each label is replaced by the label of
    its node, until nothing changes.

    Args:
        num_nodes: N.
        pieces: Returns all nodes in pieces.
        edges: Function from nodes to the two ends of their edges.
    """
    label = torch.arange(num_nodes)
    while True:
        before = label.clone()
        for nodes in pieces():
            ends = torch.cat(edges(nodes))
            low = torch.minimum(*label[ends].chunk(2)).repeat(2)
            label.scatter_reduce_(0, torch.cat([ends, label[ends]]), low.repeat(2), "amin")
        while not torch.equal(label, following := label[label]):
            label = following
        if torch.equal(before, label):
            return label.unique(return_inverse=True)[1]
