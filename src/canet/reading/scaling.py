"""Scaling of features with statistics of each graph. The model stores no statistics."""

from collections.abc import Callable
from functools import cached_property

import torch
from torch import Tensor

from canet.methods.base import Scaling
from canet.nn import Features, ShiftedFeatures, SparseMatrix
from canet.nn.sampling import draw_neighbours
from canet.nn.sparse_matrix import Pattern
from canet.util.sparse import select_rows

MIN_DEVIATION = torch.finfo(torch.float32).eps
"""Smallest standard deviation of a column, relative to its mean, at which it is not constant."""
ROWS_AT_ONCE = 2**12
"""Larger pieces take several times as long on a CPU, because their memory is not reused."""
CPU = torch.device("cpu")


def prepare_features(
    x: Tensor, graph: Tensor | None, how: Scaling, typical: Tensor | None = None
) -> Features:
    r"""Scale features $[N, D]$ separately for each graph:

    - `raw`: unchanged;
    - `rows`: $x_{vj} / \sum_i |x_{vi}|$;
    - `centred`: $x_{vj} - m_{gj}$, with m the mean over the nodes of v's graph g;
    - `standardised`: $(x_{vj} - m_{gj}) / s_{gj}$, with s their standard deviation, or 1 for a
      constant column.

    Sparse features stay sparse: the means are stored as one offset per graph. `graph` is the graph
    number $[N]$ of each node; None: all nodes are in one graph. With `typical`, nodes $[t]$ of a
    single graph, m and s are those of these nodes.
    """
    rows = SparseMatrix.from_torch(x) if x.layout == torch.sparse_csr else x
    return Scaler(x if typical is None else select_rows(x, typical), graph, how).apply(rows)


class Scaler:
    """Scales features as `prepare_features` does, also some rows at a time.

    The features may be memory maps. Their means and standard deviations are computed once, in two
    passes, which call `check` often. The rows to scale are on the device.
    """

    def __init__(
        self, x: Tensor, graph: Tensor | None, how: Scaling, device: torch.device = CPU
    ) -> None:
        self._x, self._how, self._device = x, how, device
        self.check: Callable[[], None] = lambda: None
        self._number = graph
        if graph is not None:  # a mask is small, also for very many nodes
            is_mask = graph.dtype == torch.bool
            self._number = graph.byte() if is_mask else graph.unique(return_inverse=True)[1]
        self._number_there = None if self._number is None else self._number.to(device)

    def apply(self, rows: Tensor | SparseMatrix, number: Tensor | None = None) -> Features:
        """Scale rows of the features; `number` $[n]$ is their graph, by default that of all."""
        if self._how == "raw":
            return rows
        if self._how == "rows":
            return _divide_by_row_sum(rows)
        number = self._number if number is None else number
        if number is None:
            number = torch.zeros(rows.shape[0], dtype=torch.long, device=self._device)
        return _shift_and_scale(rows, number, *self._mean_and_scale)

    def number_of(self, nodes: Tensor) -> Tensor | None:
        """Return the graph $[n]$ of some nodes, on the device; None if there is only one."""
        number = self._number_there
        return None if number is None else number[nodes.to(self._device)].long()

    @cached_property
    def _mean_and_scale(self) -> tuple[Tensor, Tensor]:
        """Mean and scale $[G, D]$ of the columns in each graph, as doubles.

        The scale is 1 / deviation, or 1 for constant columns and if the columns are only centred.
        """
        size = torch.tensor([self._x.shape[0]])
        if self._number is not None:
            size = torch.bincount(self._number)
        per_graph = size[:, None].double()
        mean = self._sum(torch.zeros(len(size), self._x.shape[1], dtype=torch.double)) / per_graph
        scale = torch.ones_like(mean)
        if self._how == "standardised":
            deviation = (self._sum(mean, per_graph) / per_graph).sqrt()
            scale = torch.where(deviation > MIN_DEVIATION * mean.abs(), 1 / deviation, 1.0)
        return mean.to(self._device), scale.to(self._device)

    def _sum(self, mean: Tensor, size: Tensor | None = None) -> Tensor:
        r"""Return $\sum_v (x_{vj} - m_{gj})^p$ over the nodes v of each graph g $[G, D]$.

        p is 1, or 2 with the number of nodes $[G, 1]$ of each graph.
        """
        total, count = torch.zeros_like(mean), torch.zeros_like(mean)
        power = 1 if size is None else 2
        for first in range(0, self._x.shape[0], ROWS_AT_ONCE):
            self.check()
            nodes = torch.arange(first, min(first + ROWS_AT_ONCE, self._x.shape[0]))
            number = torch.zeros_like(nodes) if self._number is None else self._number[nodes].long()
            if not self._x.is_sparse_csr:
                total.index_add_(0, number, (self._x[nodes] - mean[number]).pow(power))
                continue
            rows = sparse_rows(self._x, nodes)
            cell = number[rows.pattern.row] * mean.shape[1] + rows.pattern.col
            total.view(-1).index_add_(0, cell, (rows.value - mean.view(-1)[cell]).pow(power))
            count.view(-1).index_add_(0, cell, torch.ones(cell.shape, dtype=torch.double))
        if self._x.is_sparse_csr and size is not None:
            total += (size - count) * mean.square()
        return total


def sparse_rows(x: Tensor, nodes: Tensor) -> SparseMatrix:
    """Return rows of a sparse CSR tensor, which may have more entries than 32-bit numbers."""
    drawn = draw_neighbours(x.crow_indices(), nodes, -1)
    pattern = Pattern(drawn.rowptr, x.col_indices()[drawn.entry], x.shape[1])
    return SparseMatrix(pattern, x.values()[drawn.entry])


def _divide_by_row_sum(x: Tensor | SparseMatrix) -> Tensor | SparseMatrix:
    """Divide each row by the sum of its absolute values; rows of zeros do not change."""
    if isinstance(x, Tensor):
        total = x.abs().sum(dim=1, dtype=torch.double)
        return (x / torch.where(total > 0, total, 1.0)[:, None]).float()
    row = x.pattern.row.long()
    total = torch.bincount(row, weights=x.value.abs(), minlength=x.shape[0])
    return SparseMatrix(x.pattern, (x.value / torch.where(total > 0, total, 1.0)[row]).float())


def _shift_and_scale(
    x: Tensor | SparseMatrix, number: Tensor, mean: Tensor, scale: Tensor
) -> Features:
    """Subtract `mean` $[G, D]$ and multiply by `scale` $[G, D]$ of each row's graph $[n]$."""
    if isinstance(x, Tensor):  # doubles of some rows at a time need little memory
        count = ROWS_AT_ONCE if x.device == CPU else 16 * ROWS_AT_ONCE  # few kernels on a GPU
        scaled = torch.empty_like(x, dtype=torch.float)
        for rows in (slice(first, first + count) for first in range(0, x.shape[0], count)):
            scaled[rows] = (x[rows] - mean[number[rows]]) * scale[number[rows]]
        return scaled
    pattern = x.pattern
    value = x.value * scale[number[pattern.row], pattern.col]
    starts = torch.arange(len(number) + 1, device=number.device)
    one_hot = Pattern(starts, number, len(mean))
    member = SparseMatrix(one_hot, torch.ones(len(number), device=number.device))
    return ShiftedFeatures(SparseMatrix(pattern, value.float()), (-mean * scale).float(), member)
