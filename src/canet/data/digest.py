"""Digests that identify the data of a run: graph, labels, splits and features.

Computed features (spurious or structural columns) may differ in their last bits between machines
and versions of torch. Sums of all features with pseudo-random signs distinguish rounding errors
from different features: rounding changes the sums by a tiny part of the norm of the features.
"""

import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any, Self

import numpy as np
import torch
from torch import Tensor

from canet.util.files import digest_of

CHUNK = 2**22  # numbers that are processed at once, to limit the memory
NUM_SUMS = 8
MAX_ROUNDING_ERROR = 1e-4
"""Largest difference of the sums of equal features, relative to the norm of the features."""

PARTS = ("graph", "labels", "splits", "features")  # the compared parts, in this order


@dataclass(frozen=True)
class DataDigest:
    """SHA-256 of each part of a task."""

    graph: str  # nodes, edges, their weights, and the graph of each node
    labels: str  # classes, environments and weights of the nodes
    # Splits, their names, times, the nodes that exist at training time, and the metric.
    splits: str
    features: str
    # Eight signed sums of all features, then their norm; empty if rounding makes other data.
    feature_sums: tuple[float, ...] = ()

    @property
    def short(self) -> str:
        """One SHA-256 of all parts."""
        return digest_of(json.dumps(asdict(self)).encode())

    def differs_in(self, other: Self) -> str | None:
        """Return the first different part; `last bits` if features differ only by rounding."""
        part = next((p for p in PARTS if getattr(self, p) != getattr(other, p)), None)
        if part != "features":
            return part
        pairs = list(zip(self.feature_sums, other.feature_sums, strict=False))
        is_close = all(abs(a - b) <= MAX_ROUNDING_ERROR * self.feature_sums[-1] for a, b in pairs)
        return "last bits" if pairs and is_close else "features"


def digest_parts(
    columns: Mapping[str, Any],
    splits: Mapping[str, Tensor],
    in_distribution: Tensor,
    metric: str,
    environments: tuple[str, ...],
    same_bits: bool,
) -> DataDigest:
    """Compute the digest; with `same_bits`, features that differ by rounding are other data."""
    about = [metric, environments, [*splits]]
    if "store" in columns:
        stored: DataDigest = columns["store"].digest
        nodes = [*splits.values(), in_distribution]
        return replace(stored, splits=_sha256(nodes, [stored.splits, *about]))

    def of(*names: str) -> list[Tensor]:
        return [columns[name] for name in names if name in columns]

    x = columns["x"]
    parts = [x.crow_indices(), x.col_indices(), x.values()] if x.is_sparse_csr else [x]
    return DataDigest(
        graph=_sha256(of("edge_index", "batch", "edge_weight"), [x.shape[0]]),
        labels=_sha256(of("y", "environment", "sample_weight")),
        splits=_sha256([*splits.values(), in_distribution, *of("time")], about),
        features=_sha256(parts, [list(x.shape), str(x.layout)]),
        feature_sums=() if same_bits else tuple(_sums(x)),
    )


def _sha256(tensors: Iterable[Tensor], about: object = None) -> str:
    """Return the digest of types, shapes and contents of tensors, in this order, and of `about`."""
    digest = hashlib.sha256(json.dumps(about).encode())
    for tensor in tensors:
        digest.update(repr((str(tensor.dtype), tuple(tensor.shape))).encode())
        for piece in _pieces(tensor):
            array = piece.contiguous().numpy()
            little = array.astype(array.dtype.newbyteorder("<"), copy=False)
            digest.update(little.reshape(-1).view(np.uint8).data)
    return digest.hexdigest()


def _pieces(tensor: Tensor) -> Iterator[Tensor]:
    """Yield blocks of rows of a tensor with at most `CHUNK` numbers, but at least one row."""
    width = max(1, tensor[:1].numel())
    yield from tensor.split(max(1, CHUNK // width)) if tensor.numel() else ()


def _sums(x: Tensor) -> Iterator[float]:
    """Yield sums $r^T X c$ with signs r of rows and c of columns of $X [N, D]$, and its norm."""
    row_signs, column_signs = _signs(x.shape[0]), _signs(x.shape[1])
    sums, squares, start = torch.zeros(NUM_SUMS, dtype=torch.double), 0.0, 0
    if x.is_sparse_csr:
        counts = x.crow_indices().diff()
        rows = torch.repeat_interleave(torch.arange(x.shape[0]), counts)
        for row, column, value in zip(
            *(t.split(CHUNK // NUM_SUMS) for t in (rows, x.col_indices(), x.values())), strict=True
        ):
            sums += ((row_signs[row] * column_signs[column]) * value.double()[:, None]).sum(dim=0)
            squares += float(value.double().square().sum())
    else:
        for piece in _pieces(x):
            part = piece.double()
            end = start + len(part)
            sums += (row_signs[start:end] * (part @ column_signs.double())).sum(dim=0)
            squares += float(part.square().sum())
            start = end
    yield from sums.tolist()
    yield float(squares**0.5)


def _signs(count: int) -> Tensor:
    """Return pseudo-random signs $[n, 8]$ that are the same on every machine."""
    numbers = torch.arange(1, count + 1)[:, None] * (2 * torch.arange(NUM_SUMS) + 0x9E3779B1)
    numbers = (numbers ^ (numbers >> 15)) * 0x2C1B3C6D % 2**32
    return (1 - 2 * (numbers >> 17 & 1)).to(torch.int8)
