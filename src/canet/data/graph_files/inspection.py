"""What `canet inspect` shows: what the files of a graph contain, and what looks wrong."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from sklearn.utils.sparsefuncs import min_max_axis

from canet.data.checks import FEW_BOTH_WAYS, check_features
from canet.data.graph_data import GraphData
from canet.data.graph_files.arrays import ArrayGraph
from canet.data.graph_files.edges import EdgeStatistics, edge_statistics
from canet.data.graph_files.encoding import Encoding, Roles
from canet.data.graph_files.folder import Folder
from canet.data.graph_files.read import graph_path
from canet.data.graph_files.summary import ColumnSummary, check_learnable
from canet.data.labels import check_labels
from canet.errors import InputError, listed
from canet.util.sparse import to_scipy

FEW_LABELS = 5  # a class with fewer labelled nodes can hardly be learned
MAX_ROWS = 20  # of a table in the terminal
LARGE = 1e4  # a feature with larger values dominates the others
KINDS = {"O": "text", "b": "boolean", "i": "integer", "u": "integer", "f": "number"}
SETS = {"train_mask": "train", "val_mask": "valid", "test_mask": "test"}
Table = tuple[str, list[str], list[list[str]]]
"""Title, heads and rows."""


@dataclass(frozen=True)
class ColumnReport:
    """A column of nodes, or an array."""

    name: str
    role: str  # feature, label, time and so on
    kind: str
    empty: int  # cells without content, or NaN
    content: str  # range of numbers and dates, or the first of other values


@dataclass
class Inspection:
    """What a graph's files contain."""

    path: str
    nodes: int
    features: int | None  # None if features cannot be made
    edges: EdgeStatistics
    columns: list[ColumnReport]
    labels: dict[str, int] = field(default_factory=dict)  # nodes of each class
    unlabelled: int | None = None  # None without labels
    environments: dict[str, int] = field(default_factory=dict)
    splits: dict[str, int] = field(default_factory=dict)
    time: tuple[str, str] | None = None  # first and last, as numbers or ISO dates
    notes: list[str] = field(default_factory=list)  # how columns become features
    warnings: list[str] = field(default_factory=list)  # what is wrong or looks wrong

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
            sets = (f"{name} {count:,}" for name, count in self.splits.items())
            lines.append(f"split: {', '.join(sets)}")
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
        for _, heads, rows in tables:
            if len(rows) > MAX_ROWS:
                rest = f"… {len(rows) - MAX_ROWS:,} more"
                rows[MAX_ROWS:] = [[rest, *[""] * (len(heads) - 1)]]
        return tables


def inspect_graph(path: Path | str, **roles: str | None) -> Inspection:
    """Inspect a graph, also one that cannot be trained on; arguments as in `read_graph`."""
    asked = Roles(**roles)
    place, problems, notes = graph_path(path), list[str](), list[str]()
    source: Folder | ArrayGraph
    width = None
    if place.is_dir():
        source = folder = Folder.open(place, asked)
        found = folder.found
        check_learnable(found, folder.nodes.path, folder.table, folder.kept, problems.append)
        columns = [_report_feature(column) for column in found.values()]
        if not problems:
            encoding = Encoding.learn(found, folder.roles)
            width, notes = len(encoding.names), encoding.notes()
        nodes = folder.table.num_rows
        graph = folder.graph(problems.append)
    else:
        source = ArrayGraph(place, asked)
        nodes, width, columns = _inspect_x(source, problems)
        graph = source.graph(nodes, problems.append)
    inspection = Inspection(
        path=str(place),
        nodes=nodes,
        features=width,
        edges=edge_statistics(graph.edge_index.numpy(), nodes),
        columns=[*_report_roles(source.roles, graph, source.dates), *columns],
        notes=notes,
        warnings=problems + source.ignored(),
    )
    _add_counts(inspection, graph, source.dates)
    return inspection


