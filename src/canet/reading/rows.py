"""Features that are read row by row, from a device, from memory or from memory-mapped files."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from canet.nn import Features, ShiftedFeatures, SparseMatrix
from canet.nn.model import rows_of
from canet.nn.operations import fused, select_rows
from canet.reading.scaling import CPU, ROWS_AT_ONCE, Scaler, sparse_rows
from canet.util import distributed
from canet.util.devices import has_room
from canet.util.memory import free_memory


class RowCache:
    """Rows of a dense matrix $[N, D]$, which may be a memory map.

    Those that are probably read most, by `uses` $[N]$, are on a device, in `num_bytes`; the others
    are on the CPU. A GPU reads pinned memory by itself.
    """

    def __init__(self, x: Tensor, uses: Tensor, num_bytes: int, device: torch.device) -> None:
        self._x, self._device = x, device
        row_bytes = max(1, x.shape[1] * x.element_size())
        count = min(x.shape[0], num_bytes // row_bytes)
        nodes = uses.to(device).topk(count).indices.sort().values
        self._slot = torch.full((x.shape[0],), -1, device=device, dtype=torch.int32)
        self._slot[nodes] = torch.arange(count, device=device, dtype=torch.int32)
        self._kept = torch.empty(count, x.shape[1], device=device, dtype=x.dtype)
        for first in range(0, count, ROWS_AT_ONCE):
            part = nodes[first : first + ROWS_AT_ONCE].cpu()
            self._kept[first : first + part.numel()] = x[part].to(device)
        self.is_read_by_gpu = fused.on_gpu(self._slot) and x.is_pinned()

    def rows(self, nodes: Tensor) -> Tensor:
        """Return the rows of nodes $[n]$, on the device."""
        if self.is_read_by_gpu:
            return select_rows(self._x, nodes.to(self._device), self._kept, self._slot)
        slot = self._slot[nodes.to(self._device)]
        is_kept = slot >= 0
        found = self._kept.new_empty(nodes.numel(), self._kept.shape[1])
        found[is_kept] = self._kept[slot[is_kept].long()]
        others = nodes[(~is_kept).to(nodes.device)].cpu()
        found[~is_kept] = _moved(self._x[others], self._device)
        return found.float()


@dataclass(eq=False)
class RowReader:
    """Rows of a matrix, some at a time, on a device.

    If a GPU reads each row many times, rows are copied to it. A matrix that fits into half of its
    free memory is copied as a whole. Of a larger dense matrix, those rows are copied that are read
    most, as many as fit into a quarter of that memory. The GPU reads the others from pinned memory,
    unless the processes of this machine would pin more than half of its free memory.
    """

    x: Features  # matrix $[N, D]$; a tensor, dense or sparse CSR, may have memory maps
    device: torch.device  # device of the result
    # Function that returns how often each row $[N]$ is probably read; None: seldom.
    uses: Callable[[], Tensor] | None = None
    scaler: Scaler | None = None  # scales the rows after they were read; None: they are not scaled

    @cached_property
    def _source(self) -> Features | RowCache:
        """Where the rows are read."""
        x = self.x
        if self.uses is None or self.device.type != "cuda":
            return x
        if has_room(bytes_of(x), self.device):
            return x.to(self.device)
        if not isinstance(x, Tensor) or x.is_sparse_csr:
            return x
        free = torch.cuda.mem_get_info(self.device)[0]
        return RowCache(pinned(x), self.uses(), free // 4, self.device)

    @property
    def is_read_by_gpu(self) -> bool:
        """Whether a GPU reads dense rows without the CPU."""
        source = self._source
        if isinstance(source, RowCache):
            return source.is_read_by_gpu
        return isinstance(source, Tensor) and source.is_cuda and not source.is_sparse_csr

    def rows(self, nodes: Tensor) -> Features:
        """Return the rows of nodes $[n]$, on the device."""
        rows = self._read(nodes)
        if self.scaler is None:
            return rows
        assert not isinstance(rows, ShiftedFeatures)
        return self.scaler.apply(rows, self.scaler.number_of(nodes))

    def _read(self, nodes: Tensor) -> Features:
        source = self._source
        if isinstance(source, RowCache):
            return source.rows(nodes)
        if not isinstance(source, Tensor):
            place = CPU if source is self.x else self.device
            return rows_of(source, nodes.to(place)).to(self.device)
        nodes = nodes.to(source.device)
        if source.is_sparse_csr:
            return sparse_rows(source, nodes).to(self.device)
        if source.is_cuda:
            return select_rows(source, nodes)
        return _moved(source[nodes], self.device).float()


def bytes_of(x: Features) -> int:
    """Return the bytes of the numbers of a matrix, with their columns if it is sparse."""
    if isinstance(x, ShiftedFeatures):
        return bytes_of(x.x) + bytes_of(x.member)
    if isinstance(x, SparseMatrix):
        return 8 * x.value.numel()
    return 8 * x.values().numel() if x.is_sparse_csr else x.numel() * x.element_size()


def pinned(x: Tensor) -> Tensor:
    """Return an array in pinned memory; itself if there is too little of it."""
    if distributed.processes_here() * bytes_of(x) >= (free_memory() or 0) / 2:
        return x
    try:
        return x.pin_memory()
    except RuntimeError:  # the system limits it, as WSL does
        return x


def _moved(rows: Tensor, device: torch.device) -> Tensor:
    """Copy rows to a device; from the CPU to a GPU without waiting."""
    if rows.device.type == "cpu" and device.type == "cuda":
        return rows.pin_memory().to(device, non_blocking=True)
    return rows.to(device)
