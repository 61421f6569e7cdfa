"""Read a user graph: a folder with two tables, a file, a graph store, or tables in memory."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from inspect import signature
from pathlib import Path
from typing import TYPE_CHECKING

from canet.data.graph_files.arrays import read_arrays
from canet.data.graph_files.encoding import Encoding, Fill, ReadOptions, Roles
from canet.data.graph_files.folder import read_folder
from canet.data.raw_graph import RawGraph
from canet.errors import InputError

if TYPE_CHECKING:
    from torch import Tensor
    from torch_geometric.data import Data

ARRAY_FILES = (".npz", ".pt", ".pth")


@dataclass(frozen=True, repr=False)
class GraphSource:
    """Where a graph was read from, so that a model can read it again with its own encoding."""

    place: object  # a path, a graph store, two tables, or a networkx graph
    options: ReadOptions
    x: Tensor  # the features as they were read: the graph has other features if a user changed them

    def __repr__(self) -> str:
        return f"'{self.place}'" if isinstance(self.place, Path) else "tables in memory"


def read_graph(
    source: object,
    edges: object = None,
    *,
    label: str | None = None,
    split: str | None = None,
    environment: str | None = None,
    time: str | None = None,
    sample_weight: str | None = None,
    id: str | None = None,
    weight: str | None = None,
    source_column: str | None = None,
    target_column: str | None = None,
    without: str | int | Iterable[str | int] = (),
    fill: Fill = "mean",
    decimal: str | None = None,
    sep: str | None = None,
    encoding: Encoding | None = None,
) -> Data:
    """Read a graph from a folder, a file, tables or networkx. Code in a file is never run.

    A folder contains `nodes.csv` or `nodes.parquet`, with a row for each node, and `edges.csv` or
    `edges.parquet`, with the columns `source` and `target` (or `src` and `dst`, or `from` and
    `to`). All node columns that are not named below become
    features: numbers are standardised, text is one-hot encoded. A `.npz` or `.pt` file contains
    arrays with the names of PyG (`x`, `edge_index`, `y`, ...).

    Args:
        source: Folder or file; a table of nodes (pandas, Arrow or polars); a networkx graph, whose
            node attributes are the columns; or a graph store or its path. It must fit into memory.
        edges: The table of edges, if `source` is a table of nodes.
        label: Column or array with the classes. Default for arrays: `y`.
        split: Column with `train`, `valid`, `test` or an empty cell. Default: `split`.
        environment: Column with the environment of each node, such as its country.
        time: Column with numbers or ISO dates.
        sample_weight: Column with the weight of each node in training.
        id: Column with the node ids that the edges refer to. Default: `id`; without such a column
            the ids are row numbers from 0.
        weight: Column of the edges with weights ≥ 0: an edge of weight 2 counts like two edges.
            Default: `weight`.
        source_column, target_column: Columns of the edges with the ids of the two nodes. Default:
            `source` and `target`, `src` and `dst`, or `from` and `to`.
        without: Columns to leave out: names, or numbers for arrays, whose columns become 0.
        fill: The value for empty cells of a number column: its `mean`, `median` or
            `most_frequent` value. Another feature marks these cells.
        decimal: Decimal mark of numbers in text and in CSV files, `.` or `,`. Default: as in
            `encoding`, or `.`.
        sep: Separator of cells in CSV files, such as `;`. Default: as in `encoding`, or `,`.
        encoding: Encoding of a training graph, to compute the same features. Its columns for
            labels, ids, times and so on are then used here too, if the table contains them.

    Returns:
        `x` (float32 $[N, D]$, dense or sparse CSR), `edge_index` $[2, E]$, `node_id` $[N]$ and,
        if they are known, `edge_weight` $[E]$, `y`, `environment`, `time`, `batch`, `train_mask`,
        `val_mask`, `test_mask`, `sample_weight` (each $[N]$), `encoding` and `source`.

    Raises:
        InputError: The files are missing or invalid.
    """
    from torch_geometric.data import Data

    options = ReadOptions.of(
        label=label,
        split=split,
        environment=environment,
        time=time,
        sample_weight=sample_weight,
        id=id,
        weight=weight,
        source_column=source_column,
        target_column=target_column,
        without=without,
        fill=fill,
        decimal=decimal,
        sep=sep,
    )
    place = source if edges is None else (source, edges)
    return Data(**read_columns(place, options, encoding).to_dict())


READ_ARGUMENTS = [*signature(read_graph).parameters.keys() - {"source", "edges", "encoding"}]
"""Names of the arguments that say how to read a graph."""


def read_columns(
    source: object, options: ReadOptions, encoding: Encoding | None = None, in_memory: bool = True
) -> RawGraph:
    """Read a graph as `read_graph` does, without PyG; a store stays on disk unless `in_memory`."""
    from canet.data.graph_store import GraphStore, is_graph_store  # needs torch

    if not isinstance(encoding, Encoding | None):
        given = str(encoding)[:60]
        raise InputError(f"encoding is {given!r}: pass model.encoding_; files must be UTF-8")
    place = graph_path(source) if isinstance(source, str | Path) else source
    if isinstance(place, Path) and is_graph_store(place):
        place = GraphStore(place)
    if isinstance(place, GraphStore):
        if options.roles != Roles() or options.without or options.decimal or options.sep:
            raise InputError(
                f"'{place.path}' is a graph store, whose label and other columns were chosen by "
                "canet convert: leave out the names of columns and how to read them, or convert "
                "the graph again"
            )
        if place.encoding is not None and encoding not in (None, place.encoding):
            raise InputError(
                f"the columns of '{place.path}' were encoded in another way than in training: "
                "convert it again with canet convert --like, and the store of training"
            )
        graph = place.load() if in_memory else place.open()
    elif isinstance(place, Path) and not place.is_dir():
        graph = read_arrays(place, options, encoding)
    else:
        graph = read_folder(place, options, encoding)
    graph.source = GraphSource(place, options, graph.x)
    return graph


def graph_path(path: Path | str) -> Path:
    """Return the path of a folder or file; raise an error if it is missing or of another type."""
    location = Path(path)
    if not location.exists():
        raise InputError(
            f"'{location}' does not exist: pass a folder with two tables, a .npz or a .pt file"
        )
    if not location.is_dir() and location.suffix not in ARRAY_FILES:
        raise InputError(
            f"'{location}' is not a graph: pass the folder that contains nodes.csv and edges.csv "
            "(or .parquet), a .npz file or a .pt file"
        )
    return location
