"""Reference sample: training and validation nodes that other graphs are compared with."""

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any, Self
from zlib import crc32

import numpy as np
import scipy.sparse as sp
import torch
from torch import Tensor

from canet.data.graph_files.encoding import Encoding
from canet.data.task import ShiftTask, sample_nodes
from canet.errors import CanetError, first_line
from canet.models.base import Reader
from canet.nn.model import Prediction
from canet.scoring.calibration import Calibration
from canet.util.sparse import Matrix, select_rows, stacked, to_matrix

MAX_NODES = 5_000
NUM_NEIGHBOURS = 10
MAX_CHANCE = 0.01  # that a column is constant, if at most 300 nodes are independent
ROWS_PER_CHUNK = 4_096
PARTS = ("crow_indices", "col_indices", "values")  # tensors of sparse features
SHAPES = {"x": "rD", "logits": "rC", "embedding": "rH", "homophily": "", "train_label_counts": "C"}
SHAPES |= dict.fromkeys(("y", "degree", "environment", "node_ids"), "r")
SHAPES |= dict.fromkeys(("valid_nodes", "valid_y", "valid_node_ids"), "v")
SHAPES |= {"valid_logits": "vC", "valid_embedding": "vH"}
"""Sizes of each tensor of a reference; those in `OPTIONAL` may also be empty."""
OPTIONAL = ("environment", "node_ids", "valid_node_ids")
MAX_COUNT = 2**48


@dataclass(frozen=True)
class Reference:
    """A sample of training and validation nodes, at most 5,000 of each, on the CPU."""

    # Training nodes:
    x: Tensor  # features $[r, D]$, dense or sparse CSR
    y: Tensor  # class ids $[r]$
    logits: Tensor  # logits $[r, C]$
    embedding: Tensor  # representations $[r, H]$
    degree: Tensor  # in-degrees $[r]$
    environment: Tensor  # environment numbers $[r]$, -1 if unknown; empty without environments
    # Validation nodes:
    valid_nodes: Tensor  # row numbers $[v]$ in the training graph
    valid_logits: Tensor  # logits $[v, C]$
    valid_y: Tensor  # class ids $[v]$
    valid_embedding: Tensor  # representations $[v, H]$
    # The whole training set:
    train_label_counts: Tensor  # number of training nodes $[C]$ of each class
    homophily: Tensor  # share of the edges between its nodes that join equal labels, a scalar
    # Empty if the graph has no `node_id`:
    node_ids: Tensor  # checksums of the `node_id` of training nodes $[r]$
    valid_node_ids: Tensor  # and of validation nodes $[v]$

    def novelty_score(self, embedding: Tensor) -> Tensor:
        r"""Return the novelty score $[n]$ of nodes with representations $[n, H]$.

        Let $d(v)$ be the distance of node v to its tenth nearest training node, for representations
        scaled to unit norm (Sun et al., ICML '22). The score is the share of validation nodes u
        that are closer, $\frac{1}{|V|} |\{u : d(u) < d(v)\}|$. A node with score 0.95 is farther
        from the training nodes than 95 % of the validation nodes.
        """
        within = self._distance(self.valid_embedding).sort().values
        rank = torch.searchsorted(within, self._distance(embedding))
        return rank.double() / max(1, within.numel())

    def calibrate(self, metric: str, weighted: bool) -> Calibration:
        """Fit the calibration to the validation nodes; arguments as for `Calibration.fit`."""
        logits, y = self.valid_logits.double().numpy(), self.valid_y.numpy()
        fitted = Calibration.fit(logits, y, metric, weighted)
        return fitted.with_threshold(logits, y, self.train_label_counts.numpy())

    def constant_columns(self, x: Matrix, encoding: Encoding | None) -> list[str]:
        """Return the columns that are empty or constant in features $[n, D]$, but not in training.

        A column is left out if n nodes may lack the other values of training by chance.
        """
        both = stacked(x[:1], to_matrix(self.x))
        others = both[1:] - sp.csr_matrix(np.ones((len(self.x), 1))) @ both[:1]
        share = np.asarray((others != 0).mean(axis=0)).ravel()
        chance = (1 - share) ** (min(x.shape[0], 300) - 1) * share.size
        is_news, same = _varies(both[1:]) & (chance < MAX_CHANCE), ~_varies(x)
        blocks = encoding.blocks if encoding else {str(i): [i] for i in range(share.size)}
        return [name for name, own in blocks.items() if same[own].all() and is_news[own].any()]

    def tensors(self) -> dict[str, Tensor]:
        """Return all fields as dense tensors, for saving."""
        named = {f.name: getattr(self, f.name) for f in fields(self)}
        del named["x"]
        if self.x.layout != torch.sparse_csr:
            return named | {"x": self.x}
        parts = {f"x.{part}": getattr(self.x, part)() for part in PARTS}
        return named | parts | {"x.shape": torch.tensor(self.x.shape)}

    @classmethod
    def from_tensors(cls, tensors: Mapping[str, Tensor], features: int, classes: int) -> Self:
        """Build a reference from the result of `tensors`, for D features and C classes."""
        parts: dict[str, Any] = {name: t for name, t in tensors.items() if "." not in name}
        if "x.shape" in tensors:
            try:
                rows, columns, values, shape = (tensors[f"x.{p}"] for p in (*PARTS, "shape"))
                csr = rows, columns, values, shape.tolist()
                parts["x"] = torch.sparse_csr_tensor(*csr, check_invariants=True)
            except (KeyError, RuntimeError, TypeError, ValueError) as error:
                raise CanetError(f"the features of its sample: {first_line(error)}") from error
        if parts.keys() != SHAPES.keys():
            raise CanetError("its sample of training nodes has other entries")
        sizes = {"D": features, "C": classes}
        for name, letters in SHAPES.items():
            part, lengths = parts[name], list(parts[name].shape)
            known = [sizes.setdefault(*pair) for pair in zip(letters, lengths, strict=False)]
            fits = len(letters) == len(lengths) and lengths == known and part.numel() > 0
            numbers = part.values() if part.layout == torch.sparse_csr else part
            if len(letters) == 1:
                low, high = -(name == "environment"), classes if name[-1] == "y" else MAX_COUNT
                valid = numbers.dtype == torch.long and ((low <= numbers) & (numbers < high)).all()
                fits |= name in OPTIONAL and lengths == [0]
            else:
                if name == "homophily":
                    numbers = numbers[~numbers.isnan()]  # NaN without edges
                valid = numbers.is_floating_point() and numbers.double().isfinite().all()
            if not (fits and valid):
                raise CanetError(f"'{name}' of its sample of training nodes is not possible")
        return cls(**parts)

    def _distance(self, embedding: Tensor) -> Tensor:
        known = _unit(self.embedding)
        k = min(NUM_NEIGHBOURS, known.shape[0])
        distances = [
            torch.cdist(_unit(rows), known).topk(k, largest=False).values[:, -1]
            for rows in embedding.split(ROWS_PER_CHUNK)
        ]
        # Rounding errors depend on the number of rows; equal distances must stay equal.
        return torch.cat(distances).round(decimals=6)


