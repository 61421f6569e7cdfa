"""The command line: a thin door to the package. Heavy imports happen inside the commands."""

from __future__ import annotations

import json
import shlex
import sys
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from canet.errors import CanetError
from canet.memory import keep_freed_memory

if TYPE_CHECKING:
    from canet.training import RunConfig
    from canet.training.summary import Scored

app = typer.Typer(
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)


ParserError: Any = typer.BadParameter.__mro__[2]  # the common base of the parser's complaints


LARGEST_SEED = 2**32 - 1
INTERRUPTED = 130
NO_MEMORY = ("out of memory", "allocate memory", "Storage size calculation overflowed")  # torch's


class Sampler(StrEnum):
    tpe = "tpe"
    random = "random"
    grid = "grid"


class Device(StrEnum):
    auto = "auto"
    cpu = "cpu"
    cuda = "cuda"


def _existing(data_root: Path | None) -> Path | None:
    """Refuse a folder that is not there even where the task would not read it."""
    from canet.data.raw import search_roots

    if data_root is not None:
        search_roots(data_root)
    return data_root


def _print_version(wanted: bool) -> None:
    if wanted:
        from canet import __version__

        print(f"canet {__version__}")
        raise typer.Exit


@app.callback()
def options(
    version: Annotated[
        bool,
        typer.Option(
            "--version", help="Print the version.", callback=_print_version, is_eager=True
        ),
    ] = False,
) -> None:
    """Graph neural networks that keep working after the world has shifted."""


DataRoot = Annotated[
    Path | None,
    typer.Option(
        help="Folder with raw data, only read. Default: CANET_DATA_ROOT, then the cache.",
        callback=_existing,
    ),
]
TaskName = Annotated[str, typer.Argument(help="Name of a task, see `canet datasets`.")]
MethodName = Annotated[str, typer.Option(help="Name of a method, see `canet methods`.")]
BackboneName = Annotated[str, typer.Option(help="Name of a backbone; see canet backbones.")]
DataSeed = Annotated[
    int, typer.Option(min=0, max=LARGEST_SEED, help="Seed of splits and made features.")
]
Protocol = Annotated[str, typer.Option(help="paper, or disjoint: no test node known.")]
Features = Annotated[
    str | None,
    typer.Option(
        help="structural: computed from the graph alone (arxiv, elliptic); multi-hot: rows not "
        "normalised (twitch)."
    ),
]
Inductive = Annotated[
    bool, typer.Option("--inductive", help="Hide out-of-distribution nodes from training.")
]
Quiet = Annotated[bool, typer.Option("--quiet", help="No progress and no tables.")]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON object and nothing else.")]
DeviceOption = Annotated[Device, typer.Option(help="Where to compute; auto prefers a GPU.")]


@app.command()
def demo(
    out: Annotated[Path, typer.Option(help="Folder for runs, table and picture.")] = Path("demo"),
    device: DeviceOption = Device.auto,
    quiet: Quiet = False,
) -> None:
    """CaNet beside a plain GCN on the embedded data: about a minute on two cores."""
    from canet.experiments.demo import run_demo

    run_demo(out, device.value, quiet)


@app.command()
def datasets(
    name: Annotated[str | None, typer.Argument(help="One task, with its splits and files.")] = None,
    data_root: DataRoot = None,
    as_json: Json = False,
) -> None:
    """What tasks there are, their statistics, and whether their files are present and intact."""
    from canet.console import as_content, show_task, show_tasks
    from canet.data import CATALOG, describe

    if name:
        description = describe(name, data_root)
        if as_json:
            print(json.dumps(as_content(description), indent=2))
        else:
            show_task(description)
        return
    descriptions = [describe(task, data_root) for task in CATALOG]
    if as_json:
        print(json.dumps({d.name: as_content(d) for d in descriptions}, indent=2))
    else:
        show_tasks(descriptions)


@app.command()
def methods(
    name: Annotated[str | None, typer.Argument(help="One method, with all its settings.")] = None,
    as_json: Json = False,
) -> None:
    """What methods there are, what each minimises, its hyper-parameters and its paper."""
    from canet.console import show_method, show_methods
    from canet.methods import METHODS, get_method
    from canet.settings import describe_settings

    chosen = [get_method(name)] if name else list(METHODS.values())
    if as_json:
        content = {
            method.name: {
                "summary": method.summary,
                "paper": method.paper,
                "needs_environments": method.needs_environments,
                "settings": describe_settings(method.settings_type),
            }
            for method in chosen
        }
        print(json.dumps(content, indent=2))
    elif name:
        show_method(chosen[0])
    else:
        show_methods(chosen)


