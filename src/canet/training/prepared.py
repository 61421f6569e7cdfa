"""Graphs of the user, checked and normalised once, and kept as long as the user keeps them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any
from weakref import finalize

from torch import Tensor

from canet.data.graph_data import AnyGraph, is_graph
from canet.data.user_graph import UserGraph, read_user_graph
from canet.nn import Graph, Operator
from canet.util.torch_state import single_precision

READ = ("x", "edge_index", "batch", "num_nodes", "node_id")
"""The columns that checks read."""


class PreparedGraph:
    """A checked graph, and its matrices for each kind of model that has read it."""

    def __init__(self, own: UserGraph) -> None:
        self.own = own
        self.graphs: dict[tuple[Operator, ...], Graph] = {}

    def graph(self, operators: Sequence[Operator]) -> Graph:
        """The graph with a model's operators, normalised when they are first asked for."""
        key = tuple(operators)
        if key not in self.graphs:
            own = self.own
            with single_precision():
                self.graphs[key] = Graph(own.edge_index, own.num_nodes, operators, own.graph)
        return self.graphs[key]


_kept: dict[tuple[int, bool], tuple[list[Any], PreparedGraph]] = {}
"""By identity of the user's object, which PyG's is not hashable by, and `undirected`."""


def prepare_graph(data: Any, graph: Any = None, undirected: bool = False) -> PreparedGraph:
    """Check a graph; arguments as `read_user_graph`.

    The same object made of tensors is checked again only after a tensor was replaced or changed in
    place. Torch does not see changes through an array of numpy that shares memory with a tensor.
    """
    version = None if graph is not None or not is_graph(data) else _version(data)
    if version is None:
        return PreparedGraph(read_user_graph(data, graph, undirected))
    key = id(data), undirected
    before, prepared = _kept.get(key, ([], None))
    if prepared is None or not _same(before, version):
        if prepared is None:
            finalize(data, _kept.pop, key, None).atexit = False
        prepared = PreparedGraph(read_user_graph(data, None, undirected))
        _kept[key] = version, prepared
    return prepared


def _version(data: AnyGraph) -> list[Any] | None:
    """The columns that are read and how often each was changed; None where nobody counts that."""
    columns = [data.get(name) for name in READ]
    tensors = [column for column in columns[:3] if column is not None]
    if not all(isinstance(t, Tensor) and not t.is_inference() for t in tensors):
        return None
    parts = [p for t in tensors for p in ([t, t.values()] if t.is_sparse_csr else [t])]
    return [*columns, tuple(part._version for part in parts)]


def _same(before: list[Any], now: list[Any]) -> bool:
    """Whether columns are the same objects, with the same counts."""
    return all(a is b for a, b in zip(before[:-1], now[:-1], strict=True)) and before[-1] == now[-1]
