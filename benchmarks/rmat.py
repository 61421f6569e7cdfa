"""R-MAT graphs of any size, with labels and features that are correlated with the edges.

Each bit of the two ends of an edge is drawn from the same four probabilities (Chakrabarti et al.,
SDM '04; the values are those of Graph 500). Ends agree in most of their leading bits, so these bits
are the class of a node. Ids are then permuted, so that neighbours are not next to each other.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

A, B, C = 0.57, 0.19, 0.19
EDGES_AT_ONCE = 2**22
CLASS_BITS = 4
NOISE = 8.0
"""Standard deviation of the features around the mean of their class, which has variance 1."""


@dataclass(frozen=True)
class RMat:
    """A random graph of `num_nodes` nodes and about `num_edges` directed edges."""

    num_nodes: int
    num_edges: int
    num_features: int
    device: str = "cpu"
    seed: int = 0

    num_classes = 2**CLASS_BITS

    @property
    def _bits(self) -> int:
        return max(CLASS_BITS, (self.num_nodes - 1).bit_length())

    def edges(self) -> Iterator[tuple[Tensor, Tensor]]:
        """Yield pieces of the edges, as sources and targets."""
        for size, random in self._pieces(self.num_edges):
            target = self._targets(size, random)
            source = self._sources(target, random)
            yield self._permuted(source), self._permuted(target)

    def neighbours(self) -> tuple[Tensor, Tensor]:
        """Return the incoming edges of each node in memory: row pointers and sources.

        Repeated edges are kept. Targets are counted first and sources drawn for each target, so
        that nothing is sorted.
        """
        kind = torch.int32 if self.num_nodes < 2**31 else torch.int64
        count = torch.zeros(self.num_nodes, dtype=torch.int32, device=self.device)
        for size, random in self._pieces(self.num_edges):
            target = self._permuted(self._targets(size, random))
            count += torch.bincount(target, minlength=self.num_nodes)
        rowptr = torch.zeros(self.num_nodes + 1, dtype=torch.long, device=self.device)
        rowptr[1:] = count.cumsum(0)
        source = torch.empty(self.num_edges, dtype=kind, device=self.device)
        first = 0
        for size, random in self._pieces(self.num_edges, seed=1):
            entry = torch.arange(first, first + size, device=self.device)
            target = torch.searchsorted(rowptr, entry, right=True) - 1
            found = self._permuted(self._sources(self._original(target), random))
            source[first : first + size] = found.to(kind)
            first += size
        return rowptr, source

    def labels(self) -> Tensor:
        """Return the class $[N]$ of each node."""
        ids = self._original(torch.arange(self.num_nodes, device=self.device))
        return ids >> (self._bits - CLASS_BITS)

    def features(self, labels: Tensor, dtype: torch.dtype = torch.float32) -> Iterator[Tensor]:
        """Yield pieces of the features $[N, D]$: the mean of the class and noise."""
        means = torch.Generator(self.device).manual_seed(self.seed + 7)
        shape = self.num_classes, self.num_features
        mean = torch.randn(shape, generator=means, device=self.device)
        first = 0
        for size, random in self._pieces(self.num_nodes, EDGES_AT_ONCE // 64, seed=2):
            noise = torch.randn(size, self.num_features, generator=random, device=self.device)
            yield noise.mul_(NOISE).add_(mean[labels[first : first + size]]).to(dtype)
            first += size

    def _pieces(
        self, count: int, at_once: int = EDGES_AT_ONCE, seed: int = 0
    ) -> Iterator[tuple[int, torch.Generator]]:
        random = torch.Generator(self.device).manual_seed(3 * self.seed + seed)
        for first in range(0, count, at_once):
            yield min(at_once, count - first), random

    def _targets(self, size: int, random: torch.Generator) -> Tensor:
        return self._draw(torch.full((size,), 1 - A - C, device=self.device), None, random)

    def _sources(self, target: Tensor, random: torch.Generator) -> Tensor:
        """Draw the source of each edge, given its target."""
        if_one, if_zero = (1 - A - B - C) / (1 - A - C), C / (A + C)
        return self._draw(torch.tensor([if_zero, if_one], device=self.device), target, random)

    def _draw(self, chance: Tensor, target: Tensor | None, random: torch.Generator) -> Tensor:
        """Draw the bits of one end of each edge; `chance` is that of a one."""
        size = chance.numel() if target is None else target.numel()
        ids = torch.zeros(size, dtype=torch.long, device=self.device)
        for bit in range(self._bits):
            p = chance if target is None else chance[(target >> (self._bits - 1 - bit)) & 1]
            draw = torch.rand(size, generator=random, device=self.device) < p
            ids = (ids << 1) | draw
        return ids % self.num_nodes if self.num_nodes < 2**self._bits else ids

    @property
    def _factor(self) -> int:
        """A factor without a common divisor with the number of nodes."""
        from math import gcd

        factor = int(self.num_nodes * 0.6180339887) | 1
        while gcd(factor, self.num_nodes) > 1:
            factor += 2
        return factor

    def _permuted(self, ids: Tensor) -> Tensor:
        return ids * self._factor % self.num_nodes

    def _original(self, ids: Tensor) -> Tensor:
        return ids * pow(self._factor, -1, self.num_nodes) % self.num_nodes