@app.command()
def backbones(as_json: Json = False) -> None:
    """What backbones there are, for every method and as the branches of CaNet."""
    from canet.methods import BACKBONES

    if as_json:
        content = {b.name: {"label": b.label, "summary": b.summary} for b in BACKBONES.values()}
        print(json.dumps(content, indent=2))
        return
    width = max(map(len, BACKBONES))
    for backbone in BACKBONES.values():
        print(f"{backbone.name:<{width}}  {backbone.summary}")


@app.command()
def train(
    task: TaskName,
    method: MethodName = "canet",
    backbone: BackboneName = "gcn",
    seeds: Annotated[int, typer.Option(min=1, help="Number of runs, with seeds 0, 1, …")] = 1,
    data_seed: DataSeed = 0,
    protocol: Protocol = "paper",
    features: Features = None,
    inductive: Inductive = False,
    epochs: Annotated[int | None, typer.Option(min=1, help="Short for --set epochs=N.")] = None,
    device: DeviceOption = Device.auto,
    data_root: DataRoot = None,
    out: Annotated[
        Path | None, typer.Option(help="Folder for the runs. Default: one below runs/.")
    ] = None,
    set_: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="KEY=VALUE", help="Override a published setting."),
    ] = None,
    settings_file: Annotated[
        Path | None,
        typer.Option("--settings", help="File with settings, such as best.json of a search."),
    ] = None,
    ood_curves: Annotated[
        bool, typer.Option("--ood-curves", help="Also score every split at every epoch.")
    ] = False,
    quiet: Quiet = False,
    as_json: Json = False,
) -> None:
    """Train a method on a task with its published settings, and score it under shift."""
    from canet.console import METRIC_NAMES, Reporter, print_table, summary_rows
    from canet.experiments.presets import preset, read_settings
    from canet.settings import override, parse_assignments

    changes: dict[str, Any] = read_settings(settings_file) if settings_file else {}
    changes |= parse_assignments(set_ or [])
    if epochs is not None:
        changes["epochs"] = epochs
    settings = override(preset(task, method, backbone), changes)

    from canet.data import load_task
    from canet.methods import check_backbone
    from canet.training import RunFolder, Trainer
    from canet.training.summary import Scored, summarise
    from canet.training.trainer import pick_device

    check_backbone(backbone)
    pick_device(device.value)
    loaded = load_task(task, data_root, data_seed, protocol, features, inductive)
    trainer = Trainer(loaded, method, backbone, settings, device.value)
    folder = out or Path("runs") / trainer.config(ood_curves=ood_curves).name
    _check_folder(folder, [trainer.config(seed, ood_curves) for seed in range(seeds)])
    finished = sum(RunFolder(folder / f"seed-{seed}").finished for seed in range(seeds))
    groups = [list(range(seeds))] if trainer.together else [[seed] for seed in range(seeds)]
    runs: list[Scored] = []
    with Reporter(len(groups), quiet or as_json).showing() as reporter:
        for group in groups:
            which = f"seed {group[0]}" if len(group) == 1 else f"seeds {group[0]}-{group[-1]}"
            progress = reporter.next_run(f"{task} {method}-{backbone} {which}")
            folders = {seed: folder / f"seed-{seed}" for seed in group}
            trained = trainer.run_together(folders, ood_curves, progress)
            runs += [Scored(run.config, run.result) for run in trained]
    summary = summarise(runs, loaded.metric)
    if as_json:
        print(json.dumps(summary, indent=2))
    elif not quiet:
        title = f"{task} ({loaded.protocol}, {loaded.features} features), {method}-{backbone}"
        column = f"{METRIC_NAMES[loaded.metric]} %, {summary['selection']} of {seeds} run(s)"
        print_table(title, ["split", column], summary_rows(summary))
        print(f"{summary['seconds_per_epoch'] * 1000:.1f} ms per epoch on {summary['device']}")
        if finished:
            print(f"{finished} of {seeds} run(s) had been trained before and were only read.")
        again = ["canet", "evaluate", str(folder)]
        again += ["--data-root", str(data_root)] if data_root else []
        print(f"Kept in {folder}. Scores again: {shlex.join(again)}")


