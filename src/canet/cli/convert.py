"""Graphs that do not fit into memory: `canet convert`."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from canet.cli import options
from canet.cli.app import app
from canet.errors import InputError, first_line, warn_user
from canet.util.files import check_regular

if TYPE_CHECKING:
    from canet.data.graph_files import ReadOptions
    from canet.data.graph_store import GraphStore, GraphStoreWriter
    from canet.data.raw_graph import RawGraph

EDGES = "edge_index"
MAX_HALF = 65504  # largest number in float16
ROWS_AT_ONCE = 2**16
STEPS = ("reading edges", "writing features", "sorting edges")


@app.command()
@options.option_groups
def convert(
    graph: Annotated[
        Path,
        typer.Argument(
            metavar="GRAPH",
            help="Graph as for `canet fit`, or a folder with edge_index.npy, x.npy and y.npy, "
            "which need not fit into memory.",
        ),
    ],
    *,
    out: Annotated[Path, options.out("New folder for the graph store.", metavar="STORE")],
    columns: options.ColumnOptions,
    undirected: options.Undirected = None,
    half: bool = options.option(
        False, "Write dense features as float16, which halves their size.", "--half"
    ),
    like: Path | None = options.option(
        None, "Encode the columns as in this graph store, for the next graph.", metavar="STORE"
    ),
) -> None:
    """Write a graph store, for graphs that do not fit into memory."""
    from canet.data.graph_store import GraphStore, GraphStoreWriter
    from canet.util.progress import Display

    GraphStoreWriter(out, 1)  # an error before the graph is read
    model = None if like is None else GraphStore(like)
    if undirected is None and model is not None:
        undirected = model.undirected or None
    with Display(len(STEPS), unit="steps") as display:
        display.update(0, text=STEPS[0])
        data = _read(graph, columns.read_options, undirected, model)
        counted = [data[name] for name in ("x", "y", "split", "node_id") if name in data]
        num_nodes = len(counted[0]) if counted else int(data.edge_index.max(initial=0)) + 1
        with GraphStoreWriter(out, num_nodes, undirected=bool(undirected)) as writer:
            source, target = data.edge_index
            writer.add_edges(source, target, data.get("edge_weight"))
            display.update(1, text=STEPS[1])
            if "x" in data:
                _add_features(writer, data.x, half, model)
            _set_columns(writer, data)
            display.update(2, text=STEPS[2])
    store = GraphStore(out)
    size = (store.num_nodes, store.num_edges + store.num_loops, store.num_features)
    print("{:,} nodes, {:,} edges, {:,} features, {:,.1f} MB".format(*size, store.size / 1e6))
    if store.splits:
        counts = (f"{split} {len(store.nodes(split)):,}" for split in store.splits)
        print(f"Splits: {', '.join(counts)} nodes")
    if "labels" in store:
        print(f"To train: {shlex.join(['canet', 'fit', str(out), '--out', 'MODEL'])}")


def _read(
    path: Path, chosen: ReadOptions, undirected: bool | None, like: GraphStore | None
) -> RawGraph:
    """Read a graph into memory, or open a folder of `.npy` files as memory maps."""
    from canet.data.graph import warn_edges
    from canet.data.graph_files import read_columns

    encoding = None if like is None else like.encoding
    if (path / f"{EDGES}.npy").is_file():
        data = _open_arrays(path, chosen)
    else:
        data = read_columns(path, chosen, encoding)
        warn_edges(data.edge_index, undirected)
    if like is not None and data.get("encoding") != encoding:
        kinds = ["columns of a table", "numbers in an array"]
        found, expected = kinds if encoding is None else reversed(kinds)
        raise InputError(
            f"the features of '{path}' are {found}, but those of '{like.path}' were {expected}: "
            "leave out --like, or pass a graph of the same kind"
        )
    if chosen.without and data.get("encoding") is None:
        raise InputError(f"'{path}' has no column names: remove the columns from x")
    if data.get("batch") is not None:
        warn_user(f"'{path}': a graph store is one graph, so batch is left out")
    return data


def _open_arrays(folder: Path, chosen: ReadOptions) -> RawGraph:
    """Return the graph in a folder of `.npy` files, which are memory maps."""
    import numpy as np

    from canet.data.graph_files.arrays import array_roles
    from canet.data.raw_graph import MASKS, RawGraph

    available = {file.stem: file for file in sorted(folder.glob("*.npy"))}
    roles = array_roles(chosen, available, folder)
    named = {
        "y": roles.label,
        "split": roles.split,
        "environment": roles.environment,
        "time": roles.time,
        "sample_weight": roles.sample_weight,
        "node_id": roles.id,
        "edge_weight": roles.weight,
        **{name: name for name in ("x", EDGES, "batch", *MASKS.values())},
    }
    data = RawGraph()
    for role, name in named.items():
        if name not in available:
            continue
        check_regular(available[name], sys.maxsize)
        try:
            data[role] = np.load(available[name], mmap_mode="r", allow_pickle=False)
        except (OSError, ValueError, EOFError, SyntaxError) as error:
            raise InputError(
                f"'{available[name]}' cannot be read ({first_line(error)}): save it again with "
                "numpy.save"
            ) from error
        if role in ("y", "environment") and data[role].dtype.kind == "U":
            data[role] = np.where(data[role] == "", None, data[role])
    if data.edge_index.ndim != 2 or len(data.edge_index) != 2:
        raise InputError(
            f"'{available[EDGES]}' has shape {list(data.edge_index.shape)}, not [2, E]: save the "
            "sources as row 0 and the targets as row 1"
        )
    return data


def _add_features(writer: GraphStoreWriter, x: Any, half: bool, like: GraphStore | None) -> None:
    """Write features $[N, D]$, as float16 if `half`."""
    import numpy as np
    import torch

    if like is not None and x.shape[1:] != (like.num_features,):
        raise InputError(
            f"x has shape {list(x.shape)}, but '{like.path}' has {like.num_features:,} features: "
            "leave out --like, or pass the columns of that store"
        )
    if not half:
        writer.add_features(x)
        return
    if isinstance(x, torch.Tensor) and x.layout != torch.strided:
        raise InputError("the features are sparse, which saves more space: leave out --half")
    for start in range(0, len(x), ROWS_AT_ONCE):
        rows = np.asarray(x[start : start + ROWS_AT_ONCE])
        if np.abs(rows).max(initial=0) > MAX_HALF:
            raise InputError(
                f"x contains numbers beyond {MAX_HALF:,}, the limit of float16: leave out --half, "
                "or scale the features"
            )
        writer.add_features(rows.astype(np.float16))


def _set_columns(writer: GraphStoreWriter, data: RawGraph) -> None:
    """Write the values of the nodes that the graph has."""
    import numpy as np

    from canet.data.raw_graph import MASKS

    setters: dict[str, Callable[[Any], None]] = {
        "y": writer.set_labels,
        "time": writer.set_time,
        "environment": writer.set_environment,
        "sample_weight": writer.set_sample_weight,
    }
    for name, write in setters.items():
        if data.get(name) is not None:
            write(data[name])
    if "node_id" in data and not np.array_equal(data.node_id, np.arange(len(data.node_id))):
        writer.set_node_id(data.node_id)
    masks = {split: data[mask] for split, mask in MASKS.items() if mask in data}
    if "split" in data or masks:
        writer.set_split(data.split if "split" in data else masks)
    if data.get("encoding") is not None:
        writer.set_encoding(data.encoding)
