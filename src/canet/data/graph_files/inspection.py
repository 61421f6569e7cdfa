"""What `canet inspect` shows: what the files of a graph contain, and what looks wrong."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from canet.data.checks import FEW_BOTH_WAYS
from canet.data.graph_files.arrays import ArrayGraph
from canet.data.graph_files.encoding import Encoding, Roles
from canet.data.graph_files.folder import Folder
from canet.data.graph_files.parts import GraphParts
from canet.data.graph_files.read import graph_path
from canet.data.graph_files.statistics import EdgeStatistics, edge_statistics, feature_statistics
from canet.data.graph_files.summary import ColumnSummary, check_learnable
from canet.data.graph_files.values import MISSING_CLASS
from canet.data.labels import check_labels
from canet.errors import InputError, listed

FEW_LABELS = 5
"""A class with fewer labelled nodes than this can hardly be learnt."""
MOST_ROWS = 20
"""Of a table in the terminal."""
KINDS = {"O": "text", "b": "boolean", "i": "integer", "u": "integer", "f": "number"}
Table = tuple[str, list[str], list[list[str]]]
"""Title, heads and rows."""


@dataclass(frozen=True)
class ColumnReport:
    """A column of nodes, or an array.

    Args:
        name: As in the file.
        role: `feature`, `label`, `time` and so on.
        kind: What it contains.
        empty: How many cells have no content, or are NaN.
        content: Range of numbers and dates, or the first of other values.
    """

    name: str
    role: str
    kind: str
    empty: int
    content: str


@dataclass
class Inspection:
    """What a graph's files contain.

    Args:
        path: Of the graph.
        nodes: How many there are.
        features: D; None where features cannot be made.
        edges: Counts of edges, components and degrees.
        columns: Of the nodes.
        labels, environments: Nodes of each.
        unlabelled: Nodes without label; None where there are no labels.
        splits: Nodes of each set.
        time: First and last, as numbers or ISO dates; None without times.
        notes: How columns become features.
        warnings: What is wrong or looks wrong, a line each.
    """

    path: str
    nodes: int
    features: int | None
    edges: EdgeStatistics
    columns: list[ColumnReport]
    labels: dict[str, int] = field(default_factory=dict)
    unlabelled: int | None = None
    environments: dict[str, int] = field(default_factory=dict)
    splits: dict[str, int] = field(default_factory=dict)
    time: tuple[str, str] | None = None
    notes: list[str] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)

    def to_json(self) -> dict[str, Any]:
        """Plain content for a JSON file."""
        return asdict(self)

    def lines(self) -> list[str]:
        """Everything except the tables, a line each."""
        e = self.edges
        features = "no" if self.features is None else f"{self.features:,}"
        both = "" if e.reverse_share is None else f", {e.reverse_share:.0%} with their reverse"
        lines = [
            f"{self.path}: {self.nodes:,} nodes, {e.edges:,} edges, {features} features",
            f"edges: {e.self_loops:,} self-loops, {e.repeated:,} repeated{both}",
            f"incoming edges of a node: median {e.degree_median:g}, at most {e.degree_max:,}",
            f"components: {e.components:,}, the largest with {e.largest_component:,} nodes; "
            f"{e.isolated:,} isolated nodes",
        ]
        if self.time:
            lines.append(f"time: {self.time[0]} to {self.time[1]}")
        if self.splits:
            lines.append(
                "split: " + ", ".join(f"{n} {count:,}" for n, count in self.splits.items())
            )
        if self.unlabelled is not None:
            lines.append(
                f"labels: {len(self.labels):,} classes; {self.unlabelled:,} nodes unlabelled"
            )
        lines += [f"note: {note}" for note in self.notes]
        return lines + [f"warning: {warning}" for warning in self.warnings]

    def tables(self) -> list[Table]:
        """Columns, labels and environments, cut where there are many."""
        columns = [[c.name, c.role, c.kind, f"{c.empty:,}", c.content] for c in self.columns]
        tables = [("Columns", ["column", "role", "contains", "empty", "content"], columns)]
        for title, counts in (("Labels", self.labels), ("Environments", self.environments)):
            if counts:
                rows = [[name, f"{count:,}"] for name, count in counts.items()]
                tables.append((title, [title[:-1].lower(), "nodes"], rows))
        return [_cut(*table) for table in tables]


def inspect_graph(
    path: Path | str,
    *,
    label: str | None = None,
    split: str | None = None,
    environment: str | None = None,
    time: str | None = None,
    id: str | None = None,
) -> Inspection:
    """Inspect a graph, also one that cannot be trained on; arguments as in `read_graph`."""
    asked = Roles(id=id, label=label, split=split, environment=environment, time=time)
    place = graph_path(path)
    return _inspect_folder(place, asked) if place.is_dir() else _inspect_arrays(place, asked)


def _inspect_folder(path: Path, asked: Roles) -> Inspection:
    folder = Folder.open(path, asked)
    found, roles, problems = folder.found, folder.roles, list[str]()
    kept = int(folder.kept.sum())
    check_learnable(found, folder.nodes, folder.table, kept, problems.append)
    encoding = None if problems else Encoding.learn(found, roles)
    parts = folder.parts(problems.append)
    inspection = Inspection(
        path=str(path),
        nodes=parts.num_nodes,
        features=len(encoding.names) if encoding else None,
        edges=edge_statistics(parts.edge_index, parts.num_nodes),
        columns=_report_roles(roles, parts) + [_report_feature(c) for c in found.values()],
        notes=encoding.notes() if encoding else [],
        warnings=problems + folder.ignored(None),
    )
    _add_columns(inspection, parts)
    return inspection


def _inspect_arrays(path: Path, asked: Roles) -> Inspection:
    graph = ArrayGraph(path, asked)
    x, problems = feature_statistics(graph.features(), path), list[str]()
    if not x.nodes:
        raise InputError(f"'{path}' has no nodes: give x the shape [nodes, features]")
    parts = graph.parts(x.nodes, problems.append)
    features = [ColumnReport("x", "feature", x.kind, x.empty, x.content)]
    inspection = Inspection(
        path=str(path),
        nodes=x.nodes,
        features=x.features,
        edges=edge_statistics(parts.edge_index, parts.num_nodes),
        columns=_report_roles(graph.roles, parts) + features,
        warnings=problems + x.warnings + graph.ignored(),
    )
    _add_columns(inspection, parts)
    return inspection


def _add_columns(inspection: Inspection, parts: GraphParts) -> None:
    """Add labels, environments, times, sets, and what looks wrong with them and the edges."""
    n, warn = parts.num_nodes, inspection.warnings.append
    names = {"train_mask": "train", "val_mask": "valid", "test_mask": "test"}
    inspection.splits = {names[name]: int(np.sum(mask)) for name, mask in parts.masks.items()}
    for name in ("y", "environment"):
        if name not in parts.columns:
            continue
        try:
            values, known = check_labels(parts.columns[name], n, name)
        except InputError as error:
            warn(f"'{inspection.path}': {error}")
            continue
        found, counts = np.unique(values[known], return_counts=True)
        counted = {str(value): int(count) for value, count in zip(found, counts, strict=True)}
        if name == "environment":
            inspection.environments = counted
        else:
            inspection.labels, inspection.unlabelled = counted, n - int(known.sum())
            _warn_of_labels(inspection)
    times = parts.columns.get("time")
    if times is not None and times.dtype.kind in "iuf" and times.shape == (n,):
        known = np.isfinite(times)
        if not known.all():
            warn(f"{int((~known).sum()):,} nodes have no time: give each node one")
        if known.any():
            ends = float(times[known].min()), float(times[known].max())
            inspection.time = (_moment(ends[0], parts.dates), _moment(ends[1], parts.dates))
    share = inspection.edges.reverse_share
    if share is not None and share < FEW_BOTH_WAYS:
        warn(
            f"{1 - share:.0%} of edges go one way only: if the graph is undirected, pass --undirected "
            "(in Python undirected=True)"
        )


def _warn_of_labels(inspection: Inspection) -> None:
    labels, warn = inspection.labels, inspection.warnings.append
    if len(labels) < 2:
        warn(f"the labels have {len(labels)} classes: at least two are needed")
    few = [f"{name} ({count})" for name, count in labels.items() if count < FEW_LABELS]
    if few:
        warn(f"classes with fewer than {FEW_LABELS} labelled nodes: {listed(few)}")


def _cut(title: str, heads: list[str], rows: list[list[str]]) -> Table:
    if len(rows) <= MOST_ROWS:
        return title, heads, rows
    rest = [f"… {len(rows) - MOST_ROWS:,} more", *[""] * (len(heads) - 1)]
    return f"{title} ({len(rows):,})", heads, [*rows[:MOST_ROWS], rest]


def _report_feature(column: ColumnSummary) -> ColumnReport:
    content, dates = "", column.kind == "date"
    if column.kind == "text":
        content = listed(column.words) if column.words else "many different values"
    elif np.isfinite(column.low):
        content = f"{column.low:g} to {column.high:g}"
        if dates:
            content = f"{_moment(column.low, dates)} to {_moment(column.high, dates)}"
    return ColumnReport(column.name, "feature", column.kind, column.empty, content)


def _report_roles(roles: Roles, parts: GraphParts) -> list[ColumnReport]:
    """The columns that are not features."""
    columns = parts.columns
    found = [
        ("id", roles.id, parts.node_id),
        ("label", roles.label, columns.get("y")),
        ("environment", roles.environment, columns.get("environment")),
        ("time", roles.time, columns.get("time")),
        ("graph", "batch", columns.get("batch")),
    ]
    for name, mask in parts.masks.items():
        found.append(("split", f"{roles.split} → {name}" if roles.split else name, mask))
    return [
        _report(name, role, values, dates=role == "time" and parts.dates)
        for role, name, values in found
        if name is not None and values is not None
    ]


def _report(name: str, role: str, values: np.ndarray, dates: bool) -> ColumnReport:
    shape = "" if values.ndim == 1 else f" {list(values.shape)}"
    kind = "date" if dates else KINDS.get(values.dtype.kind, str(values.dtype)) + shape
    empty, content = 0, ""
    if values.dtype == object:
        empty = sum(value is None or value == "" for value in values.flat)
        content = listed(dict.fromkeys(str(value) for value in values.flat if value))
    elif values.dtype == bool:
        content = f"{int(values.sum()):,} true"
    elif values.dtype.kind in "iuf":
        finite = values[np.isfinite(values)]
        if role in ("label", "environment") and values.dtype.kind == "i":
            empty = int((values == MISSING_CLASS).sum())
        else:
            empty = int(np.isnan(values).sum())
        if finite.size:
            content = f"{_moment(finite.min(), dates)} to {_moment(finite.max(), dates)}"
    return ColumnReport(name, role, kind, empty, content)


def _moment(time: float, dates: bool) -> str:
    """A time as it is written: a number, or an ISO date."""
    if not dates:
        return f"{time:.10g}"
    return str(np.datetime64(round(time), "s")).removesuffix("T00:00:00")