@app.command()
def search(
    task: TaskName,
    method: MethodName = "canet",
    backbone: BackboneName = "gcn",
    trials: Annotated[
        int, typer.Option(min=1, help="Trials in all, those of earlier calls included.")
    ] = 32,
    sampler: Annotated[Sampler, typer.Option(help="How settings are chosen.")] = Sampler.tpe,
    epochs: Annotated[
        int | None, typer.Option(min=1, help="Epochs of each run. Default: as in training.")
    ] = None,
    seeds: Annotated[
        int, typer.Option(min=1, help="Runs of each trial; their mean score counts.")
    ] = 1,
    data_seed: DataSeed = 0,
    protocol: Protocol = "paper",
    features: Features = None,
    inductive: Inductive = False,
    storage: Annotated[
        str | None,
        typer.Option(help="Journal file or SQL URL of the trials. Default: a file in --out."),
    ] = None,
    jobs: Annotated[int, typer.Option(min=1, help="Worker processes.")] = 1,
    device: DeviceOption = Device.auto,
    data_root: DataRoot = None,
    out: Annotated[
        Path | None, typer.Option(help="Folder of the search. Default: one below searches/.")
    ] = None,
    quiet: Quiet = False,
    as_json: Json = False,
) -> None:
    """Search a method's settings on validation data; the same command again goes on."""
    from dataclasses import asdict

    from canet.experiments.presets import unsearched
    from canet.experiments.study import Plan
    from canet.methods import check_backbone
    from canet.settings import override
    from canet.training import RunConfig

    check_backbone(backbone)
    settings = override(
        unsearched(task, method, backbone), {} if epochs is None else {"epochs": epochs}
    )
    base = RunConfig(
        task=task,
        protocol=protocol,
        data_seed=data_seed,
        features=features or "original",
        inductive=inductive,
        method=method,
        backbone=backbone,
        settings=asdict(settings),
        seed=0,
    )
    plan = Plan(base, sampler.value, seeds)

    from canet.experiments.search import run_search, show_search

    best = run_search(
        plan,
        trials,
        out or Path("searches") / plan.name,
        storage,
        jobs,
        device.value,
        data_root,
        quiet or as_json,
    )
    if as_json:
        print(json.dumps(best, indent=2))
    elif not quiet:
        show_search(best)


@app.command()
def reproduce(
    what: Annotated[
        str,
        typer.Argument(
            help="table1, table2, elliptic, ablation, sensitivity, weights, protocols, all; or "
            "backbones."
        ),
    ],
    out: Annotated[Path, typer.Option(help="Folder for runs, tables and figures.")],
    jobs: Annotated[int, typer.Option(min=1, help="Worker processes, also on one GPU.")] = 1,
    quick: Annotated[
        bool, typer.Option("--quick", help="For trying out: about two minutes on two cores.")
    ] = False,
    device: DeviceOption = Device.auto,
    methods: Annotated[
        str | None, typer.Option(help="Methods to compare, such as erm,canet.")
    ] = None,
    tasks: Annotated[str | None, typer.Option(help="Tasks to run, such as cora,pubmed.")] = None,
    retry: Annotated[bool, typer.Option("--retry", help="Run failed jobs again.")] = False,
    archive: Annotated[
        Path | None, typer.Option(help="Archive of runs that need not be made again.")
    ] = None,
    data_root: DataRoot = None,
    quiet: Quiet = False,
) -> None:
    """A table or figure of the paper: run its jobs, and set the results beside the published."""
    from canet.experiments.paper import Scope
    from canet.experiments.reproduce import reproduce as run

    scope = Scope(quick, _names(methods), _names(tasks), data_root)
    if run(what, out, scope, jobs, device.value, retry, archive, quiet):
        raise typer.Exit(1)


def _names(text: str | None) -> tuple[str, ...]:
    """`"erm, canet"` → `("erm", "canet")`."""
    return tuple(name.strip() for name in (text or "").split(",") if name.strip())


@app.command()
def evaluate(
    run: Annotated[Path, typer.Argument(help="Folder of a run, or of several.")],
    device: DeviceOption = Device.auto,
    data_root: DataRoot = None,
    as_json: Json = False,
) -> None:
    """Score finished runs again from their saved weights."""
    from canet.console import METRIC_NAMES, print_table, summary_rows
    from canet.experiments.evaluate import evaluate_runs

    summaries = evaluate_runs(run, device.value, data_root)
    if as_json:
        print(json.dumps(summaries[0] if len(summaries) == 1 else summaries, indent=2))
        return
    for summary in summaries:
        title = (
            f"{summary['task']} ({summary['protocol']}, data seed {summary['data_seed']}, "
            f"{summary['features']} features), {summary['method']}-{summary['backbone']}"
        )
        rule = f"{summary['selection']} of {len(summary['seeds'])} run(s)"
        column = f"{METRIC_NAMES[summary['metric']]} %, {rule}"
        print_table(title, ["split", column], summary_rows(summary))


