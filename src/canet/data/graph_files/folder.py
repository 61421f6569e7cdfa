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
from canet.data.graph_files.encode import check_fits, encode
from canet.data.graph_files.encoding import Encoding, Roles
from canet.data.graph_files.summary import (
    ColumnSummary,
    check_learnable,
    check_present,
    summarise,
)
from canet.data.graph_files.tables import TableFile, find_table
from canet.data.graph_files.values import (
    Refuse,
    add_split,
    add_time,
    as_classes,
    as_ids,
    as_text,
    raise_error,
    rows_of,
    split_words,
)
from canet.errors import InputWarning, listed

ENDS = ("source", "target")
DEFAULT_NAMES = Roles(id="id", split="split")


@dataclass
class Folder:
    """The two files, and the table of nodes."""

    nodes: TableFile
    edges: TableFile
    roles: Roles
    table: pa.Table  # the columns of nodes that are used
    found: dict[str, ColumnSummary]  # what the feature columns contain
    kept: int  # nodes outside the test set
    dates: bool = False  # whether times were dates

    @classmethod
    def open(cls, path: Path, asked: Roles, encoding: Encoding | None = None) -> Folder:
        """Find the files and read the nodes."""
        nodes, edges = find_table(path, "nodes"), find_table(path, "edges")
        trained = vars(encoding.roles if encoding else Roles())
        usual = {role: [trained[role] or name] for role, name in vars(DEFAULT_NAMES).items()}
        roles = asked.resolve(nodes.columns, usual, nodes.path)
        check_present(ENDS, edges.columns, edges.path)
        roled = set(roles.names())
        features = [name for name in nodes.columns if name not in roled]
        text = set(replace(roles, time=None).names())
        if encoding is not None:
            check_present((c.name for c in encoding.columns), features, nodes.path)
            features = [c.name for c in encoding.columns if c.kind != "constant"]
            text |= {c.name for c in encoding.columns if c.kind == "category"}
        table = nodes.read([*features, *roles.names()], text)
        if not table.num_rows:
            raise_error(f"'{nodes.path}' has no rows: add one for each node")
        kept = np.ones(table.num_rows, dtype=bool)
        if roles.split:
            outside = split_words(table[roles.split]) != "test"
            kept = outside if outside.any() else kept
        found = summarise(table, features, kept)
        return cls(nodes, edges, roles, table, found, int(kept.sum()))

    def ignored(self, encoding: Encoding | None = None) -> list[str]:
        """What is not used, a line each."""
        extra = {self.edges.path: [name for name in self.edges.columns if name not in ENDS]}
        if encoding is not None:
            used = {*(c.name for c in encoding.columns), *encoding.left_out}
            used |= {*self.roles.names(), *encoding.roles.names()}
            extra[self.nodes.path] = [name for name in self.nodes.columns if name not in used]
        return [f"'{path}': ignored columns {listed(ns)}" for path, ns in extra.items() if ns]

    def graph(self, refuse: Refuse) -> GraphData:
        """The graph without features; what is refused is left out."""
        path, roles, table = self.nodes.path, self.roles, self.table
        if roles.id is None:
            ids = pa.array(np.arange(table.num_rows))
        else:
            ids = as_ids(table[roles.id], self.nodes.is_csv)
            _check_ids(ids, path, refuse)
        edges = torch.from_numpy(_read_edges(self.edges, ids, path, refuse))
        graph = GraphData(edge_index=edges, num_nodes=table.num_rows)
        graph.node_id = ids.to_numpy(zero_copy_only=False)
        if roles.label:
            graph.y = as_classes(table[roles.label])
        if roles.environment:
            graph.environment = as_classes(table[roles.environment])
        if roles.time:
            self.dates = add_time(graph, table[roles.time], roles.time, path, refuse)
        if roles.split:
            add_split(graph, table[roles.split], roles.split, path, refuse)
        return graph


def read_folder(path: Path, asked: Roles, encoding: Encoding | None) -> GraphData:
    """The graph in a folder, its features made by `encoding` or by a new one."""
    folder = Folder.open(path, asked, encoding)
    nodes, table, found = folder.nodes, folder.table, folder.found
    if encoding is None:
        check_learnable(found, nodes.path, table, folder.kept, raise_error)
    else:
        check_fits(encoding, found, nodes.path, table)
    used = encoding or Encoding.learn(found, folder.roles)
    x, unknown = encode(used, table, nodes.path)
    folder.table = table = table.select(folder.roles.names())  # frees the features' columns
    graph = folder.graph(raise_error)
    graph.x, graph.encoding = x, used
    pa.default_memory_pool().release_unused()
    for line in [*folder.ignored(encoding), *unknown]:
        warnings.warn(line, InputWarning, stacklevel=4)
    return graph


def _check_ids(ids: pa.Array, path: Path, refuse: Refuse) -> None:
    if ids.null_count:
        row = pc.index(ids.is_null(), True).as_py() + 1
        refuse(
            f"'{path}' has no id for {ids.null_count:,} nodes, the first in row {row:,}: give each "
            "node one"
        )
    first = pc.index_in(ids, value_set=ids).to_numpy(zero_copy_only=False)
    repeated = ids.filter(pa.array(first != np.arange(len(ids)))).drop_null()
    if len(repeated):
        refuse(
            f"'{path}' has {len(repeated):,} rows with an id that another row has, such as "
            f"{str(repeated[0])[:40]!r}: keep one row for each node"
        )


def _read_edges(file: TableFile, ids: pa.Array, nodes: Path, refuse: Refuse) -> np.ndarray:
    """Rows $[2, E]$ of sources and targets; edges of unknown nodes are refused, and left out."""
    table = file.read(ENDS, text=ENDS if ids.type == pa.string() else ())
    edges = np.stack([rows_of(table[name], ids) for name in ENDS], dtype=np.int64)
    known: np.ndarray = np.all(edges >= 0, axis=0)
    if not known.all():
        row = int(np.argmin(known))
        end = ENDS[int(edges[0, row] >= 0)]
        cell = as_text(table[end].slice(row, 1))[0].as_py() or ""
        refuse(
            f"'{file.path}' has {int((~known).sum()):,} of {len(known):,} edges with an id that is "
            f"not in {nodes.name}, the first {end} {cell[:40]!r} in row {row + 1:,} (ids there "
            f"look like {str(ids[0])[:40]!r}): add the nodes, or remove the edges"
        )
        edges = edges[:, known]
    return edges
