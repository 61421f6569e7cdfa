"""Graphs in memory as tables of nodes and edges: pandas, Arrow, polars and networkx."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa

from canet.data.graph_files.tables import MemoryTable
from canet.errors import InputError, first_line

EXAMPLES = (
    "pass a folder with nodes.csv and edges.csv, a tuple of two tables (nodes, edges), a networkx "
    "graph, or a PyG Data"
)


def is_table(source: object) -> bool:
    """Whether an object is a table of pandas, Arrow or polars."""
    has_columns = hasattr(source, "columns") or hasattr(source, "column_names")
    return has_columns and (hasattr(source, "__arrow_c_stream__") or _is_pandas(source))


def is_networkx(source: object) -> bool:
    """Whether an object is a graph of networkx; networkx is not imported."""
    return type(source).__module__.partition(".")[0] == "networkx" and hasattr(source, "adj")


def tables_in_memory(source: object) -> tuple[MemoryTable, MemoryTable]:
    """Return the tables of nodes and edges of a networkx graph or of a pair of tables."""
    if is_networkx(source):
        return _networkx_tables(source)
    if isinstance(source, tuple) and len(source) == 2 and is_table(source[0]):
        if not is_table(source[1]):
            kind = type(source[1]).__name__
            raise InputError(
                f"edges is a {kind}: pass the table of edges; name the label with label"
            )
    elif not isinstance(source, tuple | list) or len(source) != 2 or not all(map(is_table, source)):
        kind = type(source).__name__
        if kind == "HeteroData":
            raise InputError(
                "HeteroData has several types of nodes: put all nodes into one table with a column "
                "for the type, or use data.to_homogeneous() and add one-hot types to x"
            )
        what = "only one table" if is_table(source) else f"a {kind}"
        raise InputError(f"the graph is {what}: {EXAMPLES}")
    nodes, edges = source
    return _table(nodes, "nodes"), _table(edges, "edges")


def _table(source: Any, name: str) -> MemoryTable:
    try:
        if _is_pandas(source):
            keep_index = source.index.name is not None
            table = pa.Table.from_pandas(source, preserve_index=keep_index)
        else:
            table = pa.table(source)
    except (pa.ArrowException, ValueError, TypeError) as error:
        raise InputError(
            f"the table of {name} cannot be read ({first_line(error)}): give each column one type "
            "and one name"
        ) from error
    return MemoryTable(Path(name), table)


def _networkx_tables(graph: Any) -> tuple[MemoryTable, MemoryTable]:
    """Convert node attributes to columns; an undirected edge becomes two edges."""
    names = list(graph)
    if not all(isinstance(name, int) for name in names):
        names = [str(name) for name in names]
    number = {name: row for row, name in enumerate(graph)}
    attributes = [values for _, values in graph.nodes(data=True)]
    columns = dict.fromkeys(str(key) for values in attributes for key in values)
    pairs = list(graph.edges(data="weight"))
    if not graph.is_directed():
        pairs += [(target, source, w) for source, target, w in pairs if source != target]
    try:
        nodes = {
            key: pa.array([v.get(key) for v in attributes], from_pandas=True) for key in columns
        }
        weights = pa.array([weight for *_, weight in pairs], from_pandas=True)
    except (pa.ArrowException, OverflowError) as error:
        raise InputError(
            f"an attribute of the networkx graph has values of different types "
            f"({first_line(error)}): convert them to one type"
        ) from error
    edges = {
        "source": pa.array([names[number[source]] for source, *_ in pairs]),
        "target": pa.array([names[number[target]] for _, target, _ in pairs]),
    }
    if weights.null_count < len(weights):
        edges["weight"] = weights.cast(pa.float64()).fill_null(1.0)
    path = Path("networkx graph")
    return (
        MemoryTable(path, pa.table({**nodes, "id": pa.array(names)})),
        MemoryTable(path, pa.table(edges)),
    )


def _is_pandas(source: object) -> bool:
    return type(source).__module__.partition(".")[0] == "pandas" and hasattr(source, "iloc")
