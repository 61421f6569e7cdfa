"""Options that several commands share, and groups of options that a command takes as one object."""

from __future__ import annotations

import inspect
import json
import os
from collections.abc import Callable
from dataclasses import MISSING, Field, asdict, dataclass, field, fields, is_dataclass
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeVar, get_type_hints

import typer

from canet.errors import CanetError
from canet.settings import MAX_NUMBER
from canet.util.seeds import MAX_SEED

if TYPE_CHECKING:
    from canet.data.graph_files import ReadOptions
    from canet.methods.base import ModelSettings
    from canet.store import RunConfig

T = TypeVar("T")
MAX_SEEDS = 1000
MAX_JOBS = 1024
MAX_TRIALS = 100_000
MAX_REPEATS = 1000  # larger numbers are typing errors: they would take years or all memory


def out(help: str, **more: Any) -> Any:
    """Return the option for the output of a command."""
    return typer.Option("--out", "-o", help=help, **more)


def option(default: object, help: str, *names: str, **more: Any) -> Any:
    """Return the default of a field or parameter that `option_groups` turns into an option."""
    return field(default=default, metadata={"option": typer.Option(*names, help=help, **more)})


def option_groups(command: Callable[..., None]) -> Callable[..., None]:
    """Let a command take dataclasses: typer sees their fields as options.

    The command receives one object for each group. Fields and parameters may be an `option`.
    """
    hints: dict[str, Any] = get_type_hints(command, include_extras=True)
    groups: dict[str, Any] = {}
    parameters = []
    for name, parameter in inspect.signature(command).parameters.items():
        if is_dataclass(hint := hints[name]):
            groups[name] = hint
            types = get_type_hints(groups[name], include_extras=True)
            parameters += [_parameter(one.name, types[one.name], one) for one in fields(hint)]
        else:
            parameters.append(_parameter(name, hint, parameter.default))

    @wraps(command)
    def run(**values: object) -> None:
        for name, group in groups.items():
            values[name] = group(**{one.name: values.pop(one.name) for one in fields(group)})
        command(**values)

    run.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    run.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    return run


def _parameter(name: str, hint: object, default: object) -> inspect.Parameter:
    """Return a parameter as typer reads it; `default` may be a field."""
    if isinstance(default, Field):
        if "option" in default.metadata:
            hint = Annotated[hint, default.metadata["option"]]
        default = inspect.Parameter.empty if default.default is MISSING else default.default
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=hint)


def _existing(data_root: Path | None) -> Path | None:
    """Reject a missing folder even if the task would not read it."""
    from canet.data.benchmarks.files import search_roots

    if data_root is not None:
        search_roots(data_root)
    return data_root


