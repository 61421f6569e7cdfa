"""Cache of user graphs, which are checked and normalised once."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeAlias
from weakref import finalize

import torch
from torch import Tensor

from canet.data.graph import UserGraph, read_user_graph
from canet.data.graph_data import AnyGraph, is_graph
from canet.nn import Graph, Operator
from canet.training.large_fields import CPU, place_of_edges
from canet.util.sparse import Csr
from canet.util.torch_state import single_precision

COLUMNS = ("x", "edge_index", "batch", "edge_weight", "num_nodes", "node_id", "csr")
"""Columns of a graph that its checks use."""


class PreparedGraph:
    """A checked graph, with its normalised matrices for each set of operators."""

    def __init__(self, user_graph: UserGraph) -> None:
        self.user_graph = user_graph
        self.graphs: dict[tuple[Operator, ...], Graph] = {}

    def graph(self, operators: Sequence[Operator]) -> Graph:
        """Return the graph with the operators of a model; it is normalised on first use."""
        key = tuple(operators)
        if key not in self.graphs:
            user = self.user_graph
            assert user.edge_index is not None
            with single_precision():
                self.graphs[key] = Graph(
                    user.edge_index, user.num_nodes, operators, user.batch, user.edge_weight
                )
        return self.graphs[key]


class PreparedStore:
    """A graph store to predict, in place of a `PreparedGraph`; its readers share the edges."""

    def __init__(self, user_graph: UserGraph) -> None:
        self.user_graph = user_graph
        self._csr: dict[torch.device, Csr] = {}  # for each device of a model

    def graph(self, operators: Sequence[Operator], device: torch.device) -> Graph:
        """Return the graph for a model, on the device if it has room for the edges.

        Sums over whole graphs need the graph on the CPU.
        """
        if any(operator.kind == "graph" for operator in operators):
            device = CPU
        if device not in self._csr:
            csr = self.user_graph.csr
            assert csr is not None
            self._csr[device] = csr.to(place_of_edges(csr, device))
        return Graph(self._csr[device], self.user_graph.num_nodes, operators, dtype=torch.float)


Prepared: TypeAlias = PreparedGraph | PreparedStore

_cache: dict[tuple[int, bool], tuple[list[Any], Prepared]] = {}
"""(id of the user's object, `undirected`) → version and graph. PyG objects are not hashable."""


def prepare_graph(data: Any, batch: Any = None, undirected: bool = False) -> Prepared:
    """Check a graph and cache the result; arguments as for `read_user_graph`.

    A graph of tensors is checked again only if a tensor was replaced or changed in place. Changes
    through a numpy array that shares memory with a tensor are not detected. Other graphs are not
    cached.
    """
    version = None if batch is not None or not is_graph(data) else _version(data)
    if version is None:
        return _prepared(read_user_graph(data, batch, undirected))
    key = id(data), undirected
    cached_version, prepared = _cache.get(key, ([], None))
    if prepared is None or not _same(cached_version, version):
        if prepared is None:
            finalize(data, _cache.pop, key, None).atexit = False
        prepared = _prepared(read_user_graph(data, None, undirected))
        _cache[key] = version, prepared
    return prepared


def _prepared(user_graph: UserGraph) -> Prepared:
    return (PreparedGraph if user_graph.csr is None else PreparedStore)(user_graph)


def _version(data: AnyGraph) -> list[Any] | None:
    """Return the columns and the version counters of their tensors; None if there is no counter."""
    columns = [data.get(name) for name in COLUMNS]
    tensors = [column for column in columns[:4] if column is not None]
    if not all(isinstance(t, Tensor) and not t.is_inference() for t in tensors):
        return None
    parts = [p for t in tensors for p in ([t, t.values()] if t.is_sparse_csr else [t])]
    return [*columns, tuple(part._version for part in parts)]


def _same(old: list[Any], new: list[Any]) -> bool:
    """Whether two versions have the same objects and counters."""
    return all(a is b for a, b in zip(old[:-1], new[:-1], strict=True)) and old[-1] == new[-1]
