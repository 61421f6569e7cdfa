"""Columns for models that are not networks: those of a node, and means over its neighbours."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import scipy.sparse as sp
import torch
from torch import Tensor

from canet.data.task import MAX_SCORED, sample_nodes
from canet.methods.base import ModelSettings
from canet.nn import Features, Operator, ShiftedFeatures
from canet.nn.model import linear_map, rows_of
from canet.reading.pieces import Pieces, neighbour_means
from canet.reading.prepared import PreparedGraph
from canet.reading.rows import bytes_of
from canet.reading.scaling import CPU, ROWS_AT_ONCE, Scaler
from canet.settings import setting
from canet.util.devices import has_room
from canet.util.files import scratch_array
from canet.util.sparse import from_scipy, to_scipy

MAX_NUMBERS = 2**25  # numbers of the columns of a graph on disk that are in memory at the same time


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

    With `neighbours` these are the features x, the mean of the neighbours, the mean of their means,
    and log(1 + degree); models on the same graph share them. On disk, means and deviations of
    neighbour columns are those of random nodes: of all nodes, if `MAX_NUMBERS` allows it.

    Args:
        graph: The graph.
        settings: Which columns, and how they are scaled.
        device: Where the columns of a graph in memory are, if there is room, and where the means of
            neighbours of a graph on disk are computed.
        check: Called often, to end a training after its deadline.
        components: As for `FittedTrees`.
        marks: As for `FittedTrees`; None: there are no missing values.
        rounded: Whether the columns do not depend on the order of nodes and edges, nor on whether
            the graph is on disk: sums have double precision, and columns are rounded to 20 bits.
    """

    def __init__(
        self,
        graph: PreparedGraph,
        settings: TabularSettings,
        device: torch.device = CPU,
        check: Callable[[], None] = lambda: None,
        components: Tensor | None = None,
        marks: Tensor | None = None,
        rounded: bool = False,
    ) -> None:
        self._graph, self._neighbours, self._scaling = graph, settings.neighbours, settings.scaling
        self._device, self._check, self._components = device, check, components
        has_marks = components is None and marks is not None and marks.numel() > 0
        self._marks = marks if has_marks else None
        self._rounded, self._sums = rounded, torch.double if rounded else torch.float
        self._width = int((graph.data.x if components is None else components.T).shape[1])

    def prepare(self, nodes: Sequence[Tensor]) -> None:
        """Compute the columns of nodes at once that `rows` returns later."""
        if self._neighbours and self._graph.in_pieces:
            self._with_neighbours(torch.cat([*nodes, self._sample]))

    def rows(self, nodes: Tensor) -> Features:
        """Return the columns of nodes $[n]$."""
        if not self._graph.in_pieces:
            columns, place = self._whole
            return rows_of(columns, nodes.to(place))
        if not self._neighbours and self._components is None:
            found = self._graph.rows(self._scaling, CPU, check=self._check).rows(nodes)
            return self._finished(found, lambda: self._raw(nodes))
        return self._scaled(self._raw(nodes), nodes)

    def logits(
        self, nodes: Tensor | None, num_classes: int, predict: Callable[[Features], Tensor]
    ) -> Tensor:
        """Return what a function of columns predicts $[n, C]$ for nodes, or for all N."""
        if not self._graph.in_pieces:
            return predict(self._whole[0] if nodes is None else self.rows(nodes)).float()
        ids, at = (None, None) if nodes is None else nodes.unique(return_inverse=True)
        count = self._graph.data.num_nodes if ids is None else ids.numel()
        logits, end = torch.from_numpy(scratch_array((count, num_classes), np.float32)), 0
        for part, rows in self.parts(ids):
            logits[end : end + part.numel()] = predict(rows)
            end += part.numel()
        return logits if at is None else logits[at]

    def parts(self, nodes: Tensor | None) -> Iterator[tuple[Tensor, Features]]:
        """Yield the columns of different nodes of a graph on disk, ascending, or of all."""
        count = self._graph.data.num_nodes if nodes is None else nodes.numel()
        if self._neighbours and count * self._num_columns > MAX_NUMBERS:
            for ids, raw in self._in_pieces(nodes):
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
        graph, x = self._graph, self._graph.data.x
        if self._components is not None:
            graph = graph.with_features(self._project(x))
        self._check()
        graph = with_neighbours(graph, self._sums) if self._neighbours else graph
        self._check()
        columns = self._finished(graph.features(self._scaling), x.to_dense)
        place = self._device if has_room(bytes_of(columns), self._device) else CPU
        return columns.to(place), place

    def _raw(self, nodes: Tensor) -> Tensor:
        """Return columns $[n, D']$ of a graph on disk, which are not scaled."""
        if self._neighbours:
            columns, at = self._with_neighbours(nodes)
            return columns[at]
        return self._project(as_dense(self._graph.rows("raw", CPU).rows(nodes)))

    def _with_neighbours(self, nodes: Tensor) -> tuple[Tensor, Tensor]:
        """Return a matrix of columns that are not scaled, and the rows $[n]$ of nodes in it.

        The last matrix is kept, so that its nodes are not computed again.
        """
        components = self._components
        kind = self._rounded, None if components is None else components.numpy().tobytes()
        if self._graph.neighbour_rows is not None:
            ids, columns, kept = self._graph.neighbour_rows
            at = torch.searchsorted(ids, nodes).clamp(max=ids.numel() - 1)
            if kind == kept and torch.equal(ids[at], nodes):
                return columns, at
        ids, at = nodes.unique(return_inverse=True)
        columns = torch.from_numpy(scratch_array((ids.numel(), self._num_columns), np.float32))
        end = 0
        for part, found in self._in_pieces(ids):
            columns[end : end + part.numel()] = found.cpu()
            end += part.numel()
        self._graph.neighbour_rows = ids, columns, kind
        return columns, at

    @property
    def _num_columns(self) -> int:
        return 3 * self._width + 1 if self._neighbours else self._width

    def _in_pieces(self, nodes: Tensor | None) -> Iterator[tuple[Tensor, Tensor]]:
        """Yield different nodes of a graph on disk, ascending, and their columns, not scaled."""
        mean = Operator("mean")
        graph = self._graph.normalised([mean], self._device)
        reader = self._graph.rows("raw", graph.device, graph.num_readers)

        def rows(ids: Tensor) -> Tensor:
            self._check()
            return self._project(as_dense(reader.rows(ids)))

        pieces = Pieces(graph, 1, nodes)
        for ids, near, far in pieces.means(mean, rows, self._width, self._sums):
            degree = _log_degree(graph.degree(ids), self._sums)
            yield ids, torch.cat([rows(ids), near, far, degree], dim=1)

    def _scaled(self, raw: Tensor, nodes: Tensor) -> Features:
        return self._finished(self._scaler.apply(raw, self._number(nodes)), lambda: raw)

    def _finished(self, columns: Features, own: Callable[[], Tensor]) -> Features:
        """Return scaled columns, rounded, and with the missing values of features `own`."""
        if self._marks is not None:
            columns = with_missing(as_dense(columns), own(), self._marks)
        return _rounded(as_dense(columns)) if self._rounded else columns

    def _project(self, x: Tensor) -> Tensor:
        """Return features as they are or, if there are components, projected on these."""
        if self._components is None:
            return x
        weight = self._components.T.to(x.device, self._sums)
        parts = [x] if x.layout == torch.sparse_csr else x.split(ROWS_AT_ONCE)
        return torch.cat([(part.to(self._sums) @ weight).float() for part in parts])

    @cached_property
    def _sample(self) -> Tensor:
        """Nodes for means and deviations, from both parts of a graph that is separated."""
        graph, count = self._graph.data, max(MAX_SCORED, MAX_NUMBERS // self._num_columns)
        if graph.separated is None:
            return sample_nodes(torch.arange(graph.num_nodes), count)
        parts = (part.nonzero().squeeze(1) for part in (graph.separated, ~graph.separated))
        return torch.cat([sample_nodes(part, count) for part in parts])

    @cached_property
    def _scaler(self) -> Scaler:
        raw = torch.empty(0, 0)
        if self._scaling in ("centred", "standardised"):
            raw = self._raw(self._sample)
        return Scaler(raw, self._number(self._sample), self._scaling)

    def _number(self, nodes: Tensor) -> Tensor | None:
        mask = self._graph.data.separated
        return None if mask is None else mask[nodes].long()


def with_neighbours(graph: PreparedGraph, sums: torch.dtype = torch.float) -> PreparedGraph:
    """Return a graph in memory with columns of neighbours; see `Columns`. It is computed once.

    Sparse features stay sparse, unless the type of `sums` is double.
    """
    if sums not in graph.neighbours:
        mean = Operator("mean")
        matrix, x = graph.normalised([mean]).block.matrices[mean], graph.data.x
        known = graph.known_degree
        degree = _log_degree(matrix.pattern.rowptr.diff() if known is None else known, sums)
        if x.layout == torch.sparse_csr and sums == torch.float:
            adjacency, columns = to_scipy(matrix.as_torch), [to_scipy(x)]
            columns += [adjacency @ columns[-1]]
            columns += [adjacency @ columns[-1], sp.csr_matrix(degree.numpy())]
            joined = from_scipy(sp.hstack(columns).tocsr())
        else:
            x = x.to_dense()
            near = neighbour_means(matrix, x, sums)
            far = neighbour_means(matrix, near, sums)
            joined = torch.cat([x, near, far, degree.to(x.dtype)], dim=1)
        graph.neighbours[sums] = graph.with_features(joined)
    return graph.neighbours[sums]


def _log_degree(degree: Tensor, kind: torch.dtype) -> Tensor:
    r"""Return $\log(1 + d)$ $[n, 1]$ for degrees d $[n]$."""
    return degree.to(kind).log1p().float()[:, None]


def _rounded(columns: Tensor) -> Tensor:
    """Return numbers of 24 bits rounded to 20 bits; NaN stays NaN."""
    return ((columns.float().view(torch.int32) + 8) & -16).view(torch.float32)


def with_missing(columns: Tensor, own: Tensor, marks: Tensor) -> Tensor:
    """Return columns with NaN in the cells that `marks` and the features `own` say are missing."""
    columns = columns.clone()
    filled, is_missing = marks[:, 0], own[:, marks[:, 1]] > 0
    columns[:, filled] = columns[:, filled].masked_fill(is_missing, torch.nan)
    return columns


def as_dense(rows: Features) -> Tensor:
    """Return features as a dense matrix."""
    if isinstance(rows, ShiftedFeatures):
        return linear_map(rows, torch.eye(rows.shape[1], device=rows.offset.device))
    return rows if isinstance(rows, Tensor) else rows.as_torch.to_dense()
