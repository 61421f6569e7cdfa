"""The sampler for PyG's `NodeLoader`, which then needs neither pyg-lib nor torch-sparse."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor
from torch_geometric.data import Data
from torch_geometric.sampler import BaseSampler, NodeSamplerInput, SamplerOutput

from canet.nn.sampling import draw_neighbours


class NeighbourSampler(BaseSampler):
    """Draws neighbours of nodes: `NodeLoader(data, node_sampler=NeighbourSampler(data, [15, 10]))`.

    A node with more neighbours than `num_neighbors` draws with replacement, so that an edge may
    occur twice in a batch.

    Args:
        data: Graph with `edge_index`; messages go from source to target.
        num_neighbors: Number of neighbours to draw in each hop, from the seed nodes on; -1: all.
        seed: Seed of the random numbers.
    """

    def __init__(self, data: Data, num_neighbors: Sequence[int], seed: int = 0) -> None:
        source, target = data.edge_index.cpu()
        self._order = torch.argsort(target, stable=True)
        self._source = source[self._order]
        count = torch.bincount(target, minlength=int(data.num_nodes or 0))
        self._rowptr = torch.cat([count.new_zeros(1), count.cumsum(0)])
        self._num_neighbors = list(num_neighbors)
        self._generator = torch.Generator().manual_seed(seed)

    def sample_from_nodes(self, index: NodeSamplerInput, **_: object) -> SamplerOutput:
        """Draw the neighbourhood of the nodes of a batch."""
        nodes = frontier = index.node
        parts: list[tuple[Tensor, Tensor, Tensor]] = []
        sizes, first = [nodes.numel()], 0
        for count in self._num_neighbors:
            seed = int(torch.randint(2**31, (1,), generator=self._generator))
            drawn = draw_neighbours(self._rowptr, frontier, count, seed)
            source = self._source[drawn.entry]
            new = source.unique()
            new = new[~torch.isin(new, nodes)]
            parts.append((source, drawn.row + first, self._order[drawn.entry]))
            first = nodes.numel()
            nodes, frontier = torch.cat([nodes, new]), new
            sizes.append(new.numel())
        position = nodes.argsort(stable=True)
        ordered = nodes[position]
        rows = [position[torch.searchsorted(ordered, source)] for source, _, _ in parts]
        return SamplerOutput(
            node=nodes,
            row=torch.cat(rows),
            col=torch.cat([target for _, target, _ in parts]),
            edge=torch.cat([edge for _, _, edge in parts]),
            num_sampled_nodes=sizes,
            num_sampled_edges=[row.numel() for row in rows],
            metadata=(index.input_id, index.time),
        )

    def sample_from_edges(self, *_: object, **__: object) -> SamplerOutput:
        """Not supported: this sampler is for node classification."""
        raise NotImplementedError("NeighbourSampler samples from nodes: use NodeLoader")

    @property
    def edge_permutation(self) -> None:
        """Edges are numbered as in `data.edge_index`."""
        return None
