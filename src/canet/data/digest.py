"""What data a run was trained on: digests of a task's parts, and a rough one of its features.

Features that are computed (spurious columns, structural ones) may differ in their last bits between
machines and versions of torch. Sums of all features with pseudo-random signs distinguish that from
other features: rounding changes them by a tiny part of the features' norm, other features by more.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass
from typing import Any, Literal, get_args

import numpy as np
import torch
from torch import Tensor

from canet.data.graph_data import AnyGraph

CHUNK = 2**22
"""Numbers that are looked at in one piece, so that memory does not double."""
NUM_SUMS = 8
ROUNDING = 1e-4
"""How far sums may be apart, in parts of the features' norm, for the same features."""

Part = Literal["graph", "labels", "splits", "features"]
"""What is compared, in this order."""


@dataclass(frozen=True)
class DataDigest:
    """SHA-256 of each part of a task."""

    graph: str  # nodes, edges and which graph each node is of
    labels: str  # classes and environments of the nodes
    splits: str  # node sets, their names, what exists at training time, and the metric
    features: str  # every bit of them
    feature_sums: tuple[float, ...]  # eight sums of all features with signs, then their norm

    def to_json(self) -> dict[str, Any]:
        return asdict(self) | {"feature_sums": list(self.feature_sums)}

    @classmethod
    def from_json(cls, content: Mapping[str, Any]) -> DataDigest:
        sums = tuple(float(value) for value in content["feature_sums"])
        return cls(**{**content, "feature_sums": sums})

    def differs_in(self, other: DataDigest) -> Part | Literal["last bits"] | None:
        """The first part that is another one; `last bits` where features differ by rounding."""
        parts: tuple[Part, ...] = get_args(Part)
        part = next((p for p in parts if getattr(self, p) != getattr(other, p)), None)
        if part != "features":
            return part
        pairs = zip(self.feature_sums, other.feature_sums, strict=True)
        near = all(abs(a - b) <= ROUNDING * self.feature_sums[-1] for a, b in pairs)
        return "last bits" if near else "features"


def digest_parts(
    data: AnyGraph,
    splits: Mapping[str, Tensor],
    in_distribution: Tensor,
    metric: str,
    environments: tuple[str, ...],
) -> DataDigest:
    """The digest of the parts of a task; a pass over all arrays."""
    batch, environment = ([data[k]] if k in data else [] for k in ("batch", "environment"))
    x = data.x
    parts = [x.crow_indices(), x.col_indices(), x.values()] if x.is_sparse_csr else [x]
    return DataDigest(
        graph=_sha256([data.edge_index, *batch], [data.y.numel()]),
        labels=_sha256([data.y, *environment]),
        splits=_sha256([*splits.values(), in_distribution], [metric, environments, [*splits]]),
        features=_sha256(parts, [list(x.shape), str(x.layout)]),
        feature_sums=tuple(_sums(x)),
    )


def _sha256(tensors: Iterable[Tensor], about: Any = None) -> str:
    """Digest of tensors' types, shapes and contents, in the order given, and of `about`."""
    digest = hashlib.sha256(json.dumps(about).encode())
    for tensor in tensors:
        digest.update(repr((str(tensor.dtype), tuple(tensor.shape))).encode())
        for piece in _pieces(tensor):
            array = piece.contiguous().numpy()
            little = array.astype(array.dtype.newbyteorder("<"), copy=False)
            digest.update(little.reshape(-1).view(np.uint8).data)
    return digest.hexdigest()


def _pieces(tensor: Tensor) -> Iterator[Tensor]:
    """A tensor in rows of at most `CHUNK` numbers, or one row."""
    width = max(1, tensor[:1].numel())
    yield from tensor.split(max(1, CHUNK // width)) if tensor.numel() else ()


def _sums(x: Tensor) -> Iterator[float]:
    """Sums $r^T X c$ with signs r of the rows and c of the columns of $X [N, D]$, and its norm."""
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
    """Pseudo-random signs $[n, 8]$, the same everywhere and always."""
    numbers = torch.arange(1, count + 1)[:, None] * (2 * torch.arange(NUM_SUMS) + 0x9E3779B1)
    numbers = (numbers ^ (numbers >> 15)) * 0x2C1B3C6D % 2**32
    return (1 - 2 * (numbers >> 17 & 1)).to(torch.int8)
