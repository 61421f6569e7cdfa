"""A graph store in place of a user graph: how it is opened, its nodes and its labels."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from canet.data.checks import check_nodes
from canet.data.graph_files.encoding import Encoding, ReadOptions, Roles
from canet.data.graph_store import GraphStore, is_graph_store
from canet.data.user_graph import match_classes
from canet.errors import InputError

NAMES_AT_ONCE = 2**18
NUM_CHECKED_EDGES = 1_000
"""Edges of a store whose reverse edges are looked up."""


def as_store(data: Any) -> GraphStore | None:
    """Return the graph store that `data` is, or whose path it is; None for other graphs."""
    if isinstance(data, str | Path) and is_graph_store(Path(data)):
        return GraphStore(data)
    return data if isinstance(data, GraphStore) else None


def open_store(path: Path, options: ReadOptions) -> GraphStore | None:
    """Return the graph store in a folder, or None; columns were chosen when it was written."""
    store = as_store(path)
    if store is not None and (options.roles != Roles() or options.without):
        raise InputError(
            f"'{path}' is a graph store, whose label and other columns were chosen by canet "
            "convert: leave out the names of columns, or convert the graph again"
        )
    return store


def check_encoding(store: GraphStore, encoding: Encoding | None) -> None:
    """Reject a store whose table columns were encoded in another way than those of a model."""
    if store.encoding is None or store.encoding == encoding:
        return
    if encoding is None:
        raise InputError(
            f"the model was trained on arrays, but '{store.path}' was converted from tables: "
            "convert arrays with the feature columns of training"
        )
    raise InputError(
        f"the columns of '{store.path}' were encoded in another way than in training: convert the "
        "graph again with canet convert --like STORE, where STORE is the graph of training"
    )


@dataclass(frozen=True)
class StoredGraph:
    """The nodes of a graph store, with the interface of `UserGraph`."""

    store: GraphStore

    @property
    def num_nodes(self) -> int:
        return self.store.num_nodes

    def rows(self, nodes: Any, name: str = "nodes") -> Tensor:
        """Return the rows of nodes; arguments as for `check_nodes`."""
        return check_nodes(nodes, self.num_nodes, name, lambda: self._rows_of(nodes))

    def _rows_of(self, names: Any) -> dict[str, int]:
        """Return the row of each of these names that the store has."""
        wanted = np.unique(np.asarray(names, dtype=str))
        if "node_id" not in self.store:
            numbers = [name for name in wanted.tolist() if name.isdecimal()]
            return {name: int(name) for name in numbers if int(name) < self.num_nodes}
        ids, found = self.store.array("node_id"), dict[str, int]()
        for first in range(0, self.num_nodes, NAMES_AT_ONCE):
            part = ids[first : first + NAMES_AT_ONCE]
            rows = np.flatnonzero(np.isin(part, wanted))
            found |= dict(zip(part[rows].tolist(), (first + rows).tolist(), strict=True))
        return found

    def names(self, rows: np.ndarray) -> np.ndarray:
        """Return the names of nodes; their row numbers if they have none."""
        return np.asarray(self.store.array("node_id")[rows]) if "node_id" in self.store else rows

    def match_classes(self, classes: np.ndarray) -> Tensor:
        """Return the class ids $[N]$ of the labels, as `match_classes` does."""
        if "labels" not in self.store:
            return match_classes(None, self.num_nodes, classes)
        names, labels = np.array(self.store.classes), self.store.array("labels")
        ids = match_classes(names, len(names), classes)
        return torch.cat([ids, ids.new_full((1,), -1)])[torch.from_numpy(labels).long()]

    def check_undirected(self) -> None:
        """Reject edges in one direction for a model that uses both; some edges are looked up."""
        if not self.store.num_edges:
            return
        random = np.random.default_rng(0)
        entries = random.integers(self.store.num_edges, size=NUM_CHECKED_EDGES)
        rowptr, neighbours = self.store.array("rowptr"), self.store.array("neighbours")
        targets = np.searchsorted(rowptr, entries, side="right") - 1
        for source, target in zip(neighbours[entries].tolist(), targets.tolist(), strict=True):
            of_source = neighbours[rowptr[source] : rowptr[source + 1]]
            place = np.searchsorted(of_source, target)
            if place == len(of_source) or of_source[place] != target:
                raise InputError(
                    f"the model uses each edge in both directions, but '{self.store.path}' has an "
                    f"edge from node {source} to {target} and none back: convert the graph again "
                    "with --undirected"
                )
