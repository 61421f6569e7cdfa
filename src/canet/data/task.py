"""A shift task is data: the graph, which nodes are for what, and how a prediction is scored."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

import torch
from torch import Tensor
from torch_geometric.data import Data

from canet.errors import CanetError
from canet.sparse import components

Metric = Literal["accuracy", "roc_auc", "macro_f1"]


@dataclass(frozen=True)
class ShiftTask:
    """Node classification with a training distribution and shifted test sets.

    Splits, protocol and metric are decided here, once, by `data_seed`.

    Args:
        name: Name in the catalogue, such as `cora`.
        data: PyG graph. `x` is a dense or a sparse CSR matrix $[N, D]$, `edge_index` is $[2, E]$
            (source, target), `y` is $[N]$ with class ids (-1: unknown), and `environment`, where
            the task has labels for it, is $[N]$ with environment ids (-1: none). `batch`, where
            it is given, is $[N]$ with the number of each node's graph, from 0 on; without it a
            graph is a connected component.
        train, valid, test_id: Node ids of the in-distribution portion, disjoint.
        test_ood: Name of each shifted test set → its node ids, in the order of reports.
        metric: How predictions are scored, higher is better.
        in_distribution: Mask $[N]$ of the nodes, labelled or not, that exist at training time.
        inductive: Whether training passes must not see the other nodes and their edges.
        shift: What moves between training and test, in two or three words.
        environments: Names of the environment ids.
        protocol: How splits were made: `paper`, or `disjoint` where the task offers it.
        data_seed: Seed of every random choice in the data (features, splits).
        features: `structural` where features were computed from the graph alone, else `original`.
        left_out: Name → node ids of shifted nodes that the protocol never scores but a report may.
    """

    name: str
    data: Data
    train: Tensor
    valid: Tensor
    test_id: Tensor
    test_ood: Mapping[str, Tensor]
    metric: Metric
    in_distribution: Tensor
    shift: str
    inductive: bool = False
    environments: tuple[str, ...] = ()
    protocol: str = "paper"
    data_seed: int = 0
    features: str = "original"
    left_out: Mapping[str, Tensor] = field(default_factory=dict)

    def __post_init__(self) -> None:
        n = self.data.y.numel()
        values = self.data.x.values() if self.data.x.layout == torch.sparse_csr else self.data.x
        if self.data.x.shape[0] != n:
            raise CanetError(f"task '{self.name}': {self.data.x.shape[0]} feature rows, {n} labels")
        if not torch.isfinite(values).all():
            raise CanetError(
                f"task '{self.name}': features hold NaN or infinity; replace them before loading"
            )
        for split, nodes in self.splits().items():
            if nodes.numel() and (self.data.y[nodes] < 0).any():
                raise CanetError(f"task '{self.name}': split '{split}' holds nodes without label")

    @property
    def num_nodes(self) -> int:
        return int(self.data.y.numel())

    @property
    def num_features(self) -> int:
        return int(self.data.x.shape[1])

    @property
    def num_classes(self) -> int:
        return int(self.data.y.max()) + 1

    @property
    def has_environments(self) -> bool:
        """Whether training nodes carry environment labels."""
        return "environment" in self.data

    def training_environments(self) -> Tensor:
        """Ids of the environments that training nodes are in, ascending; none without labels."""
        if not self.has_environments:
            return torch.empty(0, dtype=torch.long)
        ids: Tensor = self.data.environment[self.train].unique()
        return ids

    def observed(self) -> Tensor:
        """Ids of the nodes of the training graph, labelled or not.

        Those in distribution and, unless `inductive` hides them, all that are connected to them.
        Nodes of graphs that no training node is part of are not observed.
        """
        mask = self.in_distribution
        if not self.inductive:
            given = "batch" in self.data
            component = (
                self.data.batch if given else components(self.data.edge_index, self.num_nodes)
            )
            mask = torch.isin(component, component[mask].unique())
        return mask.nonzero().squeeze(1)

    def splits(self) -> dict[str, Tensor]:
        """Every node set by name: train, valid, test_id, `ood/NAME`..., `left_out/NAME`..."""
        ood = {f"ood/{name}": nodes for name, nodes in self.test_ood.items()}
        left_out = {f"left_out/{name}": nodes for name, nodes in self.left_out.items()}
        own = {"train": self.train, "valid": self.valid, "test_id": self.test_id}
        return own | ood | left_out

    def training_edges(self) -> Tensor:
        """Edges $[2, E']$ that training and validation may use.

        All of them, or under `inductive` those between nodes that exist at training time. Node ids
        stay the same: a hidden node is one that no edge reaches.
        """
        edge_index: Tensor = self.data.edge_index
        if not self.inductive:
            return edge_index
        return edge_index[:, self.in_distribution[edge_index].all(dim=0)]