def _inspect_x(
    arrays: ArrayGraph, problems: list[str]
) -> tuple[int, int | None, list[ColumnReport]]:
    """The numbers of nodes and of features, and x as a column."""
    given, path = arrays.features(), arrays.path
    nodes = given.shape[0] if getattr(given, "ndim", 0) else 0
    if not nodes:
        raise InputError(f"'{path}' has no nodes: give x the shape [nodes, features]")
    kind = str(given.dtype).removeprefix("torch.")
    try:
        x = check_features(given)
    except InputError as error:
        problems.append(f"'{path}': {error}")
        return nodes, None, [ColumnReport("x", "feature", kind, 0, "")]
    is_sparse = x.layout == torch.sparse_csr
    ends = min_max_axis(to_scipy(x), 0) if is_sparse else x.aminmax(dim=0)
    low, high = (np.asarray(end) for end in ends)
    for what, where in (
        (f"values beyond {LARGE:g} (standardise them)", np.fmax(-low, high) > LARGE),
        ("the same value for all nodes", low == high),
    ):
        if where.any():
            columns = listed(np.flatnonzero(where).tolist())
            problems.append(f"'{path}': x has {what} in these columns: {columns}")
    kind += ", sparse" if is_sparse else ", dense"
    content = f"{low.min():g} to {high.max():g}"
    return nodes, x.shape[1], [ColumnReport("x", "feature", kind, 0, content)]


def _add_counts(inspection: Inspection, graph: GraphData, dates: bool) -> None:
    """Add labels, environments, times, sets, and what looks wrong with them and the edges."""
    n, warn = inspection.nodes, inspection.warnings.append
    inspection.splits = {SETS[m]: int(graph[m].sum()) for m in SETS if m in graph}
    for name, counts in (("y", inspection.labels), ("environment", inspection.environments)):
        if name not in graph:
            continue
        try:
            values, known = check_labels(graph[name], n, name)
        except InputError as error:
            warn(f"'{inspection.path}': {error}")
            continue
        found, sizes = np.unique(values[known], return_counts=True)
        counts.update(zip(map(str, found), sizes.tolist(), strict=True))
        if name == "y":
            inspection.unlabelled = n - int(known.sum())
            if len(counts) < 2:
                warn(f"the labels have {len(counts)} classes: at least two are needed")
    few = [f"{label} ({size})" for label, size in inspection.labels.items() if size < FEW_LABELS]
    if few:
        warn(f"classes with fewer than {FEW_LABELS} labelled nodes: {listed(few)}")
    times = graph.get("time")
    if times is not None and times.dtype.kind in "iuf" and times.shape == (n,):
        known = np.isfinite(times)
        if not known.all():
            warn(f"{int((~known).sum()):,} nodes have no time: give each node one")
        if known.any():
            ends = (times[known].min(), times[known].max())
            inspection.time = (_moment(ends[0], dates), _moment(ends[1], dates))
    share = inspection.edges.reverse_share
    if share is not None and share < FEW_BOTH_WAYS:
        warn(
            f"{1 - share:.0%} of edges go one way only: if the graph is undirected, pass "
            "--undirected (in Python undirected=True)"
        )


def _report_feature(column: ColumnSummary) -> ColumnReport:
    content, dates = "", column.kind == "date"
    if column.kind == "text":
        content = listed(column.words)
    elif np.isfinite(column.low):
        content = f"{_moment(column.low, dates)} to {_moment(column.high, dates)}"
    return ColumnReport(column.name, "feature", column.kind, column.empty, content)


def _report_roles(roles: Roles, graph: GraphData, dates: bool) -> list[ColumnReport]:
    """The columns that are not features."""
    columns = [
        ("id", roles.id, "node_id"),
        ("label", roles.label, "y"),
        ("environment", roles.environment, "environment"),
        ("time", roles.time, "time"),
        ("graph", "batch", "batch"),
        *(("split", f"{roles.split} → {m}" if roles.split else m, m) for m in SETS),
    ]
    return [
        _report(name, role, np.asarray(graph[key]), role == "time" and dates)
        for role, name, key in columns
        if name and key in graph
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
        unknown = (values == -1) & (role in ("label", "environment"))
        empty = int(np.sum(np.isnan(values) | unknown))
        if finite.size:
            content = f"{_moment(finite.min(), dates)} to {_moment(finite.max(), dates)}"
    return ColumnReport(name, role, kind, empty, content)


def _moment(time: float, dates: bool) -> str:
    """A time as it is written: a number, or an ISO date."""
    if not dates:
        return f"{time:.10g}"
    return str(np.datetime64(round(time), "s")).removesuffix("T00:00:00")
