"""Sparse CSR matrices for training, with cached derived forms such as the transpose."""

from functools import cached_property
from typing import NamedTuple, Self

import torch
from torch import Tensor

SEGMENT = 256  # maximum number of entries of a row that one GPU program processes


class Segments(NamedTuple):
    """The rows of a pattern, cut into segments of at most `SEGMENT` entries.

    Each row has at least one segment. `row`, `begin` and `end` $[s]$ are the row and the range of
    entries of each segment. `long_row` $[r]$ are the rows with several segments; their segments are
    numbered by `slot` $[s]$, which is -1 for all other segments. Row `long_row[i]` has the slots
    from `first_slot[i]` up to, but not including, `first_slot[i + 1]`. There are as many segments
    and long rows as the number of entries allows, so that nothing waits for the device. The last
    ones may be empty: empty segments have the last slot.
    """

    num_slots: int
    row: Tensor
    begin: Tensor
    end: Tensor
    slot: Tensor
    long_row: Tensor
    first_slot: Tensor


class Pattern:
    """Positions of the entries of a sparse $[n, m]$ matrix, in CSR form.

    Derived forms (`row`, `transposed`, `segments`) are computed once.

    Args:
        rowptr: Row boundaries $[n + 1]$.
        col: Column of each entry $[nnz]$, grouped by row.
        num_cols: $m$.
        row: Row of each entry $[nnz]$, if it is known. There may then be unused entries after the
            last row, with columns beyond $m$.
        longest: A number of entries that no row exceeds, if one is known.
    """

    def __init__(
        self,
        rowptr: Tensor,
        col: Tensor,
        num_cols: int,
        row: Tensor | None = None,
        longest: int | None = None,
    ) -> None:
        self.longest = longest
        self.rowptr = rowptr.int()
        self.col = col.int()
        self.shape = (rowptr.numel() - 1, num_cols)
        if row is not None:
            self.row = row

    @property
    def nnz(self) -> int:
        return self.col.numel()

    @cached_property
    def row(self) -> Tensor:
        """Row of each entry $[nnz]$."""
        rows = torch.arange(self.shape[0], dtype=torch.int32, device=self.col.device)
        return rows.repeat_interleave(self.rowptr.diff(), output_size=self.nnz)

    @cached_property
    def transposed(self) -> "tuple[Pattern, Tensor]":
        """The transpose and, for each of its entries $[nnz]$, the index of the entry here."""
        col, order = torch.sort(self.col, stable=True)
        bounds = torch.arange(self.shape[1] + 1, dtype=col.dtype, device=col.device)
        # Unlike bincount, this does not wait for the device.
        rowptr = torch.searchsorted(col, bounds, out_int32=True)
        return Pattern(rowptr, self.row[order], self.shape[0]), order.int()

    @cached_property
    def segments(self) -> Segments:
        """The rows, cut into segments for kernels in which each program processes one segment."""
        num_rows, length = self.shape[0], self.rowptr.diff()
        if min(self.nnz, self.longest or self.nnz) <= SEGMENT:
            number = torch.arange(num_rows, dtype=torch.int32, device=length.device)
            slot, none = torch.full_like(number, -1), number.new_empty(0)
            return Segments(0, number, self.rowptr[:-1], self.rowptr[1:], slot, none, none)
        num_long = self.nnz // SEGMENT
        num_slots = 2 * num_long + 1
        count = (length + SEGMENT - 1).div(SEGMENT, rounding_mode="floor").clamp(min=1).long()
        total = count.cumsum(0)
        segment = torch.arange(num_rows + num_long, device=length.device)
        row = torch.searchsorted(total, segment, right=True)
        is_empty = row == num_rows
        row = row.clamp(max=num_rows - 1)
        begin = self.rowptr[row] + SEGMENT * (segment - total[row] + count[row])
        begin = begin.masked_fill(is_empty, 0)
        end = torch.minimum(begin + SEGMENT, self.rowptr[row + 1]).masked_fill(is_empty, 0)
        in_long = (count[row] > 1) & ~is_empty
        slot = torch.where(in_long, in_long.cumsum(0) - 1, -1)
        slot = slot.masked_fill(is_empty, num_slots - 1)
        is_long = count > 1
        number = torch.arange(1, num_long + 1, device=length.device)
        long_row = torch.searchsorted(is_long.cumsum(0), number).clamp(max=num_rows - 1)
        last_slot = (count * is_long).cumsum(0)[long_row]
        first_slot = torch.cat([last_slot.new_zeros(1), last_slot])
        parts = (t.int() for t in (row, begin, end, slot, long_row, first_slot))
        return Segments(num_slots, *parts)

    def to_torch(self, value: Tensor) -> Tensor:
        """Return a torch sparse CSR tensor with values $[nnz]$."""
        return torch.sparse_csr_tensor(
            self.rowptr, self.col, value, self.shape, check_invariants=False
        )

    def at_rows(self, dense: Tensor) -> Tensor:
        """Return row u of a dense $[n, k]$ for every entry $(u, v)$: $[nnz, k]$."""
        return dense.index_select(0, self.row)

    def at_cols(self, dense: Tensor) -> Tensor:
        """Return row v of a dense $[m, k]$ for every entry $(u, v)$: $[nnz, k]$."""
        return dense.index_select(0, self.col)

    def sum_rows(self, entries: Tensor) -> Tensor:
        """Sum per-entry values $[nnz, k]$ over each row: $[n, k]$."""
        return torch.segment_reduce(
            entries, "sum", offsets=self.rowptr.long(), axis=0, initial=0, unsafe=True
        )

    def sum_cols(self, entries: Tensor) -> Tensor:
        """Sum per-entry values $[nnz, k]$ over each column, in a fixed order: $[m, k]$."""
        pattern, order = self.transposed
        return pattern.sum_rows(entries.index_select(0, order))

    def max_rows(self, entries: Tensor) -> Tensor:
        """Return the maximum of per-entry values $[nnz, k]$ in each row: $[n, k]$."""
        return torch.segment_reduce(entries, "max", offsets=self.rowptr.long(), axis=0, unsafe=True)


