"""A graph as a folder with a table of nodes and a table of edges."""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Self

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import torch
from torch import Tensor

from canet.data.checks import check_edge_weights
from canet.data.graph_files.encoding import Encoding, ReadOptions, Roles, check_compatible, encode
from canet.data.graph_files.summary import (
    ColumnSummary,
    almost_numbers,
    check_learnable,
    check_present,
    find_column,
    summarise,
)
from canet.data.graph_files.tables import NamedTable, find_table, tables_in_memory
from canet.data.graph_files.values import (
    ProblemHandler,
    add_split,
    add_time,
    as_classes,
    as_ids,
    as_numbers,
    as_text,
    raise_error,
    rows_of_ids,
    split_words,
)
from canet.data.raw_graph import RawGraph
from canet.errors import InputError, listed, warn_user

EDGE_COLUMNS = (("source", "target"), ("src", "dst"), ("from", "to"))
"""Names of the two columns of an edge table, in the order of preference."""
MIN_IDS = 100  # with fewer nodes, integers that are all different need not be ids
FIRST_ROWS = 1_000  # rows that are checked before all of them
NO_NUMBERS = "contains no numbers; for a decimal comma, pass decimal=',' (--decimal ,)"
DEFAULT_ROLES = Roles(id="id", split="split")


@dataclass
class Folder:
    """The tables of nodes and edges, and the content of the table of nodes."""

    nodes: NamedTable
    edges: NamedTable
    roles: Roles
    options: ReadOptions  # with the decimal mark and separator that were used
    table: pa.Table  # the used columns of the nodes
    summaries: dict[str, ColumnSummary]  # summaries of the feature columns
    num_non_test: int  # nodes outside the test set
    has_dates: bool = False  # whether times were dates

    @classmethod
    def open(cls, source: object, requested: ReadOptions, encoding: Encoding | None = None) -> Self:
        """Find the tables in a folder or in memory, and read the nodes."""
        nodes: NamedTable
        edges: NamedTable
        before = encoding or Encoding(())
        sep, decimal = requested.sep or before.sep, requested.decimal or before.decimal
        if isinstance(source, Path):
            nodes, edges = find_table(source, "nodes", sep), find_table(source, "edges", sep)
        else:
            nodes, edges = tables_in_memory(source)
        if requested.sep and not (nodes.is_csv or edges.is_csv):
            raise_error(f"'{nodes.path}' is not a CSV file: leave out sep (--sep)")
        trained = vars(before.roles)
        defaults = {role: [trained[role] or name] for role, name in vars(DEFAULT_ROLES).items()}
        roles = requested.roles.resolve(nodes.columns, defaults, nodes.path)
        roles = replace(roles, **_edge_roles(edges, requested.roles, encoding))
        check_present(requested.without, nodes.columns, nodes.path)
        unused = {*roles.names(), *requested.without}
        features = [name for name in nodes.columns if name not in unused]
        text = {*replace(roles, time=None, sample_weight=None).names()}
        if encoding is not None:
            fix = "add what the model was trained on, or fit a model without it"
            check_present((c.name for c in encoding.columns), nodes.columns, nodes.path, fix=fix)
            if encoding.roles.id and not roles.id:
                check_present([encoding.roles.id], nodes.columns, nodes.path)
            features = [c.name for c in encoding.columns if c.kind != "constant"]
            text |= {c.name for c in encoding.columns if c.kind == "category"}
            for name in {*features} & {*roles.names()}:
                raise_error(f"column '{name}' is a feature of the model: choose another column")
        table = nodes.read([*features, *roles.names()], text, decimal)
        if not table.num_rows:
            raise_error(f"'{nodes.path}' has no rows: add one row for each node")
        is_non_test = np.ones(table.num_rows, dtype=bool)
        if roles.split:
            outside = split_words(table[roles.split]) != "test"
            is_non_test = outside if outside.any() else is_non_test
        if requested.held_out is not None:
            is_non_test[requested.held_out] = False
        summaries = summarise(table, features, is_non_test, requested.fill)
        inside = int(is_non_test.sum())
        used = replace(requested, sep=sep, decimal=decimal)
        return cls(nodes, edges, roles, used, table, summaries, inside)

    @property
    def ends(self) -> list[str]:
        """Names of the columns of the edges with source and target."""
        return [str(self.roles.source), str(self.roles.target)]

    def ignored(self, options: ReadOptions, encoding: Encoding | None = None) -> list[str]:
        """Return a message about the unused columns of each file that the options report."""
        read = {*self.ends, self.roles.weight}
        extra = {self.edges.path: [name for name in self.edges.columns if name not in read]}
        if encoding is not None:
            used = {*(c.name for c in encoding.columns), *encoding.left_out}
            used |= {*self.roles.names(), *encoding.roles.names()}
            extra[self.nodes.path] = [name for name in self.nodes.columns if name not in used]
        hint = "; name the weights with weight='COLUMN' (--weight COLUMN)"
        return [
            f"'{path}': these columns are ignored: {listed(names)}"
            + hint * (path == self.edges.path and self.roles.weight is None)
            for path, names in extra.items()
            if options.reports(names)
        ]

    def free_text(self, report_problem: ProblemHandler) -> list[str]:
        """Report columns that cannot be features, and return those with free text."""
        about = self.nodes.path, self.table, self.num_non_test, self.options.decimal
        return check_learnable(self.summaries, *about, report_problem)

    def suspicious_columns(self) -> list[str]:
        """Return a message for each feature that is empty, or looks like an id or a number."""
        table, messages = self.table, []
        for name, summary in self.summaries.items():
            column = table[name]
            if column.type == pa.int64() and all(
                pc.count_distinct(part).as_py() == len(part) >= MIN_IDS
                for part in (column.slice(0, FIRST_ROWS), column)  # the first rows are fast
            ):
                messages.append(
                    f"column '{name}' has another integer for every node: if it is an id, pass "
                    f"id='{name}' (--id {name}) or without=['{name}'] (--without {name})"
                )
            if summary.kind == "empty":
                messages.append(f"column '{name}' is empty: it is left out")
        messages += almost_numbers(self.summaries, table, self.options.decimal)
        return [f"'{self.nodes.path}': {message}" for message in messages]

    def graph(self, report_problem: ProblemHandler) -> RawGraph:
        """Return the graph without features; parts with a problem are left out."""
        path, roles, table = self.nodes.path, self.roles, self.table
        ids = pa.array(np.arange(table.num_rows))
        if roles.id is not None:
            ids = as_ids(table[roles.id], self.nodes.is_csv)
            _check_ids(ids, path, report_problem)
        edges, weights = _read_edges(self, ids, report_problem)
        graph = RawGraph(edge_index=torch.from_numpy(edges), num_nodes=table.num_rows)
        if weights is not None:
            graph.edge_weight = weights
        graph.node_id = ids.to_numpy(zero_copy_only=False)
        for name, column in (("y", roles.label), ("environment", roles.environment)):
            if column:
                graph[name] = as_classes(table[column])
        if roles.time:
            self.has_dates = add_time(graph, table[roles.time], roles.time, path, report_problem)
        if roles.sample_weight:
            if table[roles.sample_weight].type not in (pa.int64(), pa.float64()):
                report_problem(f"column '{roles.sample_weight}' of '{path}' {NO_NUMBERS}")
            else:
                graph.sample_weight = as_numbers(table[roles.sample_weight])
        if roles.split:
            add_split(graph, table[roles.split], roles.split, path, report_problem)
        return graph


