"""A shift task is data: the graph, which nodes are for what, and how a prediction is scored."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from dataclasses import InitVar, dataclass, field
from functools import cached_property

import torch
from torch import Tensor

from canet.data.checks import (
    check_classes,
    check_disjoint,
    check_edges,
    check_features,
    check_graphs,
    check_metric,
    check_nodes,
)
from canet.data.digest import DataDigest, digest_parts
from canet.data.graph_data import AnyGraph
from canet.data.labels import check_labels
from canet.data.metrics import Metric
from canet.errors import InputError
from canet.util.sparse import components

OWN_SPLITS = ("train", "valid", "test_id")


@dataclass(frozen=True)
class ShiftTask:
    """Node classification with a training distribution and shifted test sets.

    Splits, protocol and metric are decided here, once, by `data_seed`. Wrong input is rejected;
    masks, `y` of shape $[N, 1]$ and features of other types or layouts are converted.

    Args:
        name: Name in the catalogue, such as `cora`.
        data: PyG graph. `x` is a dense or a sparse CSR matrix $[N, D]$, `edge_index` is $[2, E]$
            (source, target), `y` is $[N]$ with class ids (-1: unknown), and `environment`, where
            the task has labels for it, is $[N]$ with environment ids (-1: none). `batch`, where
            it is given, is $[N]$ with the number of each node's graph, from 0 on; without it a
            graph is a connected component.
        train, valid, test_id: Node ids, or masks, of the in-distribution portion, disjoint;
            `test_id` may be empty.
        test_ood: Name of each shifted test set → its node ids, in the order of reports.
        metric: How predictions are scored, higher is better.
        in_distribution: Mask $[N]$ of the nodes, labelled or not, that exist at training time.
        inductive: Whether training passes must not see the other nodes and their edges.
        shift: What moves between training and test, in two or three words.
        environments: Names of the environment ids.
        protocol: How splits were made: `paper`, or another that the task offers.
        data_seed: Seed of every random choice in the data (features, splits).
        features: `structural` where features were computed from the graph alone, else `original`.
        generator: How spurious columns were made: `shared`, as in the paper and where there are
            none, `redrawn` or `resampled`.
        left_out: Name → node ids of shifted nodes that the protocol never scores but a report may.
        checked: Whether all parts have been checked already and have the final form.
    """

    name: str
    data: AnyGraph
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
    generator: str = "shared"
    left_out: Mapping[str, Tensor] = field(default_factory=dict)
    checked: InitVar[bool] = False

    def __post_init__(self, checked: bool) -> None:
        if checked:
            return
        try:
            self._check()
        except InputError as error:
            raise InputError(f"task '{self.name}': {error}") from error

    def _check(self) -> None:
        """Reject what cannot be trained or scored, and bring the rest into one form."""
        data = checked_data(self.data)
        n = data.y.numel()
        as_ids = {name: check_nodes(getattr(self, name), n, name) for name in OWN_SPLITS}
        shifted = {
            kind: {name: check_nodes(ids, n, name) for name, ids in getattr(self, kind).items()}
            for kind in ("test_ood", "left_out")
        }
        mask = torch.zeros(n, dtype=torch.bool)
        mask[check_nodes(self.in_distribution, n, "in_distribution")] = True
        for name, value in ({"data": data, "in_distribution": mask} | as_ids | shifted).items():
            object.__setattr__(self, name, value)
        splits = self.splits()
        check_disjoint(splits, n)
        for split, nodes in splits.items():
            if (data.y[nodes] < 0).any():
                raise InputError(f"split '{split}' has nodes without label: leave them out")
            if split in OWN_SPLITS and not mask[nodes].all():
                raise InputError(
                    f"{split} has nodes outside in_distribution: they would be hidden from "
                    "training; widen the mask"
                )
        check_classes(data.y[self.train], self.num_classes)
        check_metric(self.metric, self.num_classes, data.y[self.valid])

    @property
    def num_nodes(self) -> int:
        return int(self.data.y.numel())

    @property
    def num_features(self) -> int:
        return int(self.data.x.shape[1])

    @property
    def num_classes(self) -> int:
        return int(self.data.y.max()) + 1

    @cached_property
    def digest(self) -> DataDigest:
        """Identifies this task's graph, features, labels and splits; computed once."""
        return digest_parts(
            self.data, self.splits(), self.in_distribution, self.metric, self.environments
        )

    @property
    def has_environments(self) -> bool:
        """Whether training nodes carry environment labels."""
        return "environment" in self.data

    def training_environments(self) -> Tensor:
        """Ids of the environments that training nodes are in, ascending; none without labels."""
        if not self.has_environments:
            return torch.empty(0, dtype=torch.long)
        return torch.unique(self.data.environment[self.train])

    def observed(self) -> Tensor:
        """Ids of the nodes of the training graph, labelled or not.

        Those in distribution and, unless `inductive` hides them, all that are connected to them.
        Nodes of graphs that no training node is part of are not observed.
        """
        mask = self.in_distribution
        if not (self.inductive or mask.all()):
            graph = self.data.get("batch")
            if graph is None:
                graph = components(self.data.edge_index, self.num_nodes)
            mask = torch.isin(graph, graph[mask].unique())
        return mask.nonzero().squeeze(1)

    def splits(self) -> dict[str, Tensor]:
        """Every node set by name: train, valid, test_id, `ood/NAME`..., `left_out/NAME`...

        An empty `test_id` is left out.
        """
        own = {"train": self.train, "valid": self.valid}
        if self.test_id.numel():
            own["test_id"] = self.test_id
        ood = {f"ood/{name}": nodes for name, nodes in self.test_ood.items()}
        left_out = {f"left_out/{name}": nodes for name, nodes in self.left_out.items()}
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


def checked_data(data: AnyGraph) -> AnyGraph:
    """A copy whose `x`, `edge_index`, `y` (class ids) and optional columns have the one form."""
    x = check_features(data.x)
    n = x.shape[0]
    if data.y is None:
        raise InputError("y is missing: give each node its class id, -1 where it is unknown")
    y = check_ids(data.y, n, "y")
    if (y < -1).any():
        raise InputError("y must hold class ids from 0 on, -1 where a label is unknown")
    checked = {"x": x, "edge_index": check_edges(data.edge_index, n), "y": y}
    if "environment" in data:
        checked["environment"] = check_ids(data.environment, n, "environment")
    if "batch" in data:
        checked["batch"] = check_graphs(data.batch, n, "batch")
    other = copy.copy(data)
    for name, tensor in checked.items():
        other[name] = tensor
    return other


def check_ids(values: object, num_nodes: int, name: str) -> Tensor:
    """A column of ids $[N]$, such as environments; -1 where a node has none."""
    found, known = check_labels(values, num_nodes, name)
    if found.dtype.kind not in "ib":
        raise InputError(f"{name} must hold ids, as integers")
    return torch.where(torch.from_numpy(known), torch.from_numpy(found).long(), -1)