class SparseMatrix:
    """Sparse $[n, m]$ matrix: a :class:`Pattern` and the value of each entry $[nnz]$."""

    def __init__(self, pattern: Pattern, value: Tensor) -> None:
        self.pattern = pattern
        self.value = value
        self.shape = pattern.shape

    @classmethod
    def from_torch(cls, matrix: Tensor) -> Self:
        pattern = Pattern(matrix.crow_indices(), matrix.col_indices(), matrix.shape[1])
        return cls(pattern, matrix.values())

    @cached_property
    def as_torch(self) -> Tensor:
        """The matrix as a torch sparse CSR tensor, detached."""
        return self.pattern.to_torch(self.value.detach())

    @cached_property
    def transposed(self) -> "SparseMatrix":
        pattern, order = self.pattern.transposed
        return SparseMatrix(pattern, self.value.detach()[order])

    @cached_property
    def log_value(self) -> Tensor:
        """Logarithm of the value of each entry $[nnz]$."""
        return self.value.log()

    def select_rows(self, rows: Tensor) -> "SparseMatrix":
        """Return the given rows $[k]$, in this order, as a $[k, m]$ matrix."""
        begin = self.pattern.rowptr[rows]
        count = (self.pattern.rowptr[rows + 1] - begin).long()
        rowptr = torch.cat([count.new_zeros(1), count.cumsum(0)])
        entry = torch.arange(int(rowptr[-1]), device=rows.device)
        entry += (begin - rowptr[:-1]).repeat_interleave(count)
        pattern = Pattern(rowptr, self.pattern.col[entry], self.shape[1])
        return SparseMatrix(pattern, self.value[entry])

    def to(self, device: torch.device | str, dtype: torch.dtype | None = None) -> "SparseMatrix":
        """Return the matrix on a device, with values of type `dtype`; itself if nothing changes."""
        if self.value.device == torch.device(device) and dtype in (None, self.value.dtype):
            return self
        rowptr, col = self.pattern.rowptr.to(device), self.pattern.col.to(device)
        value = self.value.to(device, dtype or self.value.dtype)
        return SparseMatrix(Pattern(rowptr, col, self.shape[1]), value)
