"""What models read of one graph, and what they predict: of some nodes, at once or in pieces."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from canet.methods.base import Scaling
from canet.nn import Block, Features, GraphModel, NormalisedGraph, Operator
from canet.nn.blocks import ReceptiveField
from canet.nn.model import rows_of
from canet.reading.pieces import Piece, Pieces
from canet.reading.prepared import PreparedGraph
from canet.reading.rows import RowReader
from canet.reading.scaling import CPU

MAX_EDGES = 2**24  # with more edges, the receptive field of many nodes may not fit on a GPU
SMALL_SHARE = 0.01
"""If fewer of all nodes are predicted once, only their neighbourhood is read from disk."""


@dataclass(eq=False)
class GraphFields:
    """Features and receptive fields in one graph, for models with given operators and depth.

    A graph on disk, or with very many edges if the models are trained `in_batches`, is never
    normalised or predicted as a whole, but in pieces, with the same result.
    """

    graph: PreparedGraph
    operators: Sequence[Operator]
    num_layers: int
    device: torch.device  # of the models
    scaling: Scaling = "raw"
    in_batches: bool = False
    is_kept: bool = True  # whether it is used many times, so that reading is made fast first

    def __post_init__(self) -> None:
        many_edges = self.in_batches and self.graph.data.num_edges > MAX_EDGES
        self.in_pieces = self.graph.in_pieces or many_edges
        if self.graph.in_pieces:
            self.on()  # reject models that need the whole graph

    def draws(self, fanout: Sequence[int]) -> bool:
        """Whether a batch with this number of neighbours in each layer is cut out of the graph."""
        return self.in_pieces or any(count > 0 for count in fanout)

    def on(self, device: torch.device = CPU) -> NormalisedGraph:
        """Return the graph, on the device if that has room for it."""
        return self.graph.normalised(self.operators, device)

    @cached_property
    def reader(self) -> RowReader:
        uses = (lambda: self.on(self.device).num_readers()) if self.is_kept else None
        return self.graph.rows(self.scaling, self.device, uses)

    def field(self, nodes: Tensor) -> ReceptiveField:
        """Return the receptive field of some nodes."""
        if self.in_pieces:  # without normalising the whole graph
            return self.on().sampled_field(nodes, (-1,) * self.num_layers)
        return self.on().receptive_field(nodes, self.num_layers)

    def read(self, nodes: Tensor) -> tuple[Features, tuple[Block, ...]]:
        """Return features and blocks of some nodes, on the device."""
        field = self.field(nodes)
        blocks = field.to(self.device).blocks
        if self.in_pieces:
            return self.reader.rows(field.nodes), blocks
        rows = rows_of(self.graph.features(self.scaling), field.nodes)
        return rows.to(self.device), blocks

    def pieces(self, nodes: Tensor | None = None) -> Pieces:
        """Return the pieces in which nodes, or all nodes, are predicted any number of times."""
        # Sums over whole graphs need the graph on the CPU.
        on_cpu = any(operator.kind == "graph" for operator in self.operators)
        if nodes is not None and not self.is_kept:
            on_cpu |= nodes.unique().numel() < SMALL_SHARE * self.graph.data.num_nodes
        return Pieces(self.on(CPU if on_cpu else self.device), self.num_layers, nodes)

    @torch.no_grad()
    def predict(self, model: GraphModel, nodes: Tensor | None = None) -> Iterator[Piece]:
        """Yield predictions of nodes, or of all nodes, and their rows: at once or in pieces."""
        if self.in_pieces:
            yield from self.pieces(nodes).predict(model, self.reader.rows)
            return
        if nodes is None:
            x = self.graph.features(self.scaling).to(self.device)
            blocks = self.on().whole(self.num_layers, self.device).blocks
        else:
            x, blocks = self.read(nodes)
        found = model(x, blocks)
        yield torch.arange(len(found.logits)), found
