"""What a data set is: how its task is loaded, and the facts that others need to know about it.

Importing this file is cheap: it needs no torch.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

if TYPE_CHECKING:
    from torch import Tensor

    from canet.data.metrics import Metric
    from canet.data.task import ShiftTask

PROTOCOLS = ("paper", "disjoint")
GENERATORS = ("shared", "redrawn", "resampled")
"""How tasks with spurious features can be split, and how their spurious columns can be made."""
WITHOUT_SPURIOUS = "without spurious columns"
"""Features of a control that never sees the columns that would mislead it."""
CENTRED = "centred"
"""Features of a control: each column minus its mean over a domain."""


class RawFile(NamedTuple):
    """One official file.

    `path` is its place below a data root. `url` is its official address, or that of a zip archive
    that contains it under one of the names in `members`. A file without address is never
    downloaded. A file without `sha256` is not verified.
    """

    path: str
    url: str | None = None
    sha256: str | None = None
    members: tuple[str, ...] = ()


class Statistics(NamedTuple):
    """Size of a graph. Where a task has domains: of one domain, without the spurious features,
    and with both directions of an edge counted once.
    """

    nodes: int
    edges: int
    classes: int
    features: int


class Request(NamedTuple):
    """What of a task to load; see `load_task`."""

    data_root: Path | None = None
    data_seed: int = 0
    protocol: str = "paper"
    features: str | None = None
    inductive: bool = False
    generator: str = "shared"


class Dataset:
    """Base of the data sets: a subclass defines `load` and describes itself.

    A task of the catalogue is described by these attributes alone: nothing needs to be loaded.
    """

    name: ClassVar[str]  # in the catalogue
    description: ClassVar[str]  # one line for listings
    shift: ClassVar[str]  # as in `ShiftTask`, like the metric
    metric: ClassVar[Metric]
    ood_sets: ClassVar[tuple[str, ...]]  # names of the OOD scores in results, such as `ood/ES`
    files: ClassVar[tuple[RawFile, ...]] = ()  # the official ones
    statistics: ClassVar[Statistics | None] = None  # of the official files; None without files
    protocols: ClassVar[tuple[str, ...]] = PROTOCOLS[:1]
    """Ways to choose what to train and to test on; the first is the default, and `ood_sets` and
    `statistics` are about it."""
    generators: ClassVar[tuple[str, ...]] = GENERATORS[:1]  # ways to make its spurious columns
    features: ClassVar[tuple[str, ...]] = ()  # feature sets in addition to its own
    domains: ClassVar[int] = 1  # copies of the graph
    spurious: ClassVar[int] = 0  # columns that are added to the features
    one_split: ClassVar[bool] = False
    """Whether experiments repeat runs on one split, as is usual for large graphs, and not on other
    draws of the data."""
    quick_epochs: ClassVar[int] = 40  # of a run that only tries an experiment out
    shared_settings: ClassVar[Mapping[str, Any]] = {}  # that all methods share on this task
    canet_settings: ClassVar[Mapping[str, Mapping[str, Any]]] = {}
    """Backbone → the settings that CaNet's authors published."""

    def load(self, request: Request) -> ShiftTask:
        """The task, with the raw files downloaded where they are missing."""
        raise NotImplementedError

    def split_task(self, request: Request, nodes: Tensor, **parts: Any) -> ShiftTask:
        """A task of some parts, with the in-distribution nodes $[n]$ split at random."""
        import torch

        from canet.data.splits import split_50_25_25

        generator = torch.Generator().manual_seed(request.data_seed)
        return self.task_of(request, split_50_25_25(nodes, generator), **parts)

    def task_of(
        self, request: Request, splits: tuple[Tensor, Tensor, Tensor], **parts: Any
    ) -> ShiftTask:
        """A task of train, valid and test_id, which are ids of nodes, and other parts."""
        from canet.data.task import ShiftTask

        train, valid, test_id = splits
        return ShiftTask(
            name=self.name,
            train=train,
            valid=valid,
            test_id=test_id,
            metric=self.metric,
            shift=self.shift,
            protocol=request.protocol,
            data_seed=request.data_seed,
            features=request.features or "original",
            **parts,
        )

    def files_for(self, features: str | None) -> tuple[RawFile, ...]:
        """The files that `load` reads for a feature set."""
        return self.files

    def count(self, task: ShiftTask, data_root: Path | None) -> Statistics:
        """The statistics of a loaded task."""
        edges = int(task.data.edge_index.shape[1])
        return Statistics(task.num_nodes, edges, task.num_classes, task.num_features)
