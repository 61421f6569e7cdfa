"""Batches and scores of a large graph: on disk, or with very many edges."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor

from canet.data.task import ShiftTask
from canet.methods import Method, TrainingView
from canet.nn import Block, Features, Graph, ReceptiveField
from canet.training.feature_store import FeatureStore
from canet.training.fields import TaskFields
from canet.training.pieces import Pieces
from canet.util.sparse import Csr

CPU = torch.device("cpu")
MAX_EDGES = 2**24
"""With more edges, the receptive field of a split may not fit on a GPU."""
BYTES_PER_NODE = 16  # row pointers and positions
BYTES_TO_SORT = 64
"""Bytes for each edge that is sorted on a GPU."""


def is_large(task: ShiftTask) -> bool:
    """Whether a task that is trained in batches needs `LargeFields`."""
    return "csr" in task.data or task.num_edges > MAX_EDGES


def has_room(num_bytes: int, device: torch.device) -> bool:
    """Whether a device can keep so much: at most half of the free memory of a GPU."""
    return device.type == "cpu" or num_bytes < torch.cuda.mem_get_info(device)[0] / 2


def place_of_edges(csr: Csr, device: torch.device) -> torch.device:
    """Return the device if it has room for the edges of a store, or else the CPU."""
    per_edge = 4 + 4 * (csr.weight is not None)
    size = BYTES_PER_NODE * (csr.rowptr.numel() - 1) + per_edge * csr.col.numel()
    return device if has_room(size, device) else CPU


class LargeFields(TaskFields):
    """The batches of a large graph, which is trained in batches and scored in pieces.

    Scores are exact. The edges are on the device if they fit there, and else in memory, or on disk
    for a graph store. Arguments as for `TaskFields`.
    """

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self._csr: Csr | None = self.task.data.get("csr")
        self._lazy: dict[tuple[bool, torch.device], Graph] = {}
        self._pieces: dict[tuple[str, ...], Pieces] = {}
        self._place: torch.device | None = None  # of the edges that neighbours are drawn from
        if self._csr is not None:
            uses = partial(self._num_readers, False)
            x, how = self.task.data.x, self._preparation
            self._readers[False] = FeatureStore(x, self._device, how, uses)
            self._lazy_graph(hidden=False)  # rejects models that need the whole graph

    @torch.no_grad()
    def logits(self, method: Method) -> dict[str, tuple[Tensor, Tensor]]:
        """Return logits $[n, C]$ and labels $[n]$ of every split, by its name, on the CPU."""
        found: dict[str, tuple[Tensor, Tensor]] = {}
        for hidden in (True, False):
            if splits := [split for split in self.nodes if self._hidden(split) == hidden]:
                found |= self._predict(method, tuple(splits))
        return {split: found[split] for split in self.nodes}

    def predict(self, method: Method, split: str) -> tuple[Tensor, Tensor]:
        """Return logits $[n, C]$ and labels $[n]$ of one split, on the CPU."""
        return self._predict(method, (split,))[split]

    def _predict(self, method: Method, splits: tuple[str, ...]) -> dict[str, tuple[Tensor, Tensor]]:
        """Predict splits on the same graph; they share the states of their neighbours."""
        nodes, hidden = torch.cat([self.nodes[s] for s in splits]), self._hidden(splits[0])
        if splits not in self._pieces:
            graph = self._on_cpu(hidden)
            if not graph.attends_over_graphs:
                graph = self._graph_on_device(hidden) or graph
            self._pieces[splits] = Pieces(graph, self._num_layers, nodes)
        model, order, first = method.model, nodes.argsort(), 0
        logits = torch.empty(nodes.numel(), model.phi_out.out_features)
        for ids, found in self._pieces[splits].predict(model, partial(self._rows, hidden=hidden)):
            logits[order[first : first + ids.numel()]] = found.logits.cpu()
            first += ids.numel()
        sizes = [self.nodes[split].numel() for split in splits]
        parts = zip(splits, logits.split(sizes), strict=True)
        return {split: (part, self.task.data.y[self.nodes[split]]) for split, part in parts}

    def view(self) -> TrainingView:
        """Return the part of the task that a method may use in training.

        The features of a graph store are as stored, and its edges are left out: methods that need
        them do not train in batches.
        """
        if self._csr is None:
            return super().view()
        return TrainingView(
            x=self.task.data.x,
            edge_index=torch.empty(2, 0, dtype=torch.long),
            observed=self.task.observed(),
            train=self.task.train,
            y=self.task.data.y[self.task.train],
            read=lambda nodes: self._read(nodes, hidden=False),
            field=lambda: self._field(self.task.train, hidden=False).nodes,
            environment=self.task.data.environment if self.task.has_environments else None,
        )

    def _needs_sums(self, fanout: Sequence[int]) -> bool:
        return self._attends_over_graphs

    def _on_cpu(self, hidden: bool) -> Graph:
        return self._lazy_graph(hidden)

    def _draw(
        self, nodes: Tensor, fanout: Sequence[int], seed: int, sums: Sequence[Tensor]
    ) -> tuple[Features, tuple[Block, ...]]:
        hidden, place = self._hidden("train"), self._place_of_edges()
        field = self._lazy_graph(hidden, place).sampled_field(nodes.to(place), fanout, seed)
        if sums:
            field = self._on_cpu(hidden).with_sums(field, sums)
        return self._rows(field.nodes, hidden), field.to(self._device).blocks

    def _read(self, nodes: Tensor, hidden: bool) -> tuple[Features, tuple[Block, ...]]:
        field = self._field(nodes, hidden)
        return self._rows(field.nodes, hidden), field.to(self._device).blocks

    def _place_of_edges(self) -> torch.device:
        """Return the device, if the edges take at most half of its free memory, or else the CPU."""
        if self._place is None and self._csr is not None:
            self._place = place_of_edges(self._csr, self._device)
        if self._place is None:
            size = BYTES_TO_SORT * self.task.data.edge_index.shape[1]
            self._place = self._device if has_room(size, self._device) else CPU
        return self._place

    def _graph_on_device(self, hidden: bool) -> Graph | None:
        place = self._place_of_edges()
        return self._lazy_graph(hidden, place) if place == self._device else None

    def _field(self, nodes: Tensor, hidden: bool) -> ReceptiveField:
        return self._lazy_graph(hidden).sampled_field(nodes, (-1,) * self._num_layers)

    def _lazy_graph(self, hidden: bool, device: torch.device = CPU) -> Graph:
        key = hidden, device
        if key in self._lazy:
            return self._lazy[key]
        if device != CPU:
            self._lazy[key] = self._lazy_graph(hidden).to(device)
        elif self._csr is not None:
            count = self.task.num_nodes
            self._lazy[key] = Graph(self._csr, count, self._operators, dtype=torch.float)
        else:
            edges, weight = self._edges(hidden)
            numbers = self._numbers(hidden)
            self._lazy[key] = Graph(edges, self.task.num_nodes, self._operators, numbers, weight)
        return self._lazy[key]
