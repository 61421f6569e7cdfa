"""What models on columns share: which columns they read, and the weights of the nodes."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch
from torch import Tensor

from canet.data.task import MAX_SCORED, ShiftTask, sample_nodes
from canet.methods.base import ModelSettings
from canet.nn import Features
from canet.nn.model import rows_of
from canet.reading.prepared import PreparedGraph, as_dense, task_graph
from canet.reading.rows import bytes_of
from canet.reading.scaling import CPU, ROWS_AT_ONCE, Scaler
from canet.settings import setting
from canet.training.fields import hides_shifted_nodes
from canet.util.devices import has_room
from canet.util.files import scratch_array
from canet.util.progress import say

MAX_NUMBERS = 2**25
"""Numbers of the columns of a graph on disk that are in memory at the same time."""


@dataclass(frozen=True)
class TabularSettings(ModelSettings):
    """Settings of models on columns."""

    neighbours: bool = setting(
        True, "also use the mean of the neighbours, the mean of their means, and the degree"
    )

    def num_features(self, num_columns: int) -> int:
        """Return the number of features of a graph with this number of columns."""
        return (num_columns - 1) // 3 if self.neighbours else num_columns


class Columns:
    """The columns of a graph in memory or on disk, for some nodes at a time.

    On disk, means and deviations of neighbour columns are those of a random sample of nodes.

    Args:
        settings: Which columns, and how they are scaled.
        graph: The graph.
        device: Where the columns of a graph in memory are, if there is room, and where the means of
            neighbours of a graph on disk are computed.
        check: Called often, to end a training after its deadline.
        components: As for `FittedTrees`.
        marks: As for `FittedTrees`; None: there are no missing values.
    """

    def __init__(
        self,
        settings: TabularSettings,
        graph: PreparedGraph,
        device: torch.device = CPU,
        check: Callable[[], None] = lambda: None,
        components: Tensor | None = None,
        marks: Tensor | None = None,
    ) -> None:
        self._settings, self._graph, self._device = settings, graph, device
        self._check, self._components = check, components
        has_marks = components is None and marks is not None and marks.numel() > 0
        self._marks = marks if has_marks else None

    def prepare(self, nodes: Sequence[Tensor]) -> None:
        """Compute the columns of nodes at once that `rows` returns later."""
        if self._settings.neighbours and self._graph.in_pieces:
            ids = torch.cat([*nodes, self._sample])
            self._graph.neighbour_columns(ids, self._device, self._check)

    def rows(self, nodes: Tensor) -> Features:
        """Return the columns of nodes $[n]$."""
        if not self._graph.in_pieces:
            columns, place = self._whole
            return rows_of(columns, nodes.to(place))
        if not self._settings.neighbours and self._components is None:
            found = self._graph.rows(self._settings.scaling, CPU).rows(nodes)
            if self._marks is None:
                return found
            return with_missing(as_dense(found), self._raw(nodes), self._marks)
        return self._scaled(self._raw(nodes), nodes)

    def logits(
        self, nodes: Tensor | None, num_classes: int, predict: Callable[[Features], Tensor]
    ) -> Tensor:
        """Return what a function of columns predicts $[n, C]$ for nodes, or for all N."""
        if not self._graph.in_pieces:
            return predict(self._whole[0] if nodes is None else self.rows(nodes)).float()
        ids, at = (None, None) if nodes is None else nodes.unique(return_inverse=True)
        count = self._graph.user_graph.num_nodes if ids is None else ids.numel()
        logits, end = torch.from_numpy(scratch_array((count, num_classes), np.float32)), 0
        for part, rows in self.parts(ids):
            logits[end : end + part.numel()] = predict(rows)
            end += part.numel()
        return logits if at is None else logits[at]

    def parts(self, nodes: Tensor | None) -> Iterator[tuple[Tensor, Features]]:
        """Yield the columns of different nodes of a graph on disk, ascending, or of all."""
        count = self._graph.user_graph.num_nodes if nodes is None else nodes.numel()
        if self._settings.neighbours and count * self._graph.num_columns > MAX_NUMBERS:
            for ids, raw in self._graph.neighbour_parts(nodes, self._device, self._check):
                yield ids.cpu(), self._scaled(raw.cpu(), ids.cpu())
            return
        nodes = torch.arange(count) if nodes is None else nodes
        if count > ROWS_AT_ONCE:
            self.prepare([nodes])  # the next model reads the same
        for ids in nodes.split(ROWS_AT_ONCE):
            yield ids, self.rows(ids)

    @cached_property
    def _whole(self) -> tuple[Features, torch.device]:
        """All columns of a graph in memory, and their device."""
        graph, x = self._graph, self._graph.user_graph.x
        if self._components is not None:
            graph = graph.with_features(x @ self._components.T)
        self._check()
        graph = graph.with_neighbours() if self._settings.neighbours else graph
        self._check()
        columns = graph.features(self._settings.scaling)
        if self._marks is not None:
            own = x.to_dense() if x.layout == torch.sparse_csr else x
            columns = with_missing(as_dense(columns), own, self._marks)
        place = self._device if has_room(bytes_of(columns), self._device) else CPU
        return columns.to(place), place

    def _raw(self, nodes: Tensor) -> Tensor:
        if self._settings.neighbours:
            columns, at = self._graph.neighbour_columns(nodes, self._device, self._check)
            return columns[at]
        return as_dense(self._graph.rows("raw", CPU).rows(nodes))

    def _scaled(self, raw: Tensor, nodes: Tensor) -> Features:
        found = self._scaler.apply(self._project(raw), self._number(nodes))
        return found if self._marks is None else with_missing(as_dense(found), raw, self._marks)

    def _project(self, raw: Tensor) -> Tensor:
        if self._components is None:
            return raw
        parts, width = 3 if self._settings.neighbours else 1, self._components.shape[1]
        projected = raw[:, : parts * width].unflatten(1, (parts, width)) @ self._components.T
        return torch.cat([projected.flatten(1), raw[:, parts * width :]], dim=1)

    @cached_property
    def _sample(self) -> Tensor:
        """Nodes for means and deviations, from both parts of a graph that is separated."""
        mask = self._graph.separated
        if mask is None:
            return sample_nodes(torch.arange(self._graph.user_graph.num_nodes), MAX_SCORED)
        parts = (part.nonzero().squeeze(1) for part in (mask, ~mask))
        return torch.cat([sample_nodes(part, MAX_SCORED) for part in parts])

    @cached_property
    def _scaler(self) -> Scaler:
        how, raw = self._settings.scaling, torch.empty(0, 0)
        if how in ("centred", "standardised"):
            raw = self._project(self._raw(self._sample))
        return Scaler(raw, self._number(self._sample), how)

    def _number(self, nodes: Tensor) -> Tensor | None:
        mask = self._graph.separated
        return None if mask is None else mask[nodes].long()


def with_missing(columns: Tensor, own: Tensor, marks: Tensor) -> Tensor:
    """Return columns with NaN in the cells that `marks` and the features `own` say are missing."""
    columns = columns.clone()
    columns[:, marks[:, 0]] = columns[:, marks[:, 0]].masked_fill(
        own[:, marks[:, 1]] > 0, torch.nan
    )
    return columns


def training_rows(task: ShiftTask, name: str, width: int, most: int) -> Tensor:
    """Return the training nodes, or a random sample of them if the graph is on disk.

    The sample has at most `most` nodes, and few enough for their columns to fit into memory.
    """
    count = min(most, MAX_NUMBERS // width)
    if "csr" not in task.data or task.train.numel() <= count:
        return task.train
    say(f"{name}: training on a random sample of {count:,} nodes")
    return sample_nodes(task.train, count)


def training_graph(task: ShiftTask) -> PreparedGraph:
    """Return the graph that training may see."""
    return task_graph(task, hides_shifted_nodes(task, "train"))


def node_weights(task: ShiftTask, nodes: Tensor, class_weight: Tensor | None) -> Tensor:
    """Return the weight $[n]$ of some nodes, from their own weight and that of their class."""
    own, y = task.data.get("sample_weight"), task.data.y[nodes]
    weight = torch.ones(len(y)) if own is None else own[nodes]
    return weight if class_weight is None else weight * class_weight[y]
