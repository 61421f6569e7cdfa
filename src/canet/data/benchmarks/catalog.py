"""The catalogue: one entry per task, and the one way to load any of them.

Importing this file is cheap; torch and the readers are imported when a task is loaded.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, SupportsIndex

from canet.data.benchmarks import raw, sources
from canet.data.benchmarks.raw import FileStatus
from canet.errors import check_name, unknown_name
from canet.util.seeds import checked_seed

if TYPE_CHECKING:
    from canet.data.metrics import Metric
    from canet.data.task import ShiftTask

SPURIOUS_PROTOCOLS = ("paper", "disjoint")
GENERATORS = ("shared", "redrawn", "resampled")


class Statistics(NamedTuple):
    """Size of a graph; of one domain, its edges without direction and its features without the
    spurious ones, where a task has domains.
    """

    nodes: int
    edges: int
    classes: int
    features: int


class Request(NamedTuple):
    """What of a task to load; see `load_task`."""

    data_root: Path | None
    data_seed: int
    protocol: str
    features: str | None
    inductive: bool
    generator: str


@dataclass(frozen=True)
class Entry:
    """A task of the catalogue.

    Args:
        description: One line for listings.
        shift, metric: As in `ShiftTask`.
        load: Reads the task.
        measure: Counts from the loaded task and the data root.
        counts: What `measure` gives for the official files; None for a task that needs no files.
        protocols: Ways to split it.
        features: Feature sets it offers besides its own.
        domains: Number of copies of the graph.
        spurious: Columns that are added to the features.
    """

    description: str
    shift: str
    metric: Metric
    load: Callable[[Request], ShiftTask]
    measure: Callable[[ShiftTask, Path | None], Statistics]
    counts: Statistics | None
    protocols: tuple[str, ...] = ("paper",)
    features: tuple[str, ...] = ()
    domains: int = 1
    spurious: int = 0


@dataclass(frozen=True)
class TaskDescription:
    """What `canet datasets` tells about a task.

    `statistics` are counted from the files if `state` is "present", else they are those of the
    official files. A model reads `spurious` columns besides the features. `splits` maps the name of
    each node set to its size, and is empty unless counted.
    """

    name: str
    description: str
    shift: str
    metric: Metric
    state: str
    statistics: Statistics
    domains: int
    spurious: int
    protocols: tuple[str, ...]
    features: tuple[str, ...]
    splits: dict[str, int] = field(default_factory=dict)
    files: list[FileStatus] = field(default_factory=list)


def _load_synthetic(request: Request) -> ShiftTask:
    from canet.data.benchmarks.synthetic import synthetic_task

    return synthetic_task(request.data_seed, request.protocol, request.generator)


def _load_twitch(request: Request) -> ShiftTask:
    from canet.data.benchmarks.twitch import twitch_task

    return twitch_task(request.data_root, request.data_seed, request.features)


def _load_arxiv(request: Request) -> ShiftTask:
    from canet.data.benchmarks.arxiv import arxiv_task

    return arxiv_task(request.data_root, request.data_seed, request.features, request.inductive)


def _load_elliptic(request: Request) -> ShiftTask:
    from canet.data.benchmarks.elliptic import elliptic_task

    return elliptic_task(request.data_root, request.data_seed, request.features, request.inductive)


def _count(task: ShiftTask, data_root: Path | None) -> Statistics:
    return Statistics(
        task.num_nodes, int(task.data.edge_index.shape[1]), task.num_classes, task.num_features
    )


def _count_domain(task: ShiftTask, data_root: Path | None) -> Statistics:
    from canet.data.benchmarks.spurious import NUM_DOMAINS, NUM_SPURIOUS

    whole = _count(task, data_root)
    nodes, edges = whole.nodes // NUM_DOMAINS, whole.edges // (2 * NUM_DOMAINS)
    return Statistics(nodes, edges, whole.classes, whole.features - NUM_SPURIOUS)


def _citation(name: str, title: str, counts: Statistics) -> Entry:
    def load(request: Request) -> ShiftTask:
        from canet.data.benchmarks.planetoid import planetoid_task

        return planetoid_task(
            name, request.data_root, request.data_seed, request.protocol, request.generator
        )

    def measure(task: ShiftTask, data_root: Path | None) -> Statistics:
        from canet.data.benchmarks.planetoid import read_planetoid

        graph = read_planetoid(name, data_root)
        nodes, features = graph.x.shape
        return Statistics(nodes, graph.num_listed_edges, task.num_classes, features)

    return Entry(
        description=f"{title} citations, six domains with spurious features",
        shift="spurious features",
        metric="accuracy",
        load=load,
        measure=measure,
        counts=counts,
        protocols=SPURIOUS_PROTOCOLS,
        domains=6,
        spurious=10,
    )


CATALOG: dict[str, Entry] = {
    "synthetic": Entry(
        description="embedded random graph, six domains with spurious features; needs no files",
        shift="spurious features",
        metric="accuracy",
        load=_load_synthetic,
        measure=_count_domain,
        counts=None,
        protocols=SPURIOUS_PROTOCOLS,
        domains=6,
        spurious=10,
    ),
    "cora": _citation("cora", "Cora", Statistics(2708, 5429, 7, 1433)),
    "citeseer": _citation("citeseer", "Citeseer", Statistics(3327, 4732, 6, 3703)),
    "pubmed": _citation("pubmed", "Pubmed", Statistics(19717, 44338, 3, 500)),
    "twitch": Entry(
        description="friends among streamers of six languages: explicit language or not",
        shift="disconnected subgraphs",
        metric="roc_auc",
        load=_load_twitch,
        measure=_count,
        counts=Statistics(34118, 892344, 2, 3170),
        features=("multi-hot",),
    ),
    "arxiv": Entry(
        description="citations among computer-science papers by year: subject of a paper",
        shift="time attributes",
        metric="accuracy",
        load=_load_arxiv,
        measure=_count,
        counts=Statistics(169343, 1166243, 40, 128),
        features=("structural",),
    ),
    "elliptic": Entry(
        description="flows among Bitcoin transactions in 49 time steps: illicit or licit",
        shift="dynamic snapshots",
        metric="macro_f1",
        load=_load_elliptic,
        measure=_count,
        counts=Statistics(203769, 234355, 2, 165),
        features=("structural",),
    ),
}


def load_task(
    name: str,
    data_root: str | Path | None = None,
    data_seed: SupportsIndex = 0,
    protocol: str = "paper",
    features: str | None = None,
    inductive: bool = False,
    generator: str = "shared",
) -> ShiftTask:
    """Load a task of the catalogue; files that are missing are downloaded into the cache.

    Args:
        name: Such as `cora`.
        data_root: Folder with raw files, only read; default `CANET_DATA_ROOT`, then the cache.
        data_seed: Seed of the random choices in the data: spurious features and splits; from 0 to
            2³² - 1.
        protocol: How splits are made: `paper`, or `disjoint` for spurious-feature tasks.
        features: None for the task's own features; `structural` for ones computed from the graph
            alone (Arxiv and Elliptic), which needs no features file; `multi-hot` for Twitch's
            without the normalisation of their rows.
        inductive: Whether nodes that do not exist at training time are hidden from training.
        generator: How spurious columns are made; see `canet.data.benchmarks.spurious`.
    """
    entry = _entry(name)
    check_name(f"protocol for {name}", protocol, entry.protocols)
    generators = GENERATORS if len(entry.protocols) > 1 else GENERATORS[:1]
    check_name(f"generator for {name}", generator, generators)
    if features is not None and features not in entry.features:
        own = "only its own (features=None)"
        raise unknown_name(f"features for {name}", features, entry.features or (own,))
    seed = checked_seed(data_seed, "data_seed")
    root = Path(data_root) if data_root else None
    task = entry.load(Request(root, seed, protocol, features, inductive, generator))
    return replace(task, inductive=inductive)


def file_status(name: str, data_root: str | Path | None = None) -> list[FileStatus]:
    """Whether each file of a task is present, missing or damaged; nothing is downloaded."""
    _entry(name)
    root = Path(data_root) if data_root else None
    return [raw.status(file, root) for file in sources.FILES[name]]


def describe(name: str, data_root: str | Path | None = None) -> TaskDescription:
    """Size, splits and files of a task, counted where its files are here."""
    entry = _entry(name)
    files = file_status(name, data_root)
    states = {file.state for file in files}
    state = next((s for s in ("damaged", "missing") if s in states), "present")
    description = TaskDescription(
        name=name,
        description=entry.description,
        shift=entry.shift,
        metric=entry.metric,
        state=state,
        statistics=entry.counts or Statistics(0, 0, 0, 0),
        domains=entry.domains,
        spurious=entry.spurious,
        protocols=entry.protocols,
        features=entry.features,
        files=files,
    )
    if state != "present":
        return description
    task = load_task(name, data_root)
    return replace(
        description,
        statistics=entry.measure(task, Path(data_root) if data_root else None),
        splits={split: nodes.numel() for split, nodes in task.splits().items()},
    )


def _entry(name: str) -> Entry:
    check_name("task", name, CATALOG)
    return CATALOG[name]
