"""Options that several commands share."""

from __future__ import annotations

import os
import warnings
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import typer

from canet.errors import CanetError, InputWarning
from canet.settings import MAX_NUMBER
from canet.util.seeds import MAX_SEED

MAX_SEEDS = 1000
MAX_JOBS = 1024
MAX_TRIALS = 100_000
MAX_REPEATS = 1000
"""Larger numbers are typing errors: they would take years or all memory."""


def _existing(data_root: Path | None) -> Path | None:
    """Reject a missing folder even if the task would not read it."""
    from canet.data.benchmarks.files import search_roots

    if data_root is not None:
        search_roots(data_root)
    return data_root


def not_a_folder(path: Path | None) -> Path | None:
    """Reject a folder as the output file of a command."""
    if path is not None and path.is_dir():
        raise CanetError(f"'{path}' is a folder: pass the name of a file")
    return path


def _task_name(name: str) -> str:
    """Return the name of a task in lower case, or the absolute path of a graph store."""
    from canet.data import DATASETS

    path = Path(name)
    if name.lower() in DATASETS or not (os.sep in name or os.path.exists(name)):
        return name.lower()
    from canet.data.graph_store import is_graph_store

    if not is_graph_store(path):
        raise CanetError(
            f"'{name}' is neither a task nor a graph store: train on a graph with canet fit, or "
            "write it as a store with canet convert"
        )
    return str(path.absolute())


def _lower(name: str | None) -> str | None:
    """Return a name in lower case, as the names of methods, backbones and tasks are."""
    return name if name is None else name.lower()


DataRoot = Annotated[
    Path | None,
    typer.Option(
        help="Folder with raw data (read-only). Default: CANET_DATA_ROOT, then the cache.",
        callback=_existing,
    ),
]
TaskName = Annotated[
    str,
    typer.Argument(
        metavar="TASK|STORE",
        help="Name of a task; see `canet datasets`. Or a graph store; see `canet convert`.",
        callback=_task_name,
    ),
]
MethodName = Annotated[
    str, typer.Option(help="Name of a method; see `canet methods`.", callback=_lower)
]
BackboneName = Annotated[
    str | None,
    typer.Option(
        help="Name of a backbone; see `canet backbones`. Default: gcn. auto chooses it itself.",
        callback=_lower,
    ),
]
DataSeed = Annotated[
    int, typer.Option(min=0, max=MAX_SEED, help="Seed of the splits and the generated features.")
]
Protocol = Annotated[
    str | None,
    typer.Option(help="Which nodes train and test; see `canet datasets NAME`. Default: the first."),
]
GeneratorName = Annotated[
    str,
    typer.Option(
        help="How the spurious columns are generated: shared (as in the paper), redrawn (another "
        "label network in each domain) or resampled (also other nodes)."
    ),
]
Features = Annotated[
    str,
    typer.Option(
        help="original; structural: computed from the graph (arxiv, elliptic); multi-hot: rows are "
        "not normalised (twitch)."
    ),
]
Inductive = Annotated[
    bool,
    typer.Option("--inductive", help="Remove the test nodes under shift from the training graph."),
]
Jobs = Annotated[
    int, typer.Option(min=1, max=MAX_JOBS, help="Number of worker processes; they can share a GPU.")
]
Threads = Annotated[
    int,
    typer.Option(
        min=1, max=MAX_JOBS, help="CPU threads per run. The last digits of results depend on it."
    ),
]
RayAddress = Annotated[
    str | None,
    typer.Option(help="Train on a Ray cluster: its address, or auto for a running cluster."),
]
GraphPath = Annotated[
    Path,
    typer.Argument(
        metavar="GRAPH",
        help="Folder with nodes.csv (id, features, label) and edges.csv (source, target), a .npz "
        "or PyG .pt file, or a graph store.",
    ),
]
ModelPath = Annotated[
    Path, typer.Argument(metavar="MODEL", help="Model folder written by `canet fit --out`.")
]
LabelColumn = Annotated[
    str | None,
    typer.Option(metavar="COL", help="Column with the class of each node; empty cell: no label."),
]
KnownLabelColumn = Annotated[
    str | None,
    typer.Option("--label", metavar="COL", help="Column with the class. Default: as in training."),
]
KnownIdColumn = Annotated[
    str | None,
    typer.Option("--id", metavar="COL", help="Column with the node ids. Default: as in training."),
]
SplitColumn = Annotated[
    str | None,
    typer.Option(metavar="COL", help="Column with train, valid or test. Default: split."),
]
EnvironmentColumn = Annotated[
    str | None,
    typer.Option(metavar="COL", help="Column with environments, such as sites or years."),
]
TimeColumn = Annotated[
    str | None,
    typer.Option(metavar="COL", help="Column with times; the latest nodes are for validation."),
]
Nodes = Annotated[
    str | None,
    typer.Option(
        metavar="FILE|split=NAME", help="Only the nodes whose ids are in a file, or of a split."
    ),
]
Undirected = Annotated[
    bool | None,
    typer.Option("--undirected/--directed", help="Read each edge in both directions, or as given."),
]
MetricName = Annotated[
    str | None,
    typer.Option(
        help="accuracy (default), macro_f1; for two classes roc_auc or average_precision."
    ),
]
SampleWeightColumn = Annotated[
    str | None,
    typer.Option(metavar="COL", help="Column with the weight of each node in training."),
]
WeightColumn = Annotated[
    str | None,
    typer.Option(metavar="COL", help="Column of the edges with weights ≥ 0. Default: weight."),
]
SourceColumn = Annotated[
    str | None,
    typer.Option(
        "--source", metavar="COL", help="Column of the edges. Default: source, src or from."
    ),
]
TargetColumn = Annotated[
    str | None,
    typer.Option(
        "--target", metavar="COL", help="Column of the edges. Default: target, dst or to."
    ),
]
Without = Annotated[
    list[str] | None,
    typer.Option(metavar="COL", help="Leave a column out; repeat the option for several."),
]
Fill = Annotated[
    str,
    typer.Option(help="What fills empty numbers: the mean, median or most_frequent value."),
]
IdColumn = Annotated[
    str | None, typer.Option("--id", metavar="COL", help="Column with the node ids. Default: id.")
]
Assignments = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="KEY=VALUE", help="Change a setting; see `canet methods NAME`."),
]
Epochs = Annotated[
    int | None,
    typer.Option(min=1, max=MAX_NUMBER, help="Number of epochs. Default: that of the method."),
]
SettingsFile = Annotated[
    Path | None,
    typer.Option("--settings", help="JSON file with settings, such as best.json of a search."),
]
LogFolder = Annotated[
    Path | None,
    typer.Option("--log", metavar="DIR", help="Folder for TensorBoard event files."),
]
Quiet = Annotated[bool, typer.Option("--quiet", help="Print no progress and no tables.")]
Json = Annotated[bool, typer.Option("--json", help="Print only a JSON object.")]
Device = Annotated[
    str, typer.Option(help="auto (a GPU if there is one), cpu, cuda, or cuda:1 for the second GPU.")
]


