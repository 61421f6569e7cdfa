"""A shift task: a graph, its splits, and the metric."""

from collections.abc import Mapping
from dataclasses import InitVar, dataclass, field, replace
from functools import cached_property
from typing import Self

import torch
from torch import Tensor

from canet.data.arrays import dtype_name
from canet.data.checks import (
    check_batch,
    check_classes,
    check_disjoint,
    check_edge_weights,
    check_edges,
    check_features,
    check_metric,
    check_nodes,
)
from canet.data.digest import DataDigest, digest_parts
from canet.data.graph import Graph
from canet.data.labels import check_values
from canet.data.raw_graph import GraphObject
from canet.errors import InputError
from canet.scoring.metrics import METRICS, Metric, rarer_class

IN_DISTRIBUTION_SPLITS = ("train", "valid", "test_id")
MAX_SCORED = 10_000
"""Training nodes of a graph on disk that are scored, and nodes on which models are compared."""


@dataclass(frozen=True)
class ShiftTask:
    """Node classification with a training distribution and shifted test sets.

    Invalid input is rejected. Masks, `y` of shape $[N, 1]$ and features of other types or layouts
    are converted.

    Args:
        name: Name in the catalogue, such as `cora`.
        data: The graph; a PyG `Data` is converted. `x` is a dense or a sparse CSR matrix
            $[N, D]$, `edge_index` is $[2, E]$ (source, target), `y` is $[N]$ with class ids (-1 if
            unknown). Optional columns are `edge_weight` $[E]$, `environment` $[N]$ with environment
            ids (-1 if unknown), `batch` $[N]$ with the number of each node's graph, from 0, `time`
            and `sample_weight` $[N]$. Without `batch`, each connected component is a graph.
        train, valid, test_id: Node ids or masks of disjoint in-distribution splits; `test_id` may
            be empty.
        test_ood: Name → node ids of each shifted test set, in the order of reports.
        metric: Metric of predictions; higher is better. Average precision is that of the class that
            is rarer among the training nodes.
        in_distribution: Mask $[N]$ of the nodes that exist at training time, labelled or not.
        inductive: Whether training must not see the other nodes and their edges.
        shift: What shifts between training and test, in two or three words.
        environments: Names of the environment ids.
        protocol: How the splits were made: `paper`, or another protocol of the task.
        data_seed: Seed of every random choice in the data (features, splits).
        features: `original`, `structural` if features were computed from the graph alone, or the
            name of a control.
        generator: How spurious columns were made: `shared` (as in the paper, and for tasks without
            spurious columns), `redrawn` or `resampled`.
        left_out: Name → node ids of shifted nodes that are not in the score of the protocol, but
            may be in a report.
        min_classes: Number of classes, if the largest class ids do not occur in y.
        rarer: The rarer of two classes in training; None: that of `train`.
        same_bits: Whether other features are other data even if they differ by rounding only. Of a
            benchmark, features are computed, and differ so between machines.
        checked: Whether all parts were validated and converted before.
    """

    name: str
    data: Graph
    train: Tensor
    valid: Tensor
    test_id: Tensor
    test_ood: Mapping[str, Tensor]
    metric: str
    in_distribution: Tensor
    shift: str
    inductive: bool = False
    environments: tuple[str, ...] = ()
    protocol: str = "paper"
    data_seed: int = 0
    features: str = "original"
    generator: str = "shared"
    left_out: Mapping[str, Tensor] = field(default_factory=dict)
    min_classes: int = 0
    rarer: int | None = None
    same_bits: bool = False
    checked: InitVar[bool] = False

    def __post_init__(self, checked: bool) -> None:
        if checked:
            return
        try:
            self._check()
        except InputError as error:
            raise InputError(f"task '{self.name}': {error}") from error

    def _check(self) -> None:
        """Reject invalid parts and convert the others to the standard form."""
        data = checked_data(self.data)
        y, n = data.y, data.num_nodes
        assert y is not None
        sets = {name: check_nodes(getattr(self, name), n, name) for name in IN_DISTRIBUTION_SPLITS}
        shifted = {
            kind: {name: check_nodes(ids, n, name) for name, ids in getattr(self, kind).items()}
            for kind in ("test_ood", "left_out")
        }
        mask = torch.zeros(n, dtype=torch.bool)
        mask[check_nodes(self.in_distribution, n, "in_distribution")] = True
        for name, value in ({"data": data, "in_distribution": mask} | sets | shifted).items():
            object.__setattr__(self, name, value)
        splits = self.splits()
        check_disjoint(splits, n)
        for split, nodes in splits.items():
            if (y[nodes] < 0).any():
                raise InputError(
                    f"split '{split}' contains nodes without a label: remove them from the split"
                )
            if split in IN_DISTRIBUTION_SPLITS and not mask[nodes].all():
                raise InputError(
                    f"{split} contains nodes outside in_distribution, which are hidden from "
                    "training: add them to in_distribution"
                )
        check_classes(y[self.train], self.num_classes)
        check_metric(self.metric, self.num_classes, y[self.valid])

    @property
    def num_nodes(self) -> int:
        return self.data.num_nodes

    @property
    def y(self) -> Tensor:
        """Class ids $[N]$ of the nodes; -1 if unknown."""
        assert self.data.y is not None
        return self.data.y

    @property
    def num_features(self) -> int:
        return int(self.data.x.shape[1])

    @property
    def num_classes(self) -> int:
        return max(int(self.y.max()) + 1, self.min_classes)

    @cached_property
    def scorer(self) -> Metric:
        """The metric as a function of logits and labels."""
        metric, rarer = METRICS[self.metric], self.rarer
        if rarer is None and metric.of_rarer:
            rarer = rarer_class(self.y[self.train].bincount(minlength=2))
        return metric.of_class(rarer)

    def in_memory(self) -> Self:
        """Return the task with the graph of its store in memory; other tasks are not changed."""
        if not self.data.is_on_disk:
            return self
        return replace(self, data=self.data.in_memory(), checked=True)

    @cached_property
    def digest(self) -> DataDigest:
        """Digest of graph, features, labels and splits; computed once."""
        about = self.metric, self.environments, self.same_bits
        return digest_parts(self.data.to_dict(), self.splits(), self.in_distribution, *about)

    @property
    def has_environments(self) -> bool:
        return self.data.environment is not None

    def training_environments(self) -> Tensor:
        """Sorted ids of the environments of the training nodes; empty without labels."""
        if self.data.environment is None:
            return torch.empty(0, dtype=torch.long)
        return torch.unique(self.data.environment[self.train])

    def observed(self) -> Tensor:
        """Nodes of the training graph; unless `inductive`, with all others of their graphs."""
        mask = self.in_distribution
        mask = mask if self.inductive else self.data.same_graphs(mask)
        return mask.nonzero().squeeze(1)

    def splits(self) -> dict[str, Tensor]:
        """All splits by name: train, valid, test_id (unless empty), `ood/NAME`, `left_out/NAME`."""
        splits = {"train": self.train, "valid": self.valid}
        if self.test_id.numel():
            splits["test_id"] = self.test_id
        ood = {f"ood/{name}": nodes for name, nodes in self.test_ood.items()}
        left_out = {f"left_out/{name}": nodes for name, nodes in self.left_out.items()}
        return splits | ood | left_out

    def scored(self) -> dict[str, Tensor]:
        """The splits; of a graph on disk, `train` is a random sample."""
        return self.splits() | {"train": self.sampled(self.train, MAX_SCORED)}

    def sampled(self, nodes: Tensor, count: int) -> Tensor:
        """Return at most `count` of some nodes if the graph is on disk, and else all of them."""
        return sample_nodes(nodes, count) if self.data.is_on_disk else nodes

    def training_graph(self) -> Graph:
        """The graph with the edges that training may use; if `inductive`, without other nodes."""
        if not self.inductive or self.data.edge_index is None:
            return self.data
        return self.data.with_edges(self.in_distribution[self.data.edge_index].all(dim=0))


