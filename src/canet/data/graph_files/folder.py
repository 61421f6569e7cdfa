"""A graph as a folder with a table of nodes and a table of edges."""

from __future__ import annotations

import warnings
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import torch

from canet.data.graph_data import GraphData
from canet.data.graph_files.encode import check_compatible, encode
from canet.data.graph_files.encoding import Encoding, Roles
from canet.data.graph_files.summary import (
    ColumnSummary,
    check_learnable,
    check_present,
    summarise,
)
from canet.data.graph_files.tables import TableFile, find_table
from canet.data.graph_files.values import (
    ProblemHandler,
    add_split,
    add_time,
    as_classes,
    as_ids,
    as_text,
    raise_error,
    rows_of_ids,
    split_words,
)
from canet.errors import InputWarning, listed

EDGE_COLUMNS = ("source", "target")
DEFAULT_ROLES = Roles(id="id", split="split")


@dataclass
class Folder:
    """The files of nodes and edges, and the table of nodes."""

    nodes: TableFile
    edges: TableFile
    roles: Roles
    table: pa.Table  # the used columns of the nodes
    summaries: dict[str, ColumnSummary]  # summaries of the feature columns
    num_non_test: int  # nodes outside the test set
    has_dates: bool = False  # whether times were dates

    @classmethod
    def open(cls, path: Path, requested: Roles, encoding: Encoding | None = None) -> Folder:
        """Find the files and read the nodes."""
        nodes, edges = find_table(path, "nodes"), find_table(path, "edges")
        trained = vars(encoding.roles if encoding else Roles())
        defaults = {role: [trained[role] or name] for role, name in vars(DEFAULT_ROLES).items()}
        roles = requested.resolve(nodes.columns, defaults, nodes.path)
        check_present(EDGE_COLUMNS, edges.columns, edges.path)
        role_columns = set(roles.names())
        features = [name for name in nodes.columns if name not in role_columns]
        text = set(replace(roles, time=None).names())
        if encoding is not None:
            check_present((c.name for c in encoding.columns), features, nodes.path)
            features = [c.name for c in encoding.columns if c.kind != "constant"]
            text |= {c.name for c in encoding.columns if c.kind == "category"}
        table = nodes.read([*features, *roles.names()], text)
        if not table.num_rows:
            raise_error(f"'{nodes.path}' has no rows: add one row for each node")
        is_non_test = np.ones(table.num_rows, dtype=bool)
        if roles.split:
            outside = split_words(table[roles.split]) != "test"
            is_non_test = outside if outside.any() else is_non_test
        summaries = summarise(table, features, is_non_test)
        return cls(nodes, edges, roles, table, summaries, int(is_non_test.sum()))

    def ignored(self, encoding: Encoding | None = None) -> list[str]:
        """Return a message about the unused columns of each file, if there are any."""
        extra = {self.edges.path: [name for name in self.edges.columns if name not in EDGE_COLUMNS]}
        if encoding is not None:
            used = {*(c.name for c in encoding.columns), *encoding.left_out}
            used |= {*self.roles.names(), *encoding.roles.names()}
            extra[self.nodes.path] = [name for name in self.nodes.columns if name not in used]
        return [
            f"'{path}': these columns are ignored: {listed(names)}"
            for path, names in extra.items()
            if names
        ]

    def graph(self, report_problem: ProblemHandler) -> GraphData:
        """Return the graph without features; parts with a problem are left out."""
        path, roles, table = self.nodes.path, self.roles, self.table
        if roles.id is None:
            ids = pa.array(np.arange(table.num_rows))
        else:
            ids = as_ids(table[roles.id], self.nodes.is_csv)
            _check_ids(ids, path, report_problem)
        edges = torch.from_numpy(_read_edges(self.edges, ids, path, report_problem))
        graph = GraphData(edge_index=edges, num_nodes=table.num_rows)
        graph.node_id = ids.to_numpy(zero_copy_only=False)
        if roles.label:
            graph.y = as_classes(table[roles.label])
        if roles.environment:
            graph.environment = as_classes(table[roles.environment])
        if roles.time:
            self.has_dates = add_time(graph, table[roles.time], roles.time, path, report_problem)
        if roles.split:
            add_split(graph, table[roles.split], roles.split, path, report_problem)
        return graph


def read_folder(path: Path, requested: Roles, encoding: Encoding | None) -> GraphData:
    """Read the graph in a folder; features are encoded by `encoding`, or by a new one if None."""
    folder = Folder.open(path, requested, encoding)
    nodes, table, summaries = folder.nodes, folder.table, folder.summaries
    if encoding is None:
        check_learnable(summaries, nodes.path, table, folder.num_non_test, raise_error)
    else:
        check_compatible(encoding, summaries, nodes.path, table)
    used = encoding or Encoding.learn(summaries, folder.roles)
    x, unknown = encode(used, table, nodes.path)
    folder.table = table = table.select(folder.roles.names())  # free the feature columns
    graph = folder.graph(raise_error)
    graph.x, graph.encoding = x, used
    pa.default_memory_pool().release_unused()
    for line in [*folder.ignored(encoding), *unknown]:
        warnings.warn(line, InputWarning, stacklevel=4)
    return graph


def _check_ids(ids: pa.Array, path: Path, report_problem: ProblemHandler) -> None:
    if ids.null_count:
        row = pc.index(ids.is_null(), True).as_py() + 1
        report_problem(
            f"'{path}' has {ids.null_count:,} nodes without an id, the first in row {row:,}: give "
            "every node an id"
        )
    first = pc.index_in(ids, value_set=ids).to_numpy(zero_copy_only=False)
    repeated = ids.filter(pa.array(first != np.arange(len(ids)))).drop_null()
    if len(repeated):
        report_problem(
            f"'{path}' has {len(repeated):,} rows with an id that occurs before, such as "
            f"{str(repeated[0])[:40]!r}: keep one row for each node"
        )


def _read_edges(
    file: TableFile, ids: pa.Array, nodes: Path, report_problem: ProblemHandler
) -> np.ndarray:
    """Return the rows $[2, E]$ of sources and targets; edges with unknown nodes are left out."""
    table = file.read(EDGE_COLUMNS, text=EDGE_COLUMNS if ids.type == pa.string() else ())
    edges = np.stack([rows_of_ids(table[name], ids) for name in EDGE_COLUMNS], dtype=np.int64)
    known: np.ndarray = np.all(edges >= 0, axis=0)
    if not known.all():
        row = int(np.argmin(known))
        end = EDGE_COLUMNS[int(edges[0, row] >= 0)]
        cell = as_text(table[end].slice(row, 1))[0].as_py() or ""
        report_problem(
            f"'{file.path}' has {int((~known).sum()):,} of {len(known):,} edges with a node id "
            f"that is not in {nodes.name}: the first is {end} {cell[:40]!r} in row {row + 1:,}, "
            f"while the first id in {nodes.name} is {str(ids[0])[:40]!r}; add the missing nodes, "
            "remove these edges, or choose the right id column"
        )
        edges = edges[:, known]
    return edges