@app.command()
def report(
    runs: Annotated[Path, typer.Argument(help="Folder of runs or of a reproduction, or archive.")],
    out: Annotated[
        Path | None,
        typer.Option("--out", "-o", help="The page. Default: report.html in RUNS, or beside it."),
    ] = None,
) -> None:
    """One self-contained page about finished runs: who wins, curves, figures, settings."""
    from canet.experiments.report import write_report

    target = out or (runs.parent if runs.is_file() else runs) / "report.html"
    write_report(runs, target)
    print(f"Report: {target}")


@app.command()
def archive(
    runs: Annotated[Path, typer.Argument(help="Folder of runs, or of a reproduction.")],
    out: Annotated[Path, typer.Option("--out", "-o", help="The file, such as runs.tar.xz.")],
) -> None:
    """One small file of all finished runs, without weights: what tables and reports need."""
    from canet.training import find_runs, write_archive

    places = find_runs(runs)
    write_archive(places, out)
    print(f"{len(places)} runs: {out}, {out.stat().st_size / 2**20:.1f} MB")


@app.command()
def bench(
    full: Annotated[
        bool, typer.Option("--full/--quick", help="All tasks and growth, or a few minutes' worth.")
    ] = False,
    tasks: Annotated[str | None, typer.Option(help="Only these tasks, such as cora,arxiv.")] = None,
    growth: Annotated[
        bool, typer.Option("--growth", help="Only how cost grows with the graph and the model.")
    ] = False,
    seconds: Annotated[
        float | None, typer.Option(min=0, help="About how long to time each contestant.")
    ] = None,
    device: DeviceOption = Device.auto,
    data_root: DataRoot = None,
    out: Annotated[
        Path, typer.Option(help="JSON file for the measurements; pictures go beside it.")
    ] = Path("bench.json"),
    quiet: Quiet = False,
) -> None:
    """Speed and memory of CaNet and ERM beside a plain implementation of the equations."""
    if growth and (full or tasks):
        raise CanetError("--growth measures nothing else: leave out --full and --tasks")
    command = ["canet", "bench", *(["--growth"] if growth else ["--full" if full else "--quick"])]
    command += ["--device", device.value]
    command += ["--tasks", tasks] if tasks else []
    command += ["--seconds", f"{seconds:g}"] if seconds is not None else []
    _benchmarks().run_bench(
        out,
        full,
        _names(tasks),
        growth,
        device.value,
        seconds,
        data_root,
        quiet,
        shlex.join(command),
    )


def _benchmarks() -> Any:
    """The harness: a part of the installed package, or a folder of a source checkout."""
    from importlib import import_module
    from importlib.util import find_spec

    if find_spec("canet.benchmarks"):
        return import_module("canet.benchmarks.harness")
    checkout = Path(__file__).parents[2]
    if not (checkout / "benchmarks" / "harness.py").exists():
        raise CanetError("the benchmarks are not part of this installation: run a source checkout")
    sys.path.insert(0, str(checkout))
    return import_module("benchmarks.harness")


def _check_folder(folder: Path, configs: list[RunConfig]) -> None:
    """Refuse a folder with other runs before the first of ours is trained."""
    from canet.training.checkpoint import CONFIG, RunFolder

    if (folder / CONFIG).exists():
        raise CanetError(f"'{folder}' is itself a run: choose another folder for --out")
    for config in configs:
        place = RunFolder(folder / f"seed-{config.seed}")
        if (place.path / CONFIG).exists():
            place.begin(config)


def main() -> None:
    """Run the command line; whatever a user can cause ends in one line and exit code 2."""
    keep_freed_memory()
    try:
        code = app(sys.argv[1:] or ["--help"], prog_name="canet", standalone_mode=False)
        if code == INTERRUPTED:  # how some versions of the parser tell of Ctrl-C
            raise KeyboardInterrupt
    except CanetError as error:
        code = _complain(str(error))
    except ParserError as error:
        code = _complain(error.format_message())
    except (typer.Abort, KeyboardInterrupt):
        code = _complain("interrupted; the same command goes on where it stopped", INTERRUPTED)
    except OSError as error:
        code = _complain(f"cannot read or write ({error}): check the folder, its rights and space")
    except RuntimeError as error:
        if not any(sign in str(error) for sign in NO_MEMORY):
            raise
        code = _complain(
            "not enough memory: lower hidden or num_layers, or choose another --device"
        )
    sys.exit(code or 0)


def _complain(message: str, code: int = 2) -> int:
    print(f"canet: {' '.join(message.split())}", file=sys.stderr)
    return code


if __name__ == "__main__":
    main()
