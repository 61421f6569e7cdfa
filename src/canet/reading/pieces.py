"""Exact predictions of a large graph: layer by layer, in pieces that fit in memory."""

from collections import deque
from collections.abc import Callable, Iterator

import torch
from torch import Tensor

from canet.errors import InputError
from canet.nn import Features, GraphModel, NormalisedGraph, SparseMatrix
from canet.nn.blocks import Operator
from canet.nn.model import Prediction
from canet.nn.operations import multiply
from canet.util.devices import has_room
from canet.util.files import scratch_array

Rows = Callable[[Tensor], Features]
Piece = tuple[Tensor, Prediction]  # predictions of some nodes, and their rows in the result of all

ROWS_AT_ONCE = 2**16  # nodes whose features are read at once
EDGES_AT_ONCE = {"cpu": 2**19, "cuda": 2**21}
"""Edges that one piece of a layer reads, unless a single node has more; by device of the model."""
MAX_SUMS = 2**28  # most numbers in the sums over graphs of a layer
WIDTH = 64  # for wider rows, a piece has fewer edges


class Pieces:
    """Predicts the same nodes of a graph any number of times, layer by layer and in pieces.

    Each layer passes once over the edges of the nodes whose states are needed, so the result is
    that of the whole graph, which is on the CPU or on the device of the models. `nodes` are ids in
    any order, and may occur several times; None: all nodes.
    """

    def __init__(
        self, graph: NormalisedGraph, num_layers: int, nodes: Tensor | None = None
    ) -> None:
        self._graph = graph
        self._wanted = None if nodes is None else nodes.cpu().sort(stable=True)
        ids = None if self._wanted is None else self._wanted.values.unique_consecutive()
        self._needed = [None if ids is None else ids.to(graph.device)]
        for _ in range(num_layers):
            self._needed.append(self._sources(self._needed[-1]))
        self._needed.reverse()  # the nodes whose states each layer reads, then the predicted nodes

    def _sources(self, nodes: Tensor | None) -> Tensor | None:
        """Return the nodes that some nodes read in one layer, ascending; None: all nodes."""
        if nodes is None or self._graph.attends_over_graphs:
            return None
        is_read = torch.zeros(self._graph.num_nodes, dtype=torch.bool, device=nodes.device)
        is_read[nodes] = True
        for ids in self._graph.pieces(nodes, EDGES_AT_ONCE[nodes.device.type]):
            is_read[self._graph.neighbours(ids)] = True
        return is_read.nonzero().squeeze(1)

    @torch.no_grad()
    def predict(self, model: GraphModel, rows: Rows) -> Iterator[Piece]:
        """Yield predictions without environments, and their rows, nodes with lower ids first.

        Args:
            model: The model, in evaluation mode.
            rows: Function from node ids to their prepared features on the device of the model.
        """
        (last,) = deque(self._inputs(model, rows), maxlen=1)
        for ids, states in self._outputs(model, model.num_layers - 1, *last):
            ids, found = ids.cpu(), model.last_prediction(states)
            if self._wanted is None:
                yield ids, found
                continue
            ends = torch.stack([ids[0], ids[-1] + 1])
            first, end = torch.searchsorted(self._wanted.values, ends).tolist()
            at = torch.searchsorted(ids, self._wanted.values[first:end]).to(found.logits.device)
            chosen = Prediction(found.logits[at], found.representation[at])
            yield self._wanted.indices[first:end], chosen

    @torch.no_grad()
    def sums(self, model: GraphModel, rows: Rows) -> list[Tensor]:
        """Return the sums over graphs of each layer; arguments as for `predict`."""
        return [sums for _, sums in self._inputs(model, rows) if sums is not None]

    @torch.no_grad()
    def means(
        self, mean: Operator, rows: Rows, width: int, sums: torch.dtype
    ) -> Iterator[tuple[Tensor, ...]]:
        """Yield ids $[n]$, ascending, the means of their neighbours, and the means of these.

        `rows` returns dense features $[n, D]$ of this width D on the device of the graph. `sums` is
        the type of their sums.
        """
        states = _States(self._needed[0], self._graph)
        num_edges = max(1, EDGES_AT_ONCE[self._graph.device.type] * WIDTH // max(WIDTH, width))
        for ids in self._graph.pieces(self._needed[0], num_edges):
            field = self._graph.sampled_field(ids, [-1])
            x = rows(field.nodes)
            assert isinstance(x, Tensor)
            states.write(ids, neighbour_means(field.blocks[0].matrices[mean], x, sums))
        for ids in self._graph.pieces(self._needed[1], num_edges):
            field = self._graph.sampled_field(ids, [-1])
            near = states.read(field.nodes).to(self._graph.device)
            far = neighbour_means(field.blocks[0].matrices[mean], near, sums)
            yield ids, near[: ids.numel()], far

    def _inputs(self, model: GraphModel, rows: Rows) -> "Iterator[tuple[_States, Tensor | None]]":
        """Yield the states that each layer reads, and their sums over graphs if it needs them."""
        states = _States(self._needed[0], self._graph)
        for ids in states.ids().split(ROWS_AT_ONCE):
            states.write(ids, model.first_states(rows(ids)))
        sums = self._sums(model, 0, states)
        yield states, sums
        for layer, nodes in enumerate(self._needed[1:-1]):
            following = _States(nodes, self._graph)
            for ids, found in self._outputs(model, layer, states, sums):
                following.write(ids, found)
            states, sums = following, self._sums(model, layer + 1, following)
            yield states, sums

    def _outputs(
        self, model: GraphModel, layer: int, states: "_States", sums: Tensor | None
    ) -> Iterator[tuple[Tensor, Tensor]]:
        """Yield the ids of nodes and their states after a layer."""
        device = model.phi_out.weight.device
        num_edges = EDGES_AT_ONCE[device.type]
        for ids in self._graph.pieces(self._needed[layer + 1], num_edges):
            field = self._graph.sampled_field(ids, [-1])
            read = states.read(field.nodes).to(device)
            if sums is not None:
                field = self._graph.with_sums(field, [sums])
            yield ids, model.next_states(layer, read, field.blocks[0].to(device))

    def _sums(self, model: GraphModel, layer: int, states: "_States") -> Tensor | None:
        """Return the sums over graphs that a layer needs, or None."""
        if not self._graph.attends_over_graphs:
            return None
        device, total = model.phi_out.weight.device, None
        number, size = self._graph.membership
        if len(size) * model.hidden**2 > MAX_SUMS:
            raise InputError(
                f"this backbone needs hidden² numbers for each of the {len(size):,} connected "
                "components of the graph, which is too much memory: choose another backbone, or a "
                "smaller hidden"
            )
        for ids in states.ids().split(ROWS_AT_ONCE):
            of_nodes = number[ids].to(device)
            part = model.graph_sums(layer, states.read(ids).to(device), of_nodes, len(size))
            total = part if total is None else total + part
        return total


def neighbour_means(matrix: SparseMatrix, x: Tensor, sums: torch.dtype) -> Tensor:
    """Return $A x$; with `sums` of doubles, the order of the neighbours hardly matters."""
    return multiply(matrix.to(x.device, sums), x.to(sums)).to(x.dtype)


class _States:
    """States of nodes, ascending, or of all: on a GPU with the graph, in memory or in a file."""

    def __init__(self, nodes: Tensor | None, graph: NormalisedGraph) -> None:
        self._nodes, self._device = nodes, graph.device
        self._count = graph.num_nodes if nodes is None else nodes.numel()
        self._states: Tensor | None = None

    def ids(self) -> Tensor:
        if self._nodes is None:
            return torch.arange(self._count, device=self._device)
        return self._nodes

    def write(self, ids: Tensor, states: Tensor) -> None:
        """Store the states $[n, s]$ of nodes."""
        if self._states is None:
            self._states = _array(self._count, states, self._device)
        place = self._states.device
        self._states[self._rows(ids).to(place)] = states.to(place)

    def read(self, ids: Tensor) -> Tensor:
        """Return the states of nodes."""
        assert self._states is not None
        return self._states[self._rows(ids).to(self._states.device)]

    def _rows(self, ids: Tensor) -> Tensor:
        return ids if self._nodes is None else torch.searchsorted(self._nodes, ids)


def _array(rows: int, like: Tensor, device: torch.device) -> Tensor:
    """Return an array with the given number of rows: on a GPU if a quarter of its free memory is
    enough, else as `scratch_array`."""
    shape, size = (rows, like.shape[1]), rows * like.shape[1] * like.element_size()
    if device.type == "cuda" and has_room(2 * size, device):
        return torch.empty(shape, dtype=like.dtype, device=device)
    return torch.from_numpy(scratch_array(shape, torch.empty(0, dtype=like.dtype).numpy().dtype))