def sample_nodes(nodes: Tensor, count: int, seed: int = 0) -> Tensor:
    """Return at most `count` of some nodes: always the same random ones, in the same order."""
    if nodes.numel() <= count:
        return nodes
    order = torch.randperm(nodes.numel(), generator=torch.Generator().manual_seed(seed))
    return nodes[order[:count]]


def split_50_25_25(nodes: Tensor, generator: torch.Generator) -> tuple[Tensor, Tensor, Tensor]:
    """Split node ids $[n]$ at random into train (50 %), valid (25 %) and test (the rest)."""
    shuffled = nodes[torch.randperm(nodes.numel(), generator=generator)]
    half, quarter = nodes.numel() // 2, nodes.numel() // 4
    train, valid, test = shuffled.tensor_split([half, half + quarter])
    return train.sort().values, valid.sort().values, test.sort().values


def checked_data(data: GraphObject | Graph) -> Graph:
    """Return a graph with validated `x`, `edge_index`, `y` (class ids) and optional columns."""
    x = check_features(data.x)
    n = x.shape[0]
    if data.y is None:
        raise InputError("the graph has no labels y: set data.y to class ids, -1 if one is unknown")
    y = check_ids(data.y, n, "y")
    if (y < -1).any():
        raise InputError(
            f"y contains {int(y.min())}: class ids are 0 or more, and -1 if a label is unknown"
        )
    edges = check_edges(data.edge_index, n)
    columns = {name: data.get(name) for name in ("time", "sample_weight", "marks")}
    if (weight := data.get("edge_weight")) is not None:
        columns["edge_weight"] = check_edge_weights(weight, edges.shape[1])
    if (environment := data.get("environment")) is not None:
        columns["environment"] = check_ids(environment, n, "environment")
    if (batch := data.get("batch")) is not None:
        columns["batch"] = check_batch(batch, n)
    return Graph(x, edges, y=y, **columns)


def check_ids(values: object, num_nodes: int, name: str) -> Tensor:
    """Return a column of ids $[N]$, such as environments; -1 if unknown."""
    found, known = check_values(values, num_nodes, name)
    if found.dtype.kind not in "ib":
        raise InputError(f"{name} contains {dtype_name(found)}, but ids must be integers")
    return torch.where(torch.from_numpy(known), torch.from_numpy(found).long(), -1)
