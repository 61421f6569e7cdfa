"""One training: `canet demo`, `train` and `evaluate`."""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from canet.cli.app import app
from canet.cli.options import (
    MOST_JOBS,
    MOST_SEEDS,
    Assignments,
    BackboneName,
    DataRoot,
    DataSeed,
    Device,
    DeviceOption,
    Epochs,
    Features,
    GeneratorName,
    Inductive,
    Json,
    MethodName,
    Protocol,
    Quiet,
    RayAddress,
    SettingsFile,
    TaskName,
    changed_settings,
    run_config,
)
from canet.data import GENERATORS
from canet.errors import CanetError, listed

if TYPE_CHECKING:
    from canet.runs import FailedJob


@app.command()
def demo(
    out: Annotated[Path, typer.Option(help="Folder for runs, table and picture.")] = Path("demo"),
    device: DeviceOption = Device.auto,
    quiet: Quiet = False,
) -> None:
    """CaNet compared with a plain GCN on the embedded data: about a minute on two cores."""
    from canet.cli.demonstration import run_demo

    run_demo(out, device.value, quiet)


@app.command()
def train(
    task: TaskName,
    method: MethodName = "canet",
    backbone: BackboneName = "gcn",
    seeds: Annotated[
        int, typer.Option(min=1, max=MOST_SEEDS, help="Number of runs, with seeds 0, 1, …")
    ] = 1,
    data_seed: DataSeed = 0,
    protocol: Protocol = "paper",
    features: Features = None,
    inductive: Inductive = False,
    generator: GeneratorName = "shared",
    epochs: Epochs = None,
    device: DeviceOption = Device.auto,
    data_root: DataRoot = None,
    out: Annotated[
        Path, typer.Option(help="Folder for runs: each is in NAME/seed-S below it.")
    ] = Path("runs"),
    set_: Assignments = None,
    settings_file: SettingsFile = None,
    ood_curves: Annotated[
        bool, typer.Option("--ood-curves", help="Also score every split at every epoch.")
    ] = False,
    jobs: Annotated[
        int, typer.Option(min=1, max=MOST_JOBS, help="Worker processes, also on one GPU.")
    ] = 1,
    ray: RayAddress = None,
    quiet: Quiet = False,
    as_json: Json = False,
) -> None:
    """Train a method on a task with its published settings, and score it under shift."""
    from canet.data.metrics import METRIC_NAMES
    from canet.presets import preset
    from canet.settings import override
    from canet.util.console import print_table, summary_rows

    changes = changed_settings(set_, settings_file, epochs)
    settings = override(preset(task, method, backbone), changes)

    from canet.methods import check_backbone
    from canet.runs import job_folder, run_jobs
    from canet.runs.evaluate import load_task_of
    from canet.store.summary import Scored, summarise
    from canet.training.trainer import pick_device

    check_backbone(backbone)
    pick_device(device.value)
    base = run_config(
        task, method, backbone, settings, data_seed, protocol, features, inductive, generator
    )
    configs = [replace(base, seed=seed, ood_curves=ood_curves) for seed in range(seeds)]
    loaded = load_task_of(base, data_root)
    places = [job_folder(out, config) for config in configs]
    finished = sum(place.finished for place in places)
    failed = run_jobs(
        configs, out, jobs, device.value, data_root, True, quiet or as_json, ray, loaded
    )
    if failed:
        raise _failure(failed, seeds)
    runs = [Scored(place.read_config(), place.read_result()) for place in places]
    summary = summarise(runs, loaded.metric)
    if as_json:
        print(json.dumps(summary, indent=2))
    elif not quiet:
        title = f"{task} ({_shift(summary)}, {loaded.features} features), {method}-{backbone}"
        column = f"{METRIC_NAMES[loaded.metric]} %, {summary['selection']} of {seeds} run(s)"
        print_table(title, ["split", column], summary_rows(summary))
        print(f"{summary['seconds_per_epoch'] * 1000:.1f} ms per epoch on {summary['device']}")
        if finished:
            print(f"{finished} of {seeds} run(s) had been trained before and were only read.")
        folder = places[0].path.parent
        again = ["canet", "evaluate", str(folder)]
        again += ["--data-root", str(data_root)] if data_root else []
        print(f"Kept in {folder}. Scores again: {shlex.join(again)}")


@app.command()
def evaluate(
    run: Annotated[Path, typer.Argument(help="Folder of a run, or of several.")],
    device: DeviceOption = Device.auto,
    data_root: DataRoot = None,
    as_json: Json = False,
) -> None:
    """Score finished runs again from their saved weights; fail where a score is another one."""
    from canet.data.metrics import METRIC_NAMES
    from canet.runs.evaluate import evaluate_runs
    from canet.util.console import print_table, summary_rows

    summaries = evaluate_runs(run, device.value, data_root)
    if as_json:
        print(json.dumps(summaries[0] if len(summaries) == 1 else summaries, indent=2))
    for summary in [] if as_json else summaries:
        title = (
            f"{summary['task']} ({_shift(summary)}, data seed {summary['data_seed']}, "
            f"{summary['features']} features), {summary['method']}-{summary['backbone']}"
        )
        rule = f"{summary['selection']} of {len(summary['seeds'])} run(s)"
        column = f"{METRIC_NAMES[summary['metric']]} %, {rule}"
        print_table(title, ["split", column], summary_rows(summary))
    if differing := [line for summary in summaries for line in summary.get("differences", [])]:
        raise CanetError(
            f"scores are not those of training: {listed(differing)}; the code, the machine or the "
            "data changed, or the weights are damaged"
        )


def _failure(failed: list[FailedJob], seeds: int) -> Exception:
    """One line for what a user can fix; the traceback of a bug of ours."""
    lines = failed[0].lines
    if len(lines) > 1:
        return RuntimeError("\n".join(lines))
    return CanetError(f"{len(failed)} of {seeds} run(s) failed: {lines[0]}")


def _shift(summary: Mapping[str, Any]) -> str:
    """The protocol, and the generator where it is not the paper's: `disjoint, redrawn`."""
    generator = summary["generator"]
    named = "" if generator == GENERATORS[0] else f", {generator}"
    return f"{summary['protocol']}{named}"
