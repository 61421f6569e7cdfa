"""One training: `canet demo`, `train` and `evaluate`."""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from canet.cli.app import app
from canet.cli.options import (
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
    SettingsFile,
    TaskName,
    changed_settings,
)
from canet.data import GENERATORS
from canet.errors import CanetError, listed

if TYPE_CHECKING:
    from canet.data import ShiftTask
    from canet.store import RunConfig
    from canet.store.summary import Scored


@app.command()
def demo(
    out: Annotated[Path, typer.Option(help="Folder for runs, table and picture.")] = Path("demo"),
    device: DeviceOption = Device.auto,
    quiet: Quiet = False,
) -> None:
    """CaNet beside a plain GCN on the embedded data: about a minute on two cores."""
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
        Path | None, typer.Option(help="Folder for the runs. Default: one below runs/.")
    ] = None,
    set_: Assignments = None,
    settings_file: SettingsFile = None,
    ood_curves: Annotated[
        bool, typer.Option("--ood-curves", help="Also score every split at every epoch.")
    ] = False,
    quiet: Quiet = False,
    as_json: Json = False,
) -> None:
    """Train a method on a task with its published settings, and score it under shift."""
    from canet.data.metrics import METRIC_NAMES
    from canet.presets import preset
    from canet.settings import override
    from canet.util.console import Reporter, print_table, summary_rows

    changes = changed_settings(set_, settings_file, epochs)
    settings = override(preset(task, method, backbone), changes)

    from canet.data import load_task
    from canet.methods import check_backbone
    from canet.store import RunFolder
    from canet.store.summary import Scored, summarise
    from canet.training import Trainer
    from canet.training.trainer import pick_device

    check_backbone(backbone)
    pick_device(device.value)
    loaded = load_task(task, data_root, data_seed, protocol, features, inductive, generator)
    trainer = Trainer(loaded, method, backbone, settings, device.value)
    folder = out or Path("runs") / trainer.config(ood_curves=ood_curves).name
    configs = [trainer.config(seed, ood_curves) for seed in range(seeds)]
    _check_folder(folder, configs, loaded)
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
        title = f"{task} ({_shift(summary)}, {loaded.features} features), {method}-{backbone}"
        column = f"{METRIC_NAMES[loaded.metric]} %, {summary['selection']} of {seeds} run(s)"
        print_table(title, ["split", column], summary_rows(summary))
        print(f"{summary['seconds_per_epoch'] * 1000:.1f} ms per epoch on {summary['device']}")
        if finished:
            print(f"{finished} of {seeds} run(s) had been trained before and were only read.")
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


def _check_folder(folder: Path, configs: list[RunConfig], task: ShiftTask) -> None:
    """Refuse a folder with other runs, or on other data, before the first of ours is trained."""
    from canet.store.run_folder import CONFIG, RunFolder

    if (folder / CONFIG).exists():
        raise CanetError(f"'{folder}' is itself a run: choose another folder for --out")
    for config in configs:
        place = RunFolder(folder / f"seed-{config.seed}")
        if (place.path / CONFIG).exists():
            place.begin(config, task.digest)


def _shift(summary: Mapping[str, Any]) -> str:
    """The protocol, and the generator where it is not the paper's: `disjoint, redrawn`."""
    generator = summary["generator"]
    named = "" if generator == GENERATORS[0] else f", {generator}"
    return f"{summary['protocol']}{named}"
