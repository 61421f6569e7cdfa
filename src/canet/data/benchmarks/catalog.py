"""All data sets by name; torch and the readers are imported when a data set is first used."""

from __future__ import annotations

import os
from collections import UserDict
from dataclasses import dataclass, fields, replace
from functools import cached_property
from pathlib import Path
from pkgutil import resolve_name
from typing import TYPE_CHECKING, Any, SupportsIndex

from canet.data.benchmarks.dataset import Dataset, Request, Statistics
from canet.data.benchmarks.files import FileStatus, status
from canet.errors import check_name, unknown_name
from canet.util.seeds import checked_seed

if TYPE_CHECKING:
    from canet.data.task import ShiftTask


class Catalogue(UserDict[str, Any]):
    """Data sets by name, also those of other packages; each is imported when it is first used."""

    def __init__(self, known: dict[str, str]) -> None:
        self._known = known

    @cached_property
    def data(self) -> dict[str, Any]:  # type: ignore[override]
        """Name → class of a data set or its import path, or the data set itself once it is used."""
        from canet.util.plugins import add_plugins

        found: dict[str, Any] = dict(self._known)
        add_plugins("canet.datasets", found, Dataset)
        return found

    def __getitem__(self, name: str) -> Dataset:
        found = self.data[name]
        if not isinstance(found, Dataset):
            found = self.data[name] = (resolve_name(found) if isinstance(found, str) else found)()
        return found


DATASETS = Catalogue(
    {
        "synthetic": "canet.data.benchmarks.synthetic:Synthetic",
        "cora": "canet.data.benchmarks.planetoid:Cora",
        "citeseer": "canet.data.benchmarks.planetoid:Citeseer",
        "pubmed": "canet.data.benchmarks.planetoid:Pubmed",
        "twitch": "canet.data.benchmarks.twitch:Twitch",
        "arxiv": "canet.data.benchmarks.arxiv:Arxiv",
        "elliptic": "canet.data.benchmarks.elliptic:Elliptic",
        "airports": "canet.data.benchmarks.airports:Airports",
        "webkb": "canet.data.benchmarks.webkb:WebKB",
        "fb100": "canet.data.benchmarks.fb100:Facebook100",
        "election": "canet.data.benchmarks.election:Election",
        "roads": "canet.data.benchmarks.roads:Roads",
    }
)


@dataclass(frozen=True)
class TaskDescription:
    """The description of a task that `canet datasets` shows."""

    name: str
    description: str
    shift: str
    metric: str
    state: str
    statistics: Statistics
    domains: int
    spurious: int  # number of spurious columns, which are added to the features
    protocols: tuple[str, ...]
    features: tuple[str, ...]
    splits: dict[str, int]  # name → size; empty unless the files are present
    files: list[FileStatus]


def get_dataset(name: str) -> Dataset:
    """Return the data set with a name; an unknown name is an `InputError`."""
    check_name("task", name, DATASETS)
    return DATASETS[name]


def is_store_path(name: str) -> bool:
    """Whether a task is that of a graph store: its name is then a path with a separator."""
    return isinstance(name, str) and os.sep in name


def load_task(
    name: str,
    data_root: str | Path | None = None,
    data_seed: SupportsIndex = 0,
    protocol: str | None = None,
    features: str | None = None,
    inductive: bool = False,
    generator: str = "shared",
) -> ShiftTask:
    """Load a task of the catalogue; missing files are downloaded into the cache.

    Args:
        name: Name of the task, such as `cora`, or the path of a graph store, such as `./store`. The
            splits of a store except `train` and `valid` are test sets.
        data_root: Folder with raw files, which are not changed. Default: `CANET_DATA_ROOT`, then
            the cache. The path of a graph store is relative to `data_root`, by default to the
            working folder.
        data_seed: Seed of the random choices in the data (spurious features and splits), from 0 to
            2³² - 1.
        protocol: How the data is split into training and test data, such as `disjoint` for
            spurious-feature tasks or `texas` for WebKB. None for the default protocol of the task.
        features: None or `original` for the features of the data set; `structural` for features
            computed from the graph alone (Arxiv and Elliptic), which need no features file;
            `multi-hot` for the features of Twitch without row normalisation; `without spurious
            columns` or `centred` (each column centred per graph) for the controls of
            spurious-feature tasks.
        inductive: Whether to hide nodes that do not exist at training time from training.
        generator: How spurious columns are made; see `canet.data.benchmarks.spurious`.
    """
    root = Path(data_root) if data_root else None
    if is_store_path(name):
        from canet.data.store_task import load_store_task  # needs torch

        return load_store_task(name, checked_seed(data_seed, "data_seed"), root)
    dataset = get_dataset(name)
    protocol = dataset.protocols[0] if protocol is None else protocol
    check_name(f"protocol for {name}", protocol, dataset.protocols)
    check_name(f"generator for {name}", generator, dataset.generators)
    if features not in (None, "original", *dataset.features):
        raise unknown_name(f"features for {name}", features, ("original", *dataset.features))
    chosen = None if features == "original" else features
    seed = checked_seed(data_seed, "data_seed")
    task = dataset.load(Request(root, seed, protocol, chosen, inductive, generator))
    return replace(task, inductive=inductive, checked=True)


def file_status(name: str, data_root: str | Path | None = None) -> list[FileStatus]:
    """Return whether each file of a task is present, missing or changed, without downloading."""
    return [status(file, data_root) for file in get_dataset(name).files]


def describe(name: str, data_root: str | Path | None = None) -> TaskDescription:
    """Describe a task; the sizes of its splits are counted if its files are present."""
    dataset = get_dataset(name)
    files = file_status(name, data_root)
    states = {file.state for file in files}
    state = next((s for s in ("changed", "missing") if s in states), "present")
    found = load_task(name, data_root).splits() if state == "present" else {}
    splits = {split: nodes.numel() for split, nodes in found.items()}
    facts: Any = {one.name: getattr(dataset, one.name, None) for one in fields(TaskDescription)}
    return TaskDescription(**facts | {"state": state, "splits": splits, "files": files})