def read_folder(source: object, requested: ReadOptions, encoding: Encoding | None) -> RawGraph:
    """Read a graph in a folder or in memory; if `encoding` is None, learn it."""
    folder = Folder.open(source, requested, encoding)
    nodes, table, summaries = folder.nodes, folder.table, folder.summaries
    messages = []
    if encoding is None:
        free_text = folder.free_text(raise_error)
        messages = folder.suspicious_columns()
        used = Encoding.learn(summaries, folder.roles, free_text, folder.options)
    else:
        read_as = replace(encoding, decimal=folder.options.decimal)
        check_compatible(read_as, summaries, nodes.path, table)
        used = encoding
    x, differences = encode(used, table, nodes.path)
    folder.table = table = table.select(folder.roles.names())  # free the feature columns
    graph = folder.graph(raise_error)
    graph.x, graph.encoding = x, used
    pa.default_memory_pool().release_unused()
    for line in [*messages, *folder.ignored(requested, encoding), *differences]:
        warn_user(line)
    return graph


def _read_edges(
    folder: Folder, ids: pa.Array, report_problem: ProblemHandler
) -> tuple[np.ndarray, Tensor | None]:
    """Return rows $[2, E]$ of sources and targets that exist, and the weights $[E]$."""
    path, nodes, weight = folder.edges.path, folder.nodes.path.name, folder.roles.weight
    names = [*folder.ends, *([weight] if weight else [])]
    text = folder.ends if ids.type == pa.string() else ()
    table = folder.edges.read(names, text, folder.options.decimal)
    edges = np.stack([rows_of_ids(table[name], ids) for name in folder.ends], dtype=np.int64)
    known: np.ndarray = np.all(edges >= 0, axis=0)
    weights = _edge_weights(table[weight], weight, path, report_problem) if weight else None
    if not known.all():
        row = int(np.argmin(known))
        end = folder.ends[int(edges[0, row] >= 0)]
        cell = as_text(table[end].slice(row, 1))[0].as_py() or ""
        kind = "row numbers from 0" if folder.roles.id is None else f"column '{folder.roles.id}'"
        report_problem(
            f"'{path}' has {int((~known).sum()):,} of {len(known):,} edges with a node id "
            f"that is not in {nodes}: the first is {end} {cell[:40]!r} in row {row + 1:,}. The "
            f"node ids are {kind}, the first is {str(ids[0])[:40]!r}: {_fix_of_ids(folder, table)}"
        )
        edges = edges[:, known]
        weights = None if weights is None else weights[torch.from_numpy(known)]
    return edges, weights


