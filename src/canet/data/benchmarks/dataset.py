"""Base class of the data sets: how a task is loaded, and facts about it.

Importing this file is fast, because it does not need torch.
"""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

if TYPE_CHECKING:
    from torch import Tensor

    from canet.data.task import ShiftTask

PUBLISHED = Path(__file__).with_name("published.txt")
PUBLISHED_SETTINGS = PUBLISHED.with_name("published_settings.json")
USER_GRAPH = "user-graph"  # name of the task of a user graph, which is not in the catalogue
STORE_PROTOCOL = "store"  # protocol of the task of a graph store: the splits are those of the store
PROTOCOLS = ("paper", "disjoint")  # protocols of tasks with spurious features
GENERATORS = ("shared", "redrawn", "resampled")  # generators of spurious columns
WITHOUT_SPURIOUS = "without spurious columns"
"""Features of the control that never sees the spurious columns."""
CENTRED_PER_GRAPH = "centred"
"""Features of the control in which each column is centred per graph (domain)."""


class RawFile(NamedTuple):
    """A published file."""

    path: str  # below a data root
    url: str | None = None  # of the file or of a zip archive; None: it is never downloaded
    sha256: str | None = None  # None: it is not verified
    members: tuple[str, ...] = ()  # names in the archive, one of which is the file


def published_files(start: str) -> tuple[RawFile, ...]:
    """Return the files of `published.txt` whose paths begin with a text."""
    rows = (shlex.split(line, comments=True) for line in PUBLISHED.read_text().splitlines())
    return tuple(
        RawFile(path, url, None if sha256 == "-" else sha256, tuple(members))
        for path, sha256, url, *members in filter(None, rows)
        if path.startswith(start)
    )


class Statistics(NamedTuple):
    """Size of a graph, or of one domain without spurious columns: both directions are one edge."""

    nodes: int
    edges: int
    classes: int
    features: int


class Request(NamedTuple):
    """The arguments of `load_task`."""

    data_root: Path | None = None
    data_seed: int = 0
    protocol: str = "paper"
    features: str | None = None
    inductive: bool = False
    generator: str = "shared"


class Dataset:
    """Base class of the data sets: `load`, and what is known of a task without loading it."""

    name: ClassVar[str]  # name in the catalogue
    description: ClassVar[str]  # one line for listings
    shift: ClassVar[str]  # as in `ShiftTask`
    metric: ClassVar[str]  # as in `ShiftTask`
    ood_sets: ClassVar[tuple[str, ...]]  # names of the OOD scores in results, such as `ood/ES`
    files: ClassVar[tuple[RawFile, ...]] = ()  # published files
    statistics: ClassVar[Statistics]  # of the published files
    # Names of the protocols. The first is the default, to which `ood_sets` and `statistics` refer.
    protocols: ClassVar[tuple[str, ...]] = PROTOCOLS[:1]
    generators: ClassVar[tuple[str, ...]] = GENERATORS[:1]  # generators of spurious columns
    features: ClassVar[tuple[str, ...]] = ()  # feature sets in addition to `original`
    domains: ClassVar[int] = 1  # number of copies of the graph
    spurious: ClassVar[int] = 0  # number of spurious columns that are added to the features
    # Whether experiments repeat runs on one split, as is usual for large graphs, not on several.
    has_single_split: ClassVar[bool] = False
    quick_epochs: ClassVar[int] = 40  # epochs of a quick trial of an experiment
    shared_settings: ClassVar[Mapping[str, Any]] = {}  # settings of all methods on this task

    @property
    def canet_settings(self) -> Mapping[str, Mapping[str, Any]]:
        """Backbone → settings that CaNet's authors published."""
        return json.loads(PUBLISHED_SETTINGS.read_text()).get(self.name, {})

    def load(self, request: Request) -> ShiftTask:
        """Load the task; missing raw files are downloaded."""
        raise NotImplementedError

    def split_task(self, request: Request, nodes: Tensor, **parts: Any) -> ShiftTask:
        """Build a task with a random split of the in-distribution nodes $[n]$."""
        import torch

        from canet.data.task import split_50_25_25

        generator = torch.Generator().manual_seed(request.data_seed)
        return self.task_from_splits(request, split_50_25_25(nodes, generator), **parts)

    def task_from_splits(
        self, request: Request, splits: tuple[Tensor, Tensor, Tensor], **parts: Any
    ) -> ShiftTask:
        """Build a task from the node ids of train, valid and test_id, and other parts."""
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
        """Return the files that `load` reads for a feature set."""
        return self.files
