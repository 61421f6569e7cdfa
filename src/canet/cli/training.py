"""Single runs: `canet demo`, `train` and `evaluate`."""

import json
import shlex
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import typer

from canet.cli import options
from canet.cli.app import app
from canet.data import GENERATORS
from canet.data.benchmarks.catalog import is_store_path
from canet.errors import CanetError, listed, warn_user


@app.command()
def demo(
    out: Annotated[Path, typer.Option(help="Folder for the runs and the picture.")] = Path("demo"),
    device: options.Device = "auto",
    quiet: options.Quiet = False,
) -> None:
    """Compare a plain GCN, CaNet and auto on a small built-in graph."""
    from canet.cli.demo import run_demo

    run_demo(out, device, quiet)


@app.command()
@options.option_groups
def train(
    task: options.TaskName,
    *,
    method: options.MethodName = "canet",
    backbone: options.BackboneName = None,
    seeds: int = options.option(
        1, "Number of runs, with seeds 0, 1, ...", min=1, max=options.MAX_SEEDS
    ),
    variant: options.TaskOptions,
    settings: options.SettingsOptions,
    device: options.Device = "auto",
    data_root: options.DataRoot = None,
    out: Path = options.option(Path("runs"), "Folder for the runs; a run is in NAME/seed-S."),
    ood_curves: bool = options.option(False, "Score every split at every epoch.", "--ood-curves"),
    threads: int = options.option(
        1,
        "CPU threads per run. The last digits of results depend on it.",
        min=1,
        max=options.MAX_JOBS,
    ),
    jobs: options.Jobs = 1,
    ray: options.RayAddress = None,
    output: options.OutputOptions,
) -> None:
    """Train a method on a benchmark task or a graph store.

    The settings of a task are the published ones, or those found by a search. The runs are for
    comparison: `canet fit` trains a model for `canet predict`. Several processes, started by
    torchrun or srun, train one model.
    """
    from canet.defaults import searched_instead, task_settings
    from canet.models import get_backbone_name
    from canet.settings import override

    if is_store_path(task) and replace(variant, data_seed=0) != options.TaskOptions():
        raise CanetError(
            "the splits and features of a graph store were chosen when it was written: leave out "
            "--protocol, --features, --inductive and --generator"
        )
    changes = settings.changes
    backbone = get_backbone_name(method, backbone)
    chosen = override(task_settings(task, method, backbone, features=variant.features), changes)
    other = searched_instead(task, method, backbone, variant.features)
    if other and not settings.settings:
        warn_user(
            f"{method}-{backbone} has its default settings, because the search for better ones on "
            f"{task} used {other} features: run `canet search` for {variant.features} features"
        )

    from canet.runs import job_folder, run_jobs
    from canet.runs.evaluate import load_task_of
    from canet.store.summary import ScoredRun, summarise
    from canet.util import distributed
    from canet.util.devices import pick_device

    pick_device(device)
    base = variant.config(task, method, backbone, chosen)
    base = replace(base, ood_curves=ood_curves, threads=threads)
    configs = [replace(base, seed=seed) for seed in range(seeds)]
    loaded = load_task_of(base, data_root)
    places = [job_folder(out, config) for config in configs]
    finished = sum(place.finished for place in places)
    failed = run_jobs(
        configs,
        out,
        jobs=jobs,
        device=device,
        data_root=data_root or (Path.cwd() if is_store_path(task) else None),
        retry=True,
        quiet=output.silent,
        ray=ray,
        task=loaded,
    )
    if failed:
        lines = failed[0].lines
        if len(lines) > 1:  # a bug, with its traceback
            raise RuntimeError("\n".join(lines))
        raise CanetError(f"{len(failed)} of {seeds} run(s) failed: {lines[0]}")
    if distributed.rank():
        return
    runs = [ScoredRun(place.read_config(), place.read_result()) for place in places]
    folder = places[0].path.parent

    def show(summary: dict[str, Any]) -> None:
        _show_scores(summary)
        time = f"{summary['seconds']:.1f} s"
        if summary["epochs"]:
            time = f"{summary['seconds_per_epoch'] * 1000:.1f} ms per epoch"
        print(f"{time} on {summary['device']}")
        if finished:
            print(f"{finished} of {seeds} run(s) were already finished and were only read.")
        again = ["canet", "evaluate", str(folder)]
        again += ["--data-root", str(data_root)] if data_root else []
        print(f"Runs: {folder}. To score them again: {shlex.join(again)}")

    output.show(summarise(runs, loaded.metric), show)


@app.command()
def evaluate(
    run: Annotated[Path, typer.Argument(help="Folder of one or more runs.")],
    device: options.Device = "auto",
    data_root: options.DataRoot = None,
    as_json: options.Json = False,
) -> None:
    """Score finished runs again, and compare with the stored scores."""
    from canet.runs.evaluate import evaluate_runs

    summaries = evaluate_runs(run, device, data_root)
    if as_json:
        print(json.dumps(summaries[0] if len(summaries) == 1 else summaries, indent=2))
    for summary in [] if as_json else summaries:
        _show_scores(summary)
    if differing := [line for summary in summaries for line in summary.get("differences", [])]:
        raise CanetError(
            f"the scores differ from the recorded ones ({listed(differing)}): the code, the data "
            "or the machine has changed since training"
        )


def _show_scores(summary: dict[str, Any]) -> None:
    """Print the scores of runs that differ only in their seed."""
    from canet.scoring.metrics import METRICS
    from canet.store.summary import summary_rows
    from canet.util.console import print_table

    shift, generator = summary["protocol"], summary["generator"]
    shift += "" if generator == GENERATORS[0] else f", {generator}"
    title = (
        f"{summary['task']} ({shift}, data seed {summary['data_seed']}, {summary['features']} "
        f"features), {'-'.join(dict.fromkeys([summary['method'], summary['backbone']]))}"
    )
    rule = "" if summary["selection"] == "none" else f"{summary['selection']} of "
    column = f"{METRICS[summary['metric']].label} %, {rule}{len(summary['seeds'])} run(s)"
    print_table(title, ["split", column], summary_rows(summary))
