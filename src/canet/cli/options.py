"""Options that several commands share."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from canet.errors import CanetError
from canet.settings import MAX_NUMBER
from canet.util.seeds import MAX_SEED

MAX_SEEDS = 1000
MAX_JOBS = 1024
MAX_TRIALS = 100_000
MAX_REPEATS = 1000
"""Larger numbers are typing errors: they would take years, or all memory."""


def _existing(data_root: Path | None) -> Path | None:
    """Reject a missing folder even if the task would not read it."""
    from canet.data.benchmarks.files import search_roots

    if data_root is not None:
        search_roots(data_root)
    return data_root


def not_a_folder(path: Path | None) -> Path | None:
    """Reject a folder in place of the file that a command writes."""
    if path is not None and path.is_dir():
        raise CanetError(f"'{path}' is a folder: name the file to write")
    return path


DataRoot = Annotated[
    Path | None,
    typer.Option(
        help="Folder with raw data, only read. Default: CANET_DATA_ROOT, then the cache.",
        callback=_existing,
    ),
]
TaskName = Annotated[str, typer.Argument(help="Name of a task, see `canet datasets`.")]
MethodName = Annotated[str, typer.Option(help="Name of a method, see `canet methods`.")]
BackboneName = Annotated[
    str | None,
    typer.Option(help="Name of a backbone, see `canet backbones`. Default: gcn; auto chooses it."),
]
DataSeed = Annotated[
    int, typer.Option(min=0, max=MAX_SEED, help="Seed of splits and generated features.")
]
Protocol = Annotated[
    str | None,
    typer.Option(
        help="What to train and to test on; `canet datasets NAME` lists them. Default: the first."
    ),
]
GeneratorName = Annotated[
    str,
    typer.Option(
        help="Spurious columns: shared, the paper's; redrawn, another label network for each "
        "domain; resampled, other nodes, too."
    ),
]
Features = Annotated[
    str,
    typer.Option(
        help="structural: computed from the graph alone (arxiv, elliptic); multi-hot: rows not "
        "normalised (twitch)."
    ),
]
Inductive = Annotated[
    bool, typer.Option("--inductive", help="Hide out-of-distribution nodes from training.")
]
Jobs = Annotated[int, typer.Option(min=1, max=MAX_JOBS, help="Worker processes, also on one GPU.")]
Threads = Annotated[
    int,
    typer.Option(min=1, max=MAX_JOBS, help="CPU threads of a run; results depend on them."),
]
RayAddress = Annotated[
    str | None,
    typer.Option(help="Train on a Ray cluster: its address, or auto for the one that runs here."),
]
GraphPath = Annotated[
    Path,
    typer.Argument(
        metavar="GRAPH",
        help="Folder with nodes and edges as .csv or .parquet, a .npz, or a .pt of a PyG Data.",
    ),
]
ModelPath = Annotated[
    Path, typer.Argument(metavar="MODEL", help="Folder that `canet fit --out` named.")
]
LabelColumn = Annotated[
    str | None, typer.Option(metavar="COL", help="Column of classes; empty cells are unlabelled.")
]
SplitColumn = Annotated[
    str | None, typer.Option(metavar="COL", help="Column of train, valid, test. Default: split.")
]
EnvironmentColumn = Annotated[
    str | None, typer.Option(metavar="COL", help="Column with the environment of each node.")
]
TimeColumn = Annotated[
    str | None, typer.Option(metavar="COL", help="Column of times; the latest part validates.")
]
IdColumn = Annotated[
    str | None, typer.Option("--id", metavar="COL", help="Column of node ids. Default: id.")
]
Assignments = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="KEY=VALUE", help="Override a setting, see `canet methods`."),
]
Epochs = Annotated[
    int | None,
    typer.Option(min=1, max=MAX_NUMBER, help="Epochs of each run. Default: the method's."),
]
SettingsFile = Annotated[
    Path | None,
    typer.Option("--settings", help="File with settings, such as best.json of a search."),
]
Quiet = Annotated[bool, typer.Option("--quiet", help="No progress and no tables.")]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON object and nothing else.")]
Device = Annotated[
    Literal["auto", "cpu", "cuda"], typer.Option(help="Where to compute; auto prefers a GPU.")
]


def names(text: str | None) -> tuple[str, ...]:
    """`"erm, canet"` → `("erm", "canet")`."""
    return tuple(name.strip() for name in (text or "").split(",") if name.strip())


def protocol_of(task: str, protocol: str | None) -> str:
    """The protocol that a command names, or the first of its task."""
    from canet.data.benchmarks.catalog import get_dataset

    return get_dataset(task).protocols[0] if protocol is None else protocol


def backbone_of(method: str, backbone: str | None) -> str:
    """The backbone that a command names for a method, or what it is without one."""
    from canet.methods import Auto, get_backbone

    if method != Auto.name:
        get_backbone(backbone or "gcn")
        return backbone or "gcn"
    if backbone is not None:
        raise CanetError("method auto chooses the backbone: leave out --backbone, or --method auto")
    return Auto.name


def changed_settings(
    assignments: list[str] | None, file: Path | None, epochs: int | None
) -> dict[str, Any]:
    """Settings by name that a command changes: those of a file, then `--set`, then `--epochs`."""
    from canet.presets import read_settings
    from canet.settings import parse_assignments

    changes: dict[str, Any] = read_settings(file) if file else {}
    changes |= parse_assignments(assignments or [])
    return changes if epochs is None else changes | {"epochs": epochs}
