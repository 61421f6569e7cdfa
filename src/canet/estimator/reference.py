"""A sample of the training graph that a model keeps, to compare other graphs with."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any
from zlib import crc32

import numpy as np
import torch
from torch import Tensor

from canet.choice import Reader
from canet.data.task import ShiftTask
from canet.util.sparse import select_rows

MAX_NODES = 5_000
NEIGHBOURS = 10
ROWS_AT_ONCE = 4_096
PARTS = ("crow_indices", "col_indices", "values")  # of sparse features


@dataclass(frozen=True)
class Reference:
    """A sample of training and validation nodes, at most 5,000 of each, on the CPU."""

    x: Tensor  # features $[r, D]$ of training nodes, dense or sparse CSR
    y: Tensor  # their class ids $[r]$
    logits: Tensor  # theirs $[r, C]$
    embedding: Tensor  # their representations $[r, H]$
    degree: Tensor  # their numbers of incoming edges $[r]$
    environment: Tensor  # their environments $[r]$, -1 where unknown; empty without labels for them
    # valid_logits, valid_y, valid_embedding: Logits $[v, C]$, class ids $[v]$ and representations
    # $[v, H]$ of validation nodes.
    valid_logits: Tensor
    valid_y: Tensor
    valid_embedding: Tensor
    train_label_counts: Tensor  # training nodes $[C]$ of each class
    # Share of the edges between training nodes that join equal labels, a scalar; NaN where there is
    # no such edge.
    homophily: Tensor
    # node_ids, valid_node_ids: Checksums $[r]$, $[v]$ of what the user calls these nodes; empty
    # where the graph has no `node_id`.
    node_ids: Tensor
    valid_node_ids: Tensor

    def novelty_score(self, embedding: Tensor) -> Tensor:
        r"""How unlike training each node is $[n]$, for representations $[n, H]$.

        The distance $d(v)$ to the tenth nearest training node, of representations scaled to length
        one (Sun et al., ICML '22), as its rank among validation nodes $u$:
        $\frac{1}{|V|} |\{u : d(u) < d(v)\}|$. So 0.95 is further from all training nodes than 95 %
        of the validation nodes are.
        """
        within = self._distance(self.valid_embedding).sort().values
        rank = torch.searchsorted(within, self._distance(embedding))
        return rank.double() / max(1, within.numel())

    def tensors(self) -> dict[str, Tensor]:
        """All of it as dense tensors, as they are saved."""
        named = {f.name: getattr(self, f.name) for f in fields(self)}
        del named["x"]
        if self.x.layout != torch.sparse_csr:
            return named | {"x": self.x}
        parts = {f"x.{part}": getattr(self.x, part)() for part in PARTS}
        return named | parts | {"x.shape": torch.tensor(self.x.shape)}

    @classmethod
    def from_tensors(cls, tensors: Mapping[str, Tensor]) -> Reference:
        """The reference whose `tensors` these are."""
        parts: dict[str, Any] = {name: t for name, t in tensors.items() if "." not in name}
        if "x" not in parts:
            rows, columns, values = (tensors[f"x.{part}"] for part in PARTS)
            shape = tensors["x.shape"].tolist()
            parts["x"] = torch.sparse_csr_tensor(
                rows, columns, values, shape, check_invariants=True
            )
        return cls(**parts)

    def _distance(self, embedding: Tensor) -> Tensor:
        known = _unit(self.embedding)
        k = min(NEIGHBOURS, known.shape[0])
        distances = [
            torch.cdist(_unit(rows), known).topk(k, largest=False).values[:, -1]
            for rows in embedding.split(ROWS_AT_ONCE)
        ]
        # Products round differently for other numbers of rows; what is equally far must tie.
        return torch.cat(distances).round(decimals=6)


def build_reference(task: ShiftTask, reader: Reader, seed: int, node_id: Any = None) -> Reference:
    """A sample of a task's training and validation nodes as a trained method sees them.

    `node_id` $[N]$ is what the user calls the nodes.
    """
    train, valid = sample_of(task.train, seed), sample_of(task.valid, seed)
    y = torch.full_like(task.data.y, -1)
    y[task.train] = task.data.y[task.train]
    edges, x = task.data.edge_index, select_rows(task.data.x, train)
    environment = task.data.environment[train] if task.has_environments else train[:0]
    of_train, of_valid = reader.read(train), reader.read(valid)
    return Reference(
        x=x,
        y=y[train],
        logits=of_train.logits,
        embedding=of_train.embedding,
        degree=torch.bincount(edges[1], minlength=task.num_nodes)[train],
        environment=environment,
        valid_logits=of_valid.logits,
        valid_y=task.data.y[valid],
        valid_embedding=of_valid.embedding,
        train_label_counts=torch.bincount(y[task.train], minlength=task.num_classes),
        homophily=homophily(edges, y),
        node_ids=id_checksums(node_id, train),
        valid_node_ids=id_checksums(node_id, valid),
    )


def sample_of(nodes: Tensor, seed: int) -> Tensor:
    """At most 5,000 of some node ids, ascending."""
    if nodes.numel() <= MAX_NODES:
        return nodes.sort().values
    chosen = torch.randperm(nodes.numel(), generator=torch.Generator().manual_seed(seed))
    return nodes[chosen[:MAX_NODES]].sort().values


def id_checksums(node_id: Any, nodes: Tensor) -> Tensor:
    """Checksums $[n]$ of what the user calls some nodes $[n]$; empty where nodes have no ids."""
    if node_id is None:
        return nodes[:0]
    ids = np.asarray(node_id)[nodes.numpy()]
    return torch.tensor([crc32(str(one).encode()) for one in ids], dtype=torch.long)


def homophily(edge_index: Tensor, y: Tensor) -> Tensor:
    """Share of the edges $[2, E]$ between nodes with labels $[N]$ that join equal ones; or NaN."""
    first, second = y[edge_index]
    proper = (first >= 0) & (second >= 0) & (edge_index[0] != edge_index[1])
    return (first == second)[proper].double().mean()


def _unit(rows: Tensor) -> Tensor:
    return torch.nn.functional.normalize(rows.double(), dim=1)
