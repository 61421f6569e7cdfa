"""The report of `canet inspect`: the content of a graph's files and likely problems."""

from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import torch
from scipy.sparse.csgraph import connected_components
from sklearn.utils.sparsefuncs import min_max_axis
from torch import Tensor

from canet.data.checks import check_columns, check_features, edge_notes
from canet.data.graph_files.arrays import ArrayGraph
from canet.data.graph_files.encoding import Encoding, ReadOptions, Roles, encode
from canet.data.graph_files.folder import Folder
from canet.data.graph_files.leaks import leak_notes
from canet.data.graph_files.read import READ_ARGUMENTS, graph_path
from canet.data.graph_files.summary import ColumnSummary
from canet.data.labels import check_labels, label_notes
from canet.data.raw_graph import MASKS, RawGraph
from canet.errors import InputError, check_name, listed, printable
from canet.util.console import table_text
from canet.util.rendering import environment
from canet.util.sparse import adjacency, select_rows, to_scipy

MAX_ROWS = 20  # rows of a table in the terminal
MAX_UNSCALED = 1e4  # a feature with larger values gets a warning, because it dominates the others
KINDS = {"O": "text", "b": "boolean", "i": "integer", "u": "integer", "f": "number"}
Table = tuple[str, list[str], list[list[str]]]  # title, column names and rows


@dataclass(frozen=True)
class ColumnReport:
    """Description of a column of the node table, or of an array."""

    name: str
    role: str  # feature, label, time, ...
    kind: str
    empty: int  # empty cells or NaN
    content: str  # range of numbers and dates, or the first values of text


