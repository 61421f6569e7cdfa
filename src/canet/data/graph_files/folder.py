"""A graph as a folder with a table of nodes and a table of edges."""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from itertools import repeat
from pathlib import Path

import numpy as np
from torch_geometric.data import Data

from canet.data.graph_files.cells import as_classes, as_ids, as_integers, as_text, is_empty
from canet.data.graph_files.chunks import Table, find_table
from canet.data.graph_files.column_checks import (
    Refuse,
    check_fits,
    check_learnable,
    check_present,
    raise_error,
)
from canet.data.graph_files.columns import Encoding, Roles
from canet.data.graph_files.encode import encode
from canet.data.graph_files.parts import GraphParts, read_split
from canet.data.graph_files.survey import Survey, survey
from canet.errors import InputWarning, listed

ENDS = ("source", "target")
DEFAULT_NAMES = {"id": "id", "split": "split"}
MOST_EMPTY = 4
"""Ids are looked up in an array if their range is at most so many times N."""


@dataclass
class Folder:
    """The two tables, and what is in the table of nodes.

    Args:
        nodes, edges: The tables.
        roles: Which columns of nodes are no features.
        found: What the other columns hold, and the columns with a role as they are.
    """

    nodes: Table
    edges: Table
    roles: Roles
    found: Survey

    @classmethod
    def open(cls, path: Path, asked: Roles, encoding: Encoding | None = None) -> Folder:
        """Find the tables and look through the nodes once."""
        nodes, edges = find_table(path, "nodes"), find_table(path, "edges")
        roles = _resolve(asked, nodes, encoding)
        check_present(ENDS, edges.columns, edges.path)
        features = [name for name in nodes.columns if name not in roles.names()]
        if encoding is not None:
            check_present((c.name for c in encoding.columns), features, nodes.path)
            features = [c.name for c in encoding.columns if c.kind != "constant"]
        if not features and not roles.names():
            raise_error(f"'{nodes.path}' has no columns that can be read: add features")
        found = survey(nodes, features, roles.names(), roles.split)
        if not found.rows:
            raise_error(f"'{nodes.path}' has no rows: add one for each node")
        return cls(nodes, edges, roles, found)

    def ignored(self, encoding: Encoding | None) -> list[str]:
        """What is not used, a line each."""
        lines, extra = [], [name for name in self.edges.columns if name not in ENDS]
        if extra:
            lines.append(f"'{self.edges.path}': ignored columns {listed(extra)}")
        if encoding is not None:
            used = {*(c.name for c in encoding.columns), *encoding.left_out}
            used |= {*self.roles.names(), *encoding.roles.names()}
            extra = [name for name in self.nodes.columns if name not in used]
            if extra:
                lines.append(
                    f"'{self.nodes.path}': ignored columns {listed(extra)}, which training "
                    "did not have"
                )
        return lines

    def parts(self, refuse: Refuse) -> GraphParts:
        """Edges, ids, labels and the like; what is refused is left out."""
        path, roles, whole = self.nodes.path, self.roles, self.found.whole
        if roles.id is None:
            node_id = np.arange(self.found.rows)
        else:
            node_id = as_ids(whole[roles.id], self.nodes.typed)
        ids = NodeIds(node_id, path, refuse)
        parts = GraphParts(self.found.rows, _read_edges(self.edges, ids, refuse), node_id)
        if roles.label:
            parts.columns["y"] = as_classes(whole[roles.label])
        if roles.environment:
            parts.columns["environment"] = as_classes(whole[roles.environment])
        if roles.time:
            parts.add_time(whole[roles.time], roles.time, path, refuse)
        if roles.split:
            parts.masks = read_split(whole[roles.split], roles.split, path, refuse)
        return parts


def read_folder(path: Path, asked: Roles, encoding: Encoding | None) -> Data:
    """The graph in a folder, its features made by `encoding` or by a new one."""
    folder = Folder.open(path, asked, encoding)
    nodes, found = folder.nodes, folder.found
    if encoding is None:
        check_learnable(found, nodes.path, raise_error)
    else:
        check_fits(encoding, found, nodes.path, raise_error)
    parts = folder.parts(raise_error)
    ignored = folder.ignored(encoding)
    found.whole.clear()
    applied = encoding or Encoding.learn(found, folder.roles)
    x, unknown = encode(applied, nodes, found.rows)
    for line in [*ignored, *unknown]:
        warnings.warn(line, InputWarning, stacklevel=3)
    return parts.with_features(x, applied)