def names(text: str | None) -> tuple[str, ...]:
    """`"erm, canet"` → `("erm", "canet")`."""
    return tuple(name.strip().lower() for name in (text or "").split(",") if name.strip())


def protocol_of(task: str, protocol: str | None) -> str:
    """Return the protocol, by default the first of the task."""
    from canet.data.benchmarks.catalog import get_dataset, is_store_path

    if is_store_path(task):
        from canet.data.store_task import PROTOCOL

        return PROTOCOL
    return get_dataset(task).protocols[0] if protocol is None else protocol


def backbone_of(method: str, backbone: str | None) -> str:
    """Return the name of the backbone, by default gcn; `auto` takes none."""
    from canet.methods import Auto, get_backbone

    if method != Auto.name:
        get_backbone(backbone or "gcn")
        return backbone or "gcn"
    if backbone is not None:
        raise CanetError(
            "method auto chooses the backbone: leave out --backbone, or pass a --method"
        )
    return Auto.name


def graph_task(
    graph: Path,
    roles: tuple[str | None, ...],
    without: list[str] | None,
    fill: str,
    undirected: bool | None,
    metric: str | None,
) -> Any:
    """Read a graph, and return the task of comparing models on it."""
    from canet.data.graph_files import ReadOptions, Roles, read_columns
    from canet.data.task_file import TEST, comparison_task
    from canet.data.user_graph import warn_one_way

    metric = metric or "accuracy"
    chosen = ReadOptions(Roles(*roles), tuple(without or ()), fill)  # type: ignore[arg-type]
    data = read_columns(graph, chosen)
    task = comparison_task(data, metric, bool(undirected))
    if data.get("encoding") is not None and data.encoding.roles.split is None:
        # Means and categories are computed without the test nodes, which are known only now.
        chosen = replace(chosen, held_out=task.test_ood[TEST].numpy())
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", InputWarning)  # they were shown above
            task = comparison_task(read_columns(graph, chosen), metric, bool(undirected))
    if undirected is None:
        warn_one_way(task.data.edge_index)
    return task


def changed_settings(
    assignments: list[str] | None, file: Path | None, epochs: int | None
) -> dict[str, Any]:
    """Return the changed settings: from a file, then `--set` and `--epochs`."""
    from canet.presets import read_settings
    from canet.settings import parse_assignments

    changes: dict[str, Any] = read_settings(file) if file else {}
    assigned = parse_assignments(assignments or [])
    if epochs is not None and "epochs" in assigned:
        raise CanetError("--epochs and --set epochs=... are the same setting: pass one of them")
    return changes | assigned | ({} if epochs is None else {"epochs": epochs})
