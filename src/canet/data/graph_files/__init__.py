"""Read, inspect and write user graphs in files."""

from canet.data.graph_files.arrays import write_npz
from canet.data.graph_files.encoding import ReadOptions, Roles
from canet.data.graph_files.inspection import Inspection, inspect_graph
from canet.data.graph_files.read import read_columns, read_graph

__all__ = [
    "Inspection",
    "ReadOptions",
    "Roles",
    "inspect_graph",
    "read_columns",
    "read_graph",
    "write_npz",
]
