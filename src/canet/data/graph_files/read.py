"""Read a user graph from a folder with two tables, a `.npz` file or a `.pt` file."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from canet.data.graph_data import GraphData
from canet.data.graph_files.arrays import read_arrays
from canet.data.graph_files.encoding import Encoding, Roles
from canet.data.graph_files.folder import read_folder
from canet.errors import InputError

if TYPE_CHECKING:
    from torch import Tensor
    from torch_geometric.data import Data

ARRAY_FILES = (".npz", ".pt", ".pth")


@dataclass(frozen=True, repr=False)
class GraphSource:
    """Where a graph was read from, so that a model can read it again with its own encoding."""

    path: Path
    roles: Roles
    x: Tensor  # the features as they were read: the graph has other features if a user changed them

    def __repr__(self) -> str:
        return f"'{self.path}'"


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
    """Read a graph from a folder or a file. Code in a file is never run.

    A folder contains `nodes.csv` or `nodes.parquet`, with a row for each node, and `edges.csv` or
    `edges.parquet`, with the columns `source` and `target`. Columns of nodes without a role become
    features: numbers are standardised, text is one-hot encoded. A `.npz` or `.pt` file contains
    arrays with the names of PyG (`x`, `edge_index`, `y`, ...).

    Args:
        path: Folder or file.
        label: Column or array with the classes. Default for arrays: `y`.
        split: Column with `train`, `valid`, `test` or an empty cell. Default: `split`.
        environment: Column with the environment of each node, such as its country.
        time: Column with numbers or ISO dates.
        id: Column with the node ids that the edges refer to. Default: `id`; without such a column
            the ids are row numbers from 0.
        encoding: Encoding of a training graph, to compute the same features. Columns that had a
            role in training have it here too, if the table contains them.

    Returns:
        `x` (float32 $[N, D]$, dense or sparse CSR), `edge_index` $[2, E]$, `node_id` $[N]$ and,
        if they are known, `y`, `environment`, `time`, `batch`, `train_mask`, `val_mask`,
        `test_mask` (each $[N]$), `encoding` and `source`.

    Raises:
        InputError: The files are missing or invalid.
    """
    from torch_geometric.data import Data

    requested = Roles(id=id, label=label, split=split, environment=environment, time=time)
    return Data(**read_columns(path, requested, encoding).to_dict())


def read_columns(path: Path | str, requested: Roles, encoding: Encoding | None = None) -> GraphData:
    """Read a graph as `read_graph` does, without importing PyG."""
    location = graph_path(path)
    read = read_folder if location.is_dir() else read_arrays
    graph = read(location, requested, encoding)
    graph.source = GraphSource(location, requested, graph.x)
    return graph


def graph_path(path: Path | str) -> Path:
    """Return the path of a folder or file; raise an error if it is missing or of another type."""
    location = Path(path)
    if not location.exists():
        raise InputError(
            f"'{location}' does not exist: pass a folder with nodes.csv and edges.csv, a .npz file "
            "or a .pt file"
        )
    if not location.is_dir() and location.suffix not in ARRAY_FILES:
        raise InputError(
            f"'{location}' is not a graph: pass the folder that contains nodes.csv and edges.csv "
            "(or .parquet), a .npz file or a .pt file"
        )
    return location
