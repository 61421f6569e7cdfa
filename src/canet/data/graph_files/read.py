"""Your graph from files: a folder of two tables, a `.npz`, or a `.pt` of a PyG `Data`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from canet.data.graph_data import GraphData
from canet.data.graph_files.arrays import read_arrays
from canet.data.graph_files.encoding import Encoding, Roles
from canet.data.graph_files.folder import read_folder
from canet.errors import InputError

if TYPE_CHECKING:
    from torch_geometric.data import Data

ARRAY_FILES = (".npz", ".pt", ".pth")


def read_graph(
    path: Path | str,
    *,
    label: str | None = None,
    split: str | None = None,
    environment: str | None = None,
    time: str | None = None,
    id: str | None = None,
    encoding: Encoding | None = None,
) -> Data:
    """Read a graph; nothing in a file can run code.

    A folder has `nodes.csv` or `nodes.parquet`, with a row for each node, and `edges.csv` or
    `edges.parquet` with the columns `source` and `target`. Columns of nodes that have no role
    become features: numbers are standardised, text becomes categories. A `.npz` or `.pt` file
    has arrays named as in PyG.

    Args:
        path: Folder or file.
        label: Column, or array, of classes; in arrays `y` by default.
        split: Column with `train`, `valid` and `test`, or nothing; `split` by default.
        environment: Column that says where a node comes from, such as a country.
        time: Column of numbers or ISO dates.
        id: Column that edges name nodes by; `id` by default, else rows count from 0.
        encoding: Of the graph that a model was trained on: makes the same features here. Its
            columns with a role are read if the table has them.

    Returns:
        `x` (float32 $[N, D]$, dense or sparse CSR), `edge_index` $[2, E]$, `node_id` $[N]$ and,
        where they are known, `y`, `environment`, `time`, `batch`, `train_mask`, `val_mask`,
        `test_mask` (each $[N]$) and `encoding`.

    Raises:
        InputError: What is wrong, where, and how to fix it.
    """
    from torch_geometric.data import Data

    asked = Roles(id=id, label=label, split=split, environment=environment, time=time)
    return Data(**read_columns(path, asked, encoding).to_dict())


def read_columns(path: Path | str, asked: Roles, encoding: Encoding | None = None) -> GraphData:
    """As `read_graph`, which see, without PyG."""
    place = graph_path(path)
    read = read_folder if place.is_dir() else read_arrays
    return read(place, asked, encoding)


def graph_path(path: Path | str) -> Path:
    """The path of a graph, or an error where there is none."""
    place = Path(path)
    if not place.exists():
        raise InputError(f"there is no '{place}': name a folder, a .npz or a .pt file")
    if not place.is_dir() and place.suffix not in ARRAY_FILES:
        raise InputError(
            f"'{place}' is not a graph: name the folder with nodes.csv and edges.csv (or "
            ".parquet), a .npz or a .pt file"
        )
    return place
