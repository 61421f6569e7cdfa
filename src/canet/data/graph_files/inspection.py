"""What was read of a graph of one's own, and what is wrong with it, for a person to look at."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from canet.data.checks import FEW_BOTH_WAYS
from canet.data.graph_files.arrays import ArrayGraph
from canet.data.graph_files.column_checks import check_learnable
from canet.data.graph_files.column_reports import (
    ColumnReport,
    moment,
    report_feature,
    report_roles,
)
from canet.data.graph_files.columns import Encoding, Roles
from canet.data.graph_files.edge_statistics import EdgeStatistics, edge_statistics
from canet.data.graph_files.feature_statistics import feature_statistics
from canet.data.graph_files.folder import Folder
from canet.data.graph_files.parts import GraphParts
from canet.data.graph_files.read import graph_path
from canet.data.labels import check_labels
from canet.errors import InputError, listed

FEW_LABELS = 5
"""A class with fewer labelled nodes than this can hardly be learnt."""
MOST_ROWS = 20
"""Of a table in the terminal."""
Table = tuple[str, list[str], list[list[str]]]
"""Title, heads and rows."""


@dataclass
class Inspection:
    """What a graph's files hold.

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
        warnings: What is wrong or looks so, a line each.
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
        """All but the tables, in sentences."""
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
        tables = [("Columns", ["column", "role", "holds", "empty", "content"], columns)]
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
    """Look at a graph, also one that could not be trained on; arguments as `read_graph`'s."""
    asked = Roles(id=id, label=label, split=split, environment=environment, time=time)
    place = graph_path(path)
    return _inspect_folder(place, asked) if place.is_dir() else _inspect_arrays(place, asked)


def _inspect_folder(path: Path, asked: Roles) -> Inspection:
    folder = Folder.open(path, asked)
    found, roles = folder.found, folder.roles
    problems: list[str] = []
    check_learnable(found, folder.nodes.path, problems.append)
    encoding = None if problems else Encoding.learn(found, roles)
    parts = folder.parts(problems.append)
    features = [report_feature(column) for column in found.columns.values()]
    inspection = Inspection(
        path=str(path),
        nodes=found.rows,
        features=len(encoding.names) if encoding else None,
        edges=edge_statistics(parts.edge_index, parts.num_nodes),
        columns=report_roles(roles, parts) + features,
        notes=encoding.notes() if encoding else [],
        warnings=problems + folder.ignored(None),
    )
    _add_columns(inspection, parts)
    return inspection


def _inspect_arrays(path: Path, asked: Roles) -> Inspection:
    graph = ArrayGraph(path, asked)
    x, roles = feature_statistics(graph.features(), path), graph.roles
    if not x.nodes:
        raise InputError(f"'{path}' has no nodes: give x the shape [nodes, features]")
    problems: list[str] = []
    parts = graph.parts(x.nodes, problems.append)
    features = [ColumnReport("x", "feature", x.holds, x.empty, x.content)]
    inspection = Inspection(
        path=str(path),
        nodes=x.nodes,
        features=x.features,
        edges=edge_statistics(parts.edge_index, parts.num_nodes),
        columns=report_roles(roles, parts) + features,
        warnings=problems + x.warnings + graph.ignored(),
    )
    _add_columns(inspection, parts)
    return inspection


def _add_columns(inspection: Inspection, parts: GraphParts) -> None:
    """What labels, environments, times, sets and edges say, and what looks wrong with them."""
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
            inspection.time = (moment(ends[0], parts.dates), moment(ends[1], parts.dates))
    share = inspection.edges.reverse_share
    if share is not None and share < FEW_BOTH_WAYS:
        warn(
            f"{1 - share:.0%} of edges go one way only, so messages do, too: if the graph is "
            "undirected, say --undirected (in Python undirected=True)"
        )


def _warn_of_labels(inspection: Inspection) -> None:
    labels, warn = inspection.labels, inspection.warnings.append
    if len(labels) < 2:
        warn(f"the labels are of {len(labels)} classes: there is nothing to tell apart")
    few = [f"{name} ({count})" for name, count in labels.items() if count < FEW_LABELS]
    if few:
        warn(f"classes with fewer than {FEW_LABELS} labelled nodes: {listed(few)}")


def _cut(title: str, heads: list[str], rows: list[list[str]]) -> Table:
    if len(rows) <= MOST_ROWS:
        return title, heads, rows
    rest = [f"… {len(rows) - MOST_ROWS:,} more", *[""] * (len(heads) - 1)]
    return f"{title} ({len(rows):,})", heads, [*rows[:MOST_ROWS], rest]
