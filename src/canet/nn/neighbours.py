"""Neighbours of all nodes in one direction, and the one place where a graph is normalised."""

from typing import NamedTuple, Self

import torch
from torch import Tensor

from canet.nn.blocks import Kind
from canet.nn.sampling import Draw
from canet.util.sparse import Csr

ENTRIES_AT_ONCE = 2**21  # entries of arrays on disk that are read at once


class Neighbours:
    """The neighbours of all nodes in one direction, without the nodes themselves.

    Only arrays over the nodes are computed; the others may be memory-mapped files. `dtype` is that
    of the normalised values; None: the default of torch.
    """

    def __init__(self, csr: Csr, dtype: torch.dtype | None = None) -> None:
        self.dtype = dtype or torch.get_default_dtype()
        self.rowptr, self.col, self.weight, loops = csr
        self.loops = None if loops is None else loops.to(self.dtype)
        self._scales: dict[Kind, Tensor] = {}

    @classmethod
    def from_edges(
        cls,
        edge_index: Tensor,
        num_nodes: int,
        weight: Tensor | None = None,
        dtype: torch.dtype | None = None,
    ) -> Self:
        """Group edges $[2, E]$ by their target; a repeated edge counts once per repetition."""
        source, target = edge_index
        is_loop, loops = source == target, None
        if is_loop.any():
            value = torch.ones(is_loop.shape, device=source.device) if weight is None else weight
            loops = value.new_zeros(num_nodes).index_add(0, target[is_loop], value[is_loop])
            source, target = source[~is_loop], target[~is_loop]
            weight = None if weight is None else weight[~is_loop]
        order = torch.argsort(target * num_nodes + source, stable=True)
        count = torch.bincount(target, minlength=num_nodes)
        rowptr = torch.cat([count.new_zeros(1), count.cumsum(0)])
        weight = None if weight is None else weight[order]
        return cls(Csr(rowptr, source[order].int(), weight, loops), dtype)

    def to(self, device: torch.device) -> "Neighbours":
        csr = Csr(self.rowptr, self.col, self.weight, self.loops)
        return Neighbours(csr.to(device), self.dtype)

    def values(self, kind: Kind, nodes: Tensor, drawn: Draw, col: Tensor) -> Tensor:
        """Return the entries $[m]$ of an operator's matrix for drawn neighbours of `nodes`.

        Sums are scaled to the number of all neighbours; attention is not.
        """
        of_node = torch.ones(nodes.shape, dtype=self.dtype, device=nodes.device)
        if drawn.factor is not None and kind != "attention":
            of_node = drawn.factor.to(self.dtype)
        if kind in ("mean", "symmetric", "renormalised"):
            of_node = self._scale(kind)[nodes] * of_node
        value = of_node[drawn.row.clamp(max=len(of_node) - 1)]
        if kind in ("symmetric", "renormalised"):
            value = value * self._scale(kind)[col]
        return value if self.weight is None else value * self.weight[drawn.entry].to(self.dtype)

    def diagonal(self, kind: Kind, nodes: Tensor) -> Tensor | None:
        """Return the entries $[n]$ of an operator's matrix on the diagonal; None if all are 0.

        Self-loops that an operator adds have weight 1.
        """
        if kind == "attention":
            return torch.ones(nodes.shape, dtype=self.dtype, device=nodes.device)
        if kind == "renormalised":
            return self._scale(kind)[nodes].square()
        if self.loops is None:
            return None
        loops = self.loops[nodes]
        if kind == "sum":
            return loops
        scale = self._scale(kind)[nodes]
        return loops * (scale if kind == "mean" else scale.square())

    def _scale(self, kind: Kind) -> Tensor:
        """Return the factors $[N]$ of an operator: 1 / degree or 1 / √degree; 0 for degree 0."""
        if kind not in self._scales:
            degree = self._degree()
            if kind == "renormalised":
                degree = degree + 1
            elif self.loops is not None:
                degree = degree + self.loops
            inverse = degree.reciprocal() if kind == "mean" else degree.rsqrt()
            self._scales[kind] = inverse.nan_to_num_(posinf=0.0)
        return self._scales[kind]

    def _degree(self) -> Tensor:
        """Return the sum of the weights $[N]$ of each node's edges."""
        if self.weight is None:
            return self.rowptr.diff().to(self.dtype)
        degree = torch.zeros(len(self.rowptr) - 1, dtype=torch.double, device=self.rowptr.device)
        for first in range(0, self.weight.numel(), ENTRIES_AT_ONCE):
            weight = self.weight[first : first + ENTRIES_AT_ONCE].double()
            entry = torch.arange(first, first + weight.numel(), device=degree.device)
            degree.index_add_(0, torch.searchsorted(self.rowptr, entry, right=True) - 1, weight)
        return degree.to(self.dtype)


class Places(NamedTuple):
    """Where entries are after some rows get one more entry, on the diagonal.

    `rowptr` $[n + 1]$ is where each row begins, `entry` $[m]$ is the place of each entry so far,
    `row` $[l]$ are the rows with an entry on the diagonal and `own` $[l]$ the place of that.
    """

    rowptr: Tensor
    entry: Tensor
    row: Tensor
    own: Tensor

    @classmethod
    def last(cls, drawn: Draw) -> Self:
        """Put the entry on the diagonal last in every row, without waiting for the device."""
        m, n = drawn.row.numel(), drawn.rowptr.numel() - 1
        number = torch.arange(m + n + 1, device=drawn.row.device)
        entry, own = number[:m] + drawn.row, drawn.rowptr[1:] + number[:n]
        return cls(drawn.rowptr + number[: n + 1], entry, number[:n], own)

    @classmethod
    def in_order(cls, drawn: Draw, column: Tensor, row: Tensor) -> Self:
        """Put the entries of some rows $[l]$ on the diagonal where the columns stay ascending."""
        num_added = torch.zeros_like(drawn.rowptr)
        num_added[row + 1] = 1
        num_added = num_added.cumsum(0)
        is_later = column > drawn.row
        number = torch.arange(is_later.numel(), device=row.device)
        num_before = torch.bincount(drawn.row[~is_later], minlength=drawn.rowptr.numel())
        own = (drawn.rowptr[:-1] + num_added[:-1])[row] + num_before[row]
        entry = number + num_added[drawn.row + is_later]
        return cls(drawn.rowptr + num_added, entry, row, own)

    def join(self, entries: Tensor, own: Tensor) -> Tensor:
        """Return entries $[m]$ and those on the diagonal $[l]$ in their places $[m + l]$."""
        joined = entries.new_empty(entries.numel() + own.numel())
        joined[self.entry] = entries
        joined[self.own] = own.to(joined.dtype)
        return joined