def _task_name(name: str) -> str:
    """Return the name of a task in lower case, or the relative path of a graph store."""
    from canet.data import DATASETS

    path = Path(name)
    if name.lower() in DATASETS or not (os.sep in name or path.suffix or path.exists()):
        return name.lower()
    from canet.data.graph_store import is_graph_store

    if not is_graph_store(path):
        raise CanetError(
            f"'{name}' is neither a task nor a graph store: train on a graph with canet fit, or "
            "write it as a graph store with canet convert"
        )
    relative = os.path.relpath(path)
    return relative if os.sep in relative else f"{os.curdir}{os.sep}{relative}"


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
    str,
    typer.Option(help="Name of a method; see `canet methods`.", metavar="NAME", parser=str.lower),
]
BackboneName = Annotated[
    str | None,
    typer.Option(
        help="Name of a backbone; see `canet backbones`. Default: gcn. auto chooses it itself.",
        metavar="NAME",
        parser=str.lower,
    ),
]
Jobs = Annotated[
    int, typer.Option(min=1, max=MAX_JOBS, help="Number of worker processes; they can share a GPU.")
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
Nodes = Annotated[
    str | None,
    typer.Option(
        metavar="FILE|split=NAME", help="Only these nodes: a file of ids, one per line, or a split."
    ),
]
Undirected = Annotated[
    bool | None,
    typer.Option("--undirected/--directed", help="Read each edge in both directions, or as given."),
]
MetricName = Annotated[
    str | None,
    typer.Option(
        help="accuracy (default) or macro_f1; for two classes also roc_auc or average_precision."
    ),
]
Epochs = Annotated[
    int | None,
    typer.Option(min=1, max=MAX_NUMBER, help="Number of epochs. Default: that of the method."),
]
Quiet = Annotated[bool, typer.Option("--quiet", help="Print no progress and no tables.")]
Json = Annotated[bool, typer.Option("--json", help="Print only a JSON object.")]
Device = Annotated[
    str, typer.Option(help="auto (a GPU if there is one), cpu, cuda, or cuda:1 for the second GPU.")
]
Decimal = Annotated[str | None, typer.Option(help="Decimal mark: . or , (or as in training).")]
Separator = Annotated[str | None, typer.Option(help="Separator of CSV files (or as in training).")]


def _column(help: str, *names: str) -> Any:
    return option(None, help, *names, metavar="COL")


@dataclass(frozen=True)
class ColumnOptions:
    """How to read the columns of a graph; the fields are arguments of `canet.read_graph`."""

    label: str | None = _column("Column with the class of each node; empty cell: no label.")
    split: str | None = _column("Column with train, valid or test. Default: split.")
    environment: str | None = _column("Column with environments, such as sites or years.")
    time: str | None = _column("Column with times; the latest nodes are for validation.")
    sample_weight: str | None = _column("Column with the weight of each node in training.")
    id: str | None = _column("Column with the node ids. Default: id.")
    weight: str | None = _column("Column of the edges with weights ≥ 0. Default: weight.")
    source_column: str | None = _column(
        "Column with the start of each edge. Default: source, src or from.", "--source"
    )
    target_column: str | None = _column(
        "Column with the end of each edge. Default: target, dst or to.", "--target"
    )
    without: list[str] | None = _column(
        "Column to leave out; repeat the option for several. For arrays, column numbers."
    )
    fill: str = option("mean", "Fill for empty cells of numbers: mean, median or most_frequent.")
    decimal: Decimal = None
    sep: Separator = None

    @property
    def arguments(self) -> dict[str, Any]:
        return asdict(self) | {"without": self.without or ()}

    @property
    def read_options(self) -> ReadOptions:
        from canet.data.graph_files import ReadOptions

        return ReadOptions.of(**self.arguments)

    @property
    def words(self) -> list[str]:
        """The options as words of a command."""
        words = []
        for column in fields(self):
            flag = f"--{column.name.removesuffix('_column').replace('_', '-')}"
            if (value := getattr(self, column.name)) != column.default:
                for one in value if isinstance(value, list) else [value]:
                    words += [flag, one]
        return words


@dataclass(frozen=True)
class KnownColumnOptions:
    """Columns of a graph that a saved model reads."""

    label: str | None = _column("Column with the class. Default: as in training.")
    id: str | None = _column("Column with the node ids. Default: as in training.")
    decimal: Decimal = None
    sep: Separator = None


@dataclass(frozen=True)
class TaskOptions:
    """The variant of a benchmark task."""

    data_seed: int = option(
        0, "Seed of the splits and the generated features.", min=0, max=MAX_SEED
    )
    protocol: str | None = option(
        None, "Choice of training and test nodes; see `canet datasets NAME`. Default: the first."
    )
    features: str = option(
        "original",
        "original; structural: computed from the graph (arxiv, elliptic); multi-hot: rows are not "
        "normalised (twitch).",
    )
    inductive: bool = option(
        False, "Remove the test nodes under shift from the training graph.", "--inductive"
    )
    generator: str = option(
        "shared",
        "How the spurious columns are generated: shared (as in the paper), redrawn (another label "
        "network in each domain) or resampled (also other nodes).",
    )

    def config(self, task: str, method: str, backbone: str, settings: ModelSettings) -> RunConfig:
        """Return the configuration of a run with seed 0; by default the protocol is the first."""
        from canet.data.benchmarks.catalog import get_dataset, is_store_path
        from canet.data.benchmarks.dataset import STORE_PROTOCOL
        from canet.store import RunConfig

        if is_store_path(task):
            protocol = STORE_PROTOCOL
        else:
            protocol = self.protocol or get_dataset(task).protocols[0]
        return RunConfig(
            **asdict(self) | {"protocol": protocol},
            task=task,
            method=method,
            backbone=backbone,
            settings=asdict(settings),
            seed=0,
        )


@dataclass(frozen=True)
class SettingsOptions:
    """Settings of a method that differ from its defaults."""

    epochs: Epochs = None
    set: list[str] | None = option(
        None, "Change a setting; see `canet methods NAME`.", metavar="KEY=VALUE"
    )
    settings: Path | None = option(None, "JSON file with settings, such as best.json of a search.")

    @property
    def changes(self) -> dict[str, Any]:
        """The changed settings: from a file, then `--set` and `--epochs`."""
        from canet.defaults import read_settings
        from canet.settings import parse_assignments

        changes: dict[str, Any] = read_settings(self.settings) if self.settings else {}
        assigned = parse_assignments(self.set or [])
        if self.epochs is not None and "epochs" in assigned:
            raise CanetError("--epochs and --set epochs=... are the same setting: pass one of them")
        return changes | assigned | ({} if self.epochs is None else {"epochs": self.epochs})


@dataclass(frozen=True)
class OutputOptions:
    """What a command prints."""

    quiet: Quiet = False
    json: Json = False

    @property
    def silent(self) -> bool:
        """Whether to print no progress."""
        return self.quiet or self.json

    def show(self, content: T, show: Callable[[T], None]) -> None:
        """Print the content as JSON, or call `show`; with `--quiet` print nothing."""
        if self.json:
            print(json.dumps(content, indent=2))
        elif not self.quiet:
            show(content)


def names(text: str | None) -> tuple[str, ...]:
    """`"erm, canet"` → `("erm", "canet")`."""
    return tuple(name.strip().lower() for name in (text or "").split(",") if name.strip())