class NodeIds:
    """Where each id's row is.

    Integers that lie close together are looked up in an array, others in sorted order, strings in a
    dict.
    """

    def __init__(self, ids: np.ndarray, path: Path, refuse: Refuse) -> None:
        self.path, self.count = path, len(ids)
        self.example = str(ids[0])[:40]
        self._integers = ids.dtype != object
        empty = np.flatnonzero(is_empty(ids)) if ids.dtype == object else np.empty(0)
        if empty.size:
            refuse(
                f"'{path}' has no id for {empty.size:,} nodes, the first in row "
                f"{int(empty[0]) + 1:,}: give each node one"
            )
        if self._integers:
            self._order = np.argsort(ids, kind="stable")
            self._sorted = ids[self._order]
            self._table = self._places()
            repeated = self._sorted[1:][self._sorted[1:] == self._sorted[:-1]]
        else:
            self._rows = dict(zip(reversed(ids.tolist()), range(len(ids) - 1, -1, -1), strict=True))
            repeated = ids[[self._rows[name] != row for row, name in enumerate(ids.tolist())]]
        if repeated.size:
            refuse(
                f"'{path}' has {repeated.size:,} rows with an id that another has, such as "
                f"{str(repeated[0])[:40]!r}: keep one row for each node"
            )

    def rows(self, cells: np.ndarray) -> np.ndarray:
        """The row $[n]$ of each id; -1 where no node has it."""
        if not self._integers:
            found = map(self._rows.get, as_text(cells).tolist(), repeat(-1))
            return np.fromiter(found, np.int64, len(cells))
        integers = as_integers(cells)
        if integers is None:
            return np.array([self._row(cells[[i]]) for i in range(len(cells))], dtype=np.int64)
        return self._find(integers)

    def _row(self, cell: np.ndarray) -> int:
        integer = as_integers(cell)
        return -1 if integer is None else int(self._find(integer)[0])

    def _find(self, integers: np.ndarray) -> np.ndarray:
        low, high = self._sorted[0], self._sorted[-1]
        inside = (integers >= low) & (integers <= high)
        if self._table is not None:
            return np.where(inside, self._table[np.where(inside, integers, low) - low], -1)
        ascending = np.argsort(integers)  # neighbours in memory, one after the other
        wanted = integers[ascending]
        places = np.minimum(np.searchsorted(self._sorted, wanted), len(self._sorted) - 1)
        found = np.empty_like(places)
        found[ascending] = np.where(self._sorted[places] == wanted, self._order[places], -1)
        return found

    def _places(self) -> np.ndarray | None:
        """The row of each integer between the least id and the largest, if they lie close."""
        low, high = int(self._sorted[0]), int(self._sorted[-1])
        if high - low >= MOST_EMPTY * len(self._sorted) + 1024:
            return None
        table = np.full(high - low + 1, -1)
        table[(self._sorted - low)[::-1]] = self._order[::-1]
        return table


def _resolve(asked: Roles, nodes: Table, encoding: Encoding | None) -> Roles:
    """The columns with a role: those asked for, else those of training, else the usual names."""
    names = {}
    for role, name in vars(asked).items():
        if name is not None:
            check_present([name], nodes.columns, nodes.path)
        else:
            trained = getattr(encoding.roles, role) if encoding else None
            usual = trained or DEFAULT_NAMES.get(role)
            name = usual if usual in nodes.columns else None
        if name in nodes.unreadable:
            raise_error(
                f"'{nodes.path}' holds {nodes.unreadable[name]} in column '{name}', which cannot "
                f"be the {role}: write numbers or text"
            )
        names[role] = name
    return Roles(**names)


def _read_edges(table: Table, ids: NodeIds, refuse: Refuse) -> np.ndarray:
    """Rows $[2, E]$ of sources and targets; edges of unknown nodes are refused, and left out."""
    for name in ENDS:
        if name in table.unreadable:
            raise_error(f"'{table.path}' holds {table.unreadable[name]} in column '{name}'")
    parts, unknown, first, rows = [], 0, "", 0
    for chunk in table.chunks(ENDS):
        edges = np.stack([ids.rows(chunk[name]) for name in ENDS])
        known: np.ndarray = np.all(edges >= 0, axis=0)
        if not known.all():
            place = int(np.flatnonzero(~known)[0])
            end = ENDS[int(edges[1, place] < 0 <= edges[0, place])]
            first = (
                first or f"{end} {as_text(chunk[end])[place][:40]!r} in row {rows + place + 1:,}"
            )
            unknown += int((~known).sum())
            edges = edges[:, known]
        parts.append(edges.astype(np.int32) if ids.count < 2**31 else edges)
        rows += len(known)
    if unknown:
        refuse(
            f"'{table.path}' has {unknown:,} of {rows:,} edges with an id that is not in "
            f"{ids.path.name}, the first {first} (ids there look like {ids.example!r}): add "
            "the nodes, or leave the edges out"
        )
    return np.concatenate([np.empty((2, 0), dtype=np.int64), *parts], axis=1, dtype=np.int64)
