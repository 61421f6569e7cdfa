"""Features that are read row by row, from memory-mapped files or from memory."""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property

import torch
from torch import Tensor

from canet.errors import InputError
from canet.methods.base import Preparation
from canet.nn import Features, SparseMatrix
from canet.nn.sampling import draw_neighbours
from canet.nn.sparse_matrix import Pattern
from canet.training.features import column_scale, prepare_features, shift_and_scale

ROWS_AT_ONCE = 2**16


class RowCache:
    """Rows of a matrix, of which the most used ones are on a device and the others on the CPU.

    Args:
        x: Dense matrix $[N, D]$ on the CPU, which may be a memory map.
        uses: How often each row is probably read $[N]$.
        num_bytes: Bytes for rows on the device.
        device: The device.
    """

    def __init__(self, x: Tensor, uses: Tensor, num_bytes: int, device: torch.device) -> None:
        self._x, self._device = x, device
        row_bytes = max(1, x.shape[1] * x.element_size())
        count = min(x.shape[0], num_bytes // row_bytes)
        nodes = uses.topk(count).indices.sort().values
        self._slot = torch.full((x.shape[0],), -1, device=device, dtype=torch.int32)
        self._slot[nodes.to(device)] = torch.arange(count, device=device, dtype=torch.int32)
        self._rows = torch.empty(count, x.shape[1], device=device, dtype=x.dtype)
        for first in range(0, count, ROWS_AT_ONCE):
            part = nodes[first : first + ROWS_AT_ONCE]
            self._rows[first : first + part.numel()] = x[part].to(device)

    def rows(self, nodes: Tensor) -> Tensor:
        """Return the rows of nodes $[n]$, on the device."""
        slot = self._slot[nodes.to(self._device)]
        is_cached = slot >= 0
        found = self._rows.new_empty(nodes.numel(), self._rows.shape[1])
        found[is_cached] = self._rows[slot[is_cached].long()]
        others = nodes[(~is_cached).to(nodes.device)].cpu()
        found[~is_cached] = _moved(self._x[others], self._device)
        return found


class FeatureStore:
    """Prepared features of some nodes at a time.

    Features that are read many times are kept on a GPU if they take at most half of its free
    memory. If not, up to a quarter of it has the rows of the nodes with the highest degrees, which
    are read most.

    Args:
        x: Features $[N, D]$, dense or sparse CSR, which may be memory maps.
        device: Device of the result.
        how: Preparation. Means and standard deviations are computed once, in two passes.
        degree: Function that returns the degree $[N]$ of each node; None: nothing is kept.
    """

    def __init__(
        self,
        x: Tensor,
        device: torch.device,
        how: Preparation,
        degree: Callable[[], Tensor] | None = None,
    ) -> None:
        if how == "quantile":
            raise InputError(
                "features=quantile needs the ranks of all nodes, but a graph store is read in "
                "parts: choose features=standardised, or pass the graph in memory, "
                "GraphStore(path).load()"
            )
        self._x, self._device, self._how = x, device, how
        self._is_sparse = x.layout == torch.sparse_csr
        self._cache: RowCache | None = None
        self._degree = degree if device.type == "cuda" else None

    def _keep_on_device(self, degree: Callable[[], Tensor]) -> None:
        self._degree = None
        x, free = self._x, torch.cuda.mem_get_info(self._device)[0]
        size = 8 * x.values().numel() if self._is_sparse else x.numel() * x.element_size()
        if size < free / 2:
            self._x = x.to(self._device)
        elif not self._is_sparse:
            self._cache = RowCache(x, degree(), free // 4, self._device)

    def on_gpu(self) -> Tensor | None:
        """Return all features $[N, D]$ if they are unprepared, dense and on a GPU."""
        if self._degree is not None:
            self._keep_on_device(self._degree)
        return self._x if self._how == "raw" and self._x.is_cuda and not self._is_sparse else None

    def rows(self, nodes: Tensor) -> Features:
        """Return the prepared features of nodes $[n]$, on the device."""
        rows = self._stored_rows(nodes)
        if self._how in ("raw", "rows"):
            return prepare_features(rows, None, self._how)
        graph = torch.zeros(nodes.numel(), dtype=torch.long, device=self._device)
        return shift_and_scale(rows, graph, *self._mean_and_scale)

    def _stored_rows(self, nodes: Tensor) -> Tensor | SparseMatrix:
        if self._degree is not None:
            self._keep_on_device(self._degree)
        if self._cache is not None:
            return self._cache.rows(nodes).float()
        if self._is_sparse:
            return self._sparse_rows(nodes).to(self._device)
        return _moved(self._x[nodes.to(self._x.device)], self._device).float()

    @cached_property
    def _mean_and_scale(self) -> tuple[Tensor, Tensor]:
        """Mean and scale $[1, D]$ of each column over all nodes, as doubles."""
        count = self._x.shape[0]
        mean = self._sum(torch.zeros(1, self._x.shape[1], dtype=torch.double), 1) / count
        deviation = (self._sum(mean, 2) / count).sqrt()
        scale = column_scale(mean, deviation, scaled=self._how == "standardised")
        return mean.to(self._device), scale.to(self._device)

    def _sum(self, mean: Tensor, power: int) -> Tensor:
        r"""Return $\sum_v (x_{vj} - m_j)^p$ $[1, D]$ for means m $[1, D]$."""
        total = torch.zeros_like(mean)
        for first in range(0, self._x.shape[0], ROWS_AT_ONCE):
            nodes = torch.arange(first, min(first + ROWS_AT_ONCE, self._x.shape[0]))
            rows = self._stored_rows(nodes).to("cpu")
            if isinstance(rows, Tensor):
                total += (rows - mean).pow(power).sum(dim=0)
                continue
            column, width = rows.pattern.col.long(), mean.shape[1]
            values = (rows.value - mean[0, column]).pow(power)
            zeros = nodes.numel() - torch.bincount(column, minlength=width)
            total += torch.bincount(column, values, minlength=width) + zeros * (-mean).pow(power)
        return total

    def _sparse_rows(self, nodes: Tensor) -> SparseMatrix:
        x = self._x
        drawn = draw_neighbours(x.crow_indices(), nodes.to(x.device), -1)
        pattern = Pattern(drawn.rowptr, x.col_indices()[drawn.entry], x.shape[1])
        return SparseMatrix(pattern, x.values()[drawn.entry])


def _moved(rows: Tensor, device: torch.device) -> Tensor:
    """Copy rows to a device; from the CPU to a GPU without waiting."""
    if rows.device.type == "cpu" and device.type == "cuda":
        return rows.pin_memory().to(device, non_blocking=True)
    return rows.to(device)