def build_reference(
    task: ShiftTask, reader: Reader, seed: int, node_id: object = None
) -> Reference:
    """Sample training and validation nodes of a task, and predict them with a trained method."""
    sets = (sample_nodes(nodes, MAX_NODES, seed) for nodes in (task.train, task.valid))
    train, valid = (nodes.sort().values for nodes in sets)
    graph, y = task.data, torch.full_like(task.y, -1)
    y[task.train] = task.y[task.train]
    environment = train[:0] if graph.environment is None else graph.environment[train]
    if graph.is_on_disk:
        both = reader.read(torch.cat([train, valid]))  # at once, because their fields overlap
        of_train, of_valid = (
            Prediction(both.logits[rows], both.representation[rows])
            for rows in (slice(len(train)), slice(len(train), None))
        )
    else:
        of_train, of_valid = reader.read(train), reader.read(valid)
    return Reference(
        x=select_rows(graph.x, train).float(),
        y=y[train],
        logits=of_train.logits,
        embedding=of_train.representation,
        degree=graph.degree(train),
        environment=environment,
        valid_nodes=valid,
        valid_logits=of_valid.logits,
        valid_y=task.y[valid],
        valid_embedding=of_valid.representation,
        train_label_counts=torch.bincount(y[task.train], minlength=task.num_classes),
        homophily=homophily(graph.known_edges(train), y),
        node_ids=id_checksums(node_id, train),
        valid_node_ids=id_checksums(node_id, valid),
    )


def id_checksums(node_id: object, nodes: Tensor) -> Tensor:
    """Return checksums $[n]$ of the user's ids of some nodes $[n]$; empty without ids."""
    if node_id is None:
        return nodes[:0]
    ids = np.asarray(node_id)[nodes.numpy()]
    return torch.tensor([crc32(str(one).encode()) for one in ids], dtype=torch.long)


def homophily(edge_index: Tensor, y: Tensor) -> Tensor:
    """Return the share of edges $[2, E]$ between labelled nodes that join equal labels $[N]$."""
    first, second = y[edge_index]
    counts = (first >= 0) & (second >= 0) & (edge_index[0] != edge_index[1])
    return (first == second)[counts].double().mean()


def _varies(x: Matrix) -> np.ndarray:
    """Return whether each column $[D]$ has several values."""
    spread = x.max(axis=0).astype(float) - x.min(axis=0)
    return np.asarray(spread.toarray().ravel() if sp.issparse(spread) else spread) > 0


def _unit(rows: Tensor) -> Tensor:
    return torch.nn.functional.normalize(rows.double(), dim=1)