@dataclass(repr=False)
class Inspection:
    """Description of a graph's files."""

    path: str
    nodes: int
    features: int | None  # None if the features are invalid
    edges: "EdgeStatistics"
    columns: list[ColumnReport]
    labels: dict[str, int] = field(default_factory=dict)  # nodes of each class
    unlabelled: int | None = None  # None without labels
    environments: dict[str, int] = field(default_factory=dict)
    splits: dict[str, int] = field(default_factory=dict)
    time: tuple[str, str] | None = None  # first and last, as numbers or ISO dates
    notes: list[str] = field(default_factory=list)  # how columns are encoded as features
    warnings: list[str] = field(default_factory=list)  # errors and likely problems
    encoding: Encoding | None = None  # None if the graph is invalid or has arrays

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    def __str__(self) -> str:
        tables = [f"{t}\n{table_text(heads, rows).rstrip()}" for t, heads, rows in self.tables()]
        return "\n".join([*self.lines(), *tables])

    __repr__ = __str__

    def _repr_html_(self) -> str:
        """Show the report in a notebook."""
        templates = environment(Path(__file__).parent, printable=printable)
        return templates.get_template("inspection.html.jinja").render(found=self)

    def lines(self) -> list[str]:
        """Return all lines of the report except the tables."""
        e = self.edges
        features = "invalid" if self.features is None else f"{self.features:,}"
        reverse = "" if e.reverse_share is None else f", {e.reverse_share:.1%} have a reverse edge"
        lines = [
            f"{self.path}: {self.nodes:,} nodes, {e.edges:,} edges, {features} features",
            f"edges: {e.self_loops:,} self-loops, {e.repeated:,} duplicates{reverse}",
            f"incoming edges of a node: median {e.degree_median:g}, maximum {e.degree_max:,}",
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
        lines += [f"warning: {warning}" for warning in self.warnings]
        return [printable(line) for line in lines]

    def tables(self) -> list[Table]:
        """Return tables of columns, labels and environments, with at most `MAX_ROWS` rows each."""
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


def inspect_graph(source: object, edges: object = None, **arguments: Any) -> Inspection:
    """Describe a graph and its likely problems, even if it is invalid: `print` or show the result.

    Args:
        source, edges: As for `canet.read_graph`.
        arguments: Its other arguments, such as `label` and `without`.
    """
    from canet.data.graph_store import is_graph_store

    for name in arguments:
        check_name("argument", name, READ_ARGUMENTS)
    options = ReadOptions.of(**arguments)
    place = source if edges is None else (source, edges)
    problems: list[str] = []
    encoding = width = read = None
    opened: Folder | ArrayGraph
    if isinstance(place, str | Path):
        place = graph_path(place)
        if is_graph_store(place):
            raise InputError(
                f"'{place}' is a graph store, whose columns were chosen by canet convert: inspect "
                "the graph that it was converted from, or check its files with canet verify"
            )
    if not isinstance(place, Path) or place.is_dir():
        opened = folder = Folder.open(place, options)
        table, summaries = folder.table, folder.summaries
        free_text = folder.free_text(problems.append)
        columns = [
            _report_feature(column, "left out" if column.name in free_text else "feature")
            for column in summaries.values()
        ]
        if not problems:
            encoding = Encoding.learn(summaries, folder.roles, free_text, folder.options)
            width = len(encoding.names)
            read = partial(_encoded_rows, encoding, table)
        problems += folder.suspicious_columns()
        nodes = table.num_rows
        graph = folder.graph(problems.append)
    else:
        opened = ArrayGraph(place, options)
        nodes, x, columns = _inspect_x(opened, problems)
        if x is not None:
            width, read = x.shape[1], partial(select_rows, x)
        graph = opened.graph(nodes, problems.append)
    inspection = Inspection(
        path=str(place) if isinstance(place, Path) else "tables in memory",
        nodes=nodes,
        features=width,
        edges=edge_statistics(graph.edge_index.numpy(), nodes),
        columns=[*_report_roles(opened.roles, graph, opened.has_dates), *columns],
        notes=[] if encoding is None else encoding.notes(),
        warnings=problems + opened.ignored(options),
        encoding=encoding,
    )
    _add_counts(inspection, graph, opened.has_dates, read)
    if opened.roles.label is None:
        inspection.notes.append("no column is the label: name it with --label (label='COLUMN')")
    return inspection


def _inspect_x(
    arrays: ArrayGraph, problems: list[str]
) -> tuple[int, Tensor | None, list[ColumnReport]]:
    """Return the number of nodes, the features if they are valid, and a description of x."""
    stored, path = arrays.features(), arrays.path
    nodes = stored.shape[0] if getattr(stored, "ndim", 0) else 0
    if not nodes:
        raise InputError(f"'{path}' has no nodes: x must have the shape [nodes, features]")
    kind = str(stored.dtype).removeprefix("torch.")
    try:
        x = check_features(stored, arrays.without)
    except InputError as error:
        problems.append(f"'{path}': {error}")
        return nodes, None, [ColumnReport("x", "feature", kind, 0, "")]
    is_sparse = x.layout == torch.sparse_csr
    limits = min_max_axis(to_scipy(x), 0) if is_sparse else x.aminmax(dim=0)
    low, high = (np.asarray(limit) for limit in limits)
    for problem, affected in (
        (f"values beyond {MAX_UNSCALED:g} (standardise them)", np.fmax(-low, high) > MAX_UNSCALED),
        ("the same value for all nodes", low == high),
    ):
        affected[check_columns(arrays.without, x.shape[1])] = False
        if affected.any():
            columns = listed(np.flatnonzero(affected).tolist())
            problems.append(f"'{path}': x has {problem} in these columns: {columns}")
    kind += ", sparse" if is_sparse else ", dense"
    content = f"{low.min():g} to {high.max():g}"
    return nodes, x, [ColumnReport("x", "feature", kind, 0, content)]


def _add_counts(
    inspection: Inspection, graph: RawGraph, dates: bool, read: Callable[[Tensor], Tensor] | None
) -> None:
    """Add labels, environments, times and splits, and warnings about them and the edges."""
    n, warn = inspection.nodes, inspection.warnings.append
    inspection.splits = {name: int(graph[m].sum()) for name, m in MASKS.items() if m in graph}
    for name, counts in (("y", inspection.labels), ("environment", inspection.environments)):
        if name not in graph:
            continue
        try:
            labels = check_labels(graph[name], n, name)
        except InputError as error:
            warn(f"'{inspection.path}': {error}")
            continue
        known = labels.codes >= 0
        sizes = np.bincount(labels.codes[known], minlength=len(labels.names)).tolist()
        counts.update(zip(map(str, labels.names), sizes, strict=True))
        if name == "y":
            inspection.unlabelled = n - int(known.sum())
            if len(counts) < 2:
                found = "one class" if counts else "no class"
                warn(f"the labels contain {found}: training needs at least two classes")
            inspection.warnings += label_notes(labels)
            if read is not None:
                for mask in {"val_mask", "test_mask"}.intersection(graph.to_dict()):
                    known &= ~graph[mask].numpy()
                nodes, width = np.flatnonzero(known), inspection.features or 0
                inspection.warnings += leak_notes(labels, nodes, read, width, inspection.encoding)
    times = graph.get("time")
    if times is not None and times.dtype.kind in "iuf" and times.shape == (n,):
        known = np.isfinite(times)
        if not known.all():
            warn(f"{int((~known).sum()):,} nodes have no time: every node needs a time")
        if known.any():
            first, last = times[known].min(), times[known].max()
            inspection.time = (_time_text(first, dates), _time_text(last, dates))
    inspection.warnings += edge_notes(graph.edge_index)


def _encoded_rows(encoding: Encoding, table: pa.Table, rows: Tensor) -> Tensor:
    return encode(encoding, table.take(rows.numpy()), Path())[0]


def _report_feature(column: ColumnSummary, role: str) -> ColumnReport:
    content, dates = "", column.kind == "date"
    if column.kind == "text":
        content = listed(column.words)
    elif np.isfinite(column.low):
        content = f"{_time_text(column.low, dates)} to {_time_text(column.high, dates)}"
    return ColumnReport(column.name, role, column.kind, column.empty, content)


def _report_roles(roles: Roles, graph: RawGraph, dates: bool) -> list[ColumnReport]:
    """Describe the columns that are not features."""
    columns = [
        ("id", roles.id, "node_id"),
        ("label", roles.label, "y"),
        ("environment", roles.environment, "environment"),
        ("time", roles.time, "time"),
        ("sample weight", roles.sample_weight, "sample_weight"),
        ("graph", "batch", "batch"),
        *(("split", f"{roles.split} → {m}" if roles.split else m, m) for m in MASKS.values()),
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
            content = f"{_time_text(finite.min(), dates)} to {_time_text(finite.max(), dates)}"
    return ColumnReport(name, role, kind, empty, content)


def _time_text(time: float, dates: bool) -> str:
    """Return a time as text: a number, or an ISO date."""
    if not dates:
        return f"{time:.10g}"
    return str(np.datetime64(round(time), "s")).removesuffix("T00:00:00")


@dataclass(frozen=True)
class EdgeStatistics:
    """Counts of edges, components and degrees."""

    edges: int  # including self-loops and duplicates
    self_loops: int
    repeated: int  # duplicates of other edges
    reverse_share: float | None  # distinct edges with a reverse edge, without self-loops
    components: int  # weakly connected
    largest_component: int
    isolated: int  # nodes without an edge to another node
    degree_median: float  # distinct incoming edges
    degree_max: int


def edge_statistics(edge_index: np.ndarray, num_nodes: int) -> EdgeStatistics:
    """Compute statistics of edges $[2, E]$ (source, target) between nodes 0 to N - 1, N ≥ 1."""
    links = adjacency(torch.from_numpy(edge_index), num_nodes)
    loops = links.diagonal()
    outgoing = np.diff(links.indptr)
    incoming = np.bincount(links.indices, minlength=num_nodes)
    proper = links.nnz - int(loops.sum())
    both_ways = links.multiply(links.T).nnz - int(loops.sum())
    sizes = np.bincount(connected_components(links, directed=False)[1])
    return EdgeStatistics(
        edges=edge_index.shape[1],
        self_loops=int((edge_index[0] == edge_index[1]).sum()),
        repeated=edge_index.shape[1] - links.nnz,
        reverse_share=both_ways / proper if proper else None,
        components=len(sizes),
        largest_component=int(sizes.max()),
        isolated=int((outgoing + incoming == 2 * loops).sum()),
        degree_median=float(np.median(incoming)),
        degree_max=int(incoming.max()),
    )