def _fix_of_ids(folder: Folder, edges: pa.Table) -> str:
    """Return how to correct edges whose node ids are not known."""
    names = folder.nodes.columns
    nodes = folder.nodes.read(names, text=names)
    for name in names:
        ids = as_ids(nodes[name], folder.nodes.is_csv)
        if all((rows_of_ids(edges[end], ids) >= 0).all() for end in folder.ends):
            return f"column '{name}' contains all ids of the edges: pass id='{name}' (--id {name})"
    return "add the missing nodes, remove these edges, or choose another id column (id=... or --id)"


def _edge_weights(
    column: pa.ChunkedArray, name: str, path: Path, report_problem: ProblemHandler
) -> Tensor | None:
    """Return weights $[E]$; None if they are invalid."""
    try:
        if len(column) and column.type not in (pa.int64(), pa.float64()):
            raise InputError(f"it {NO_NUMBERS}")
        return check_edge_weights(as_numbers(column), len(column))
    except InputError as error:
        report_problem(
            f"column '{name}' of '{path}' cannot be the weights of the edges ({error}): correct "
            "it, or rename it if it has another meaning"
        )
        return None


def _check_ids(ids: pa.Array, path: Path, report_problem: ProblemHandler) -> None:
    if ids.null_count:
        row = pc.index(ids.is_null(), True).as_py() + 1
        report_problem(
            f"'{path}' has {ids.null_count:,} nodes without an id: add them, first in row {row:,}"
        )
    first = pc.index_in(ids, value_set=ids).to_numpy(zero_copy_only=False)
    repeated = ids.filter(pa.array(first != np.arange(len(ids)))).drop_null()
    if len(repeated):
        report_problem(
            f"'{path}' has {len(repeated):,} rows with an id that occurs before, such as "
            f"{str(repeated[0])[:40]!r}: keep one row for each node"
        )


def _edge_roles(
    edges: NamedTable, requested: Roles, encoding: Encoding | None
) -> dict[str, str | None]:
    """Return the names of the columns with sources, targets and weights, as in training."""
    trained = encoding.roles if encoding else Roles(weight=find_column("weight", edges.columns))
    source, target = requested.source, requested.target
    if not (source or target):
        known = [(trained.source or "", trained.target or ""), *EDGE_COLUMNS]
        found = ([find_column(name, edges.columns) for name in pair] for pair in known)
        source, target = next(filter(all, found), (None, None))
    ends = [source or EDGE_COLUMNS[0][0], target or EDGE_COLUMNS[0][1]]
    fix = "name the two columns with source_column and target_column (--source, --target)"
    check_present(ends, edges.columns, edges.path, fix=fix)
    weight = requested.weight or trained.weight
    check_present([weight] if weight else [], edges.columns, edges.path)
    return {"source": ends[0], "target": ends[1], "weight": weight}
