"""Your graph: `canet inspect` and `canet fit`."""

from __future__ import annotations

import json
import shlex
import shutil
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from canet.cli import options
from canet.cli.app import CommonFirst, app
from canet.errors import CanetError, check_name
from canet.util.seeds import MAX_SEED

if TYPE_CHECKING:
    from canet.estimator import NodeClassifier

CHECKPOINTS = ".checkpoints"
MAX_SECONDS = 10**7


@app.command()
@options.option_groups
def inspect(
    graph: options.GraphPath, *, columns: options.ColumnOptions, as_json: options.Json = False
) -> None:
    """Show what canet reads from your graph, and possible problems."""
    from canet.data.graph_files import inspect_graph
    from canet.util.console import print_table, print_text

    found = inspect_graph(graph, **columns.arguments)
    if as_json:
        print(json.dumps(found.to_json(), indent=2))
        return
    for line in found.lines():
        print_text(line)
    for table in found.tables():
        print_table(*table)


@app.command(cls=CommonFirst)
@options.option_groups
def fit(
    graph: options.GraphPath,
    *,
    out: Annotated[Path, options.out("Folder for the model.", metavar="MODEL")],
    overwrite: bool = options.option(
        False, "Replace a model that is already in the folder.", "--overwrite"
    ),
    columns: options.ColumnOptions,
    undirected: options.Undirected = None,
    warm_start: Path | None = options.option(
        None,
        "Continue the training of an earlier model, with its method and settings.",
        metavar="MODEL",
    ),
    method: options.MethodName = "auto",
    backbone: options.BackboneName = None,
    preset: str | None = options.option(
        None,
        "Models that auto compares: robust (default), fast (without networks), or names such "
        "as linear,erm-sage.",
    ),
    time_limit: float | None = options.option(
        None, "Seconds for the comparison of models by auto.", min=0, max=MAX_SECONDS
    ),
    settings: options.SettingsOptions,
    metric: options.MetricName = None,
    balanced: bool = options.option(False, "Give all classes the same total weight.", "--balanced"),
    seed: int = options.option(
        0, "Seed of training and of a random validation set.", min=0, max=MAX_SEED
    ),
    device: options.Device = "auto",
    jobs: options.Jobs = 1,
    ray: options.RayAddress = None,
    output: options.OutputOptions,
) -> None:
    """Train a model on your graph and save it.

    Use it with `canet predict` and `canet diagnose`. By default linear models, trees and networks
    are compared and averaged. On a terminal, Ctrl-C stops the comparison and keeps the models that
    are finished. After any other interruption, run the command again to continue.
    """
    from canet.defaults import changed
    from canet.models import get_backbone_name
    from canet.scoring.metrics import METRICS
    from canet.store.model_folder import check_target

    changes = settings.changes
    get_backbone_name(method, backbone)
    choice = {"preset": preset, "time_limit": time_limit}
    if warm_start is None:
        changed(method, changes | {n: v for n, v in choice.items() if v is not None})
    elif (method, balanced, preset, undirected, metric) != ("auto", False, None, None, None):
        raise CanetError(
            "--warm-start continues a model with its own method, preset, metric, weights and edges:"
            " leave out --method, --preset, --metric, --balanced and --undirected"
        )
    metric = metric or "accuracy"
    check_name("metric", metric, METRICS)
    check_target(out, overwrite)

    from canet.data.graph_files import read_columns
    from canet.estimator.classifier import NodeClassifier, load
    from canet.estimator.progress import fit_display
    from canet.util import distributed
    from canet.util.devices import pick_device
    from canet.util.locks import LOCK, exclusive_lock

    if distributed.world_size() > 1:
        raise CanetError("canet fit uses one process: start it without torchrun or srun")
    pick_device(device)
    earlier = None if warm_start is None else load(warm_start, device)
    model = earlier or NodeClassifier(
        method,
        backbone,
        metric=metric,
        class_weight="balanced" if balanced else None,
        undirected=undirected,
        preset=preset,
        time_limit=time_limit,
        device=device,
    )
    work = out / CHECKPOINTS
    model.set_params(
        keep_on_interrupt=sys.stderr.isatty(),
        n_jobs=jobs,
        ray=ray,
        checkpoints=work,
        random_state=seed,
        verbose=not output.silent,
        **changes,
    )
    if model.keep_on_interrupt and model.compares_models and not output.silent:
        print("Press Ctrl-C to stop and keep the models that are finished.", file=sys.stderr)
    try:
        with exclusive_lock(work), fit_display("reading", quiet=not model.verbose) as display:
            check_target(out, overwrite)  # again: another fit may have ended while this one waited
            chosen = columns.read_options
            encoding = None if earlier is None else earlier.encoding_
            data = read_columns(graph, chosen, encoding, in_memory=False)
            model.fit(data, warm_start=earlier)
            display.stage("saving")
            model.save(out, overwrite=overwrite)
            shutil.rmtree(work, ignore_errors=True)
    except CanetError:
        if {path.name for path in work.glob("*")} <= {LOCK}:  # nothing to continue from
            shutil.rmtree(work, ignore_errors=True)
            if out.is_dir() and not any(out.iterdir()):
                out.rmdir()
        raise
    notes = model.encoding_.notes() if model.encoding_ and earlier is None else []
    output.show(_fit_summary(model, out), lambda summary: _show_fit(summary, notes))


def _fit_summary(model: NodeClassifier, out: Path) -> dict[str, Any]:
    shifted = None
    if model.findings_ is not None:
        names = getattr(model, "feature_names_in_", range(model.n_features_in_))
        shifted = [str(names[column]) for column in model.findings_.shifted_columns]
    return {
        "model": str(out),
        "method": model.method_name,
        "backbone": model.backbone_name,
        "classes": model.classes_.tolist(),
        "features": model.n_features_in_,
        "metric": model.metric,
        "scores": model.scores_,
        "baselines": model.baselines_,
        "baseline": model.baseline_name,
        "selection": "held-out likelihood" if model.compares_models else "best validation",
        "selected_epoch": model.selected_epoch_,
        "environments_seen": model.environments_seen_,
        "shifted_columns": shifted,
        "settings": model.settings_,
        "leaderboard": [
            {name: None if cell != cell else cell for name, cell in row.items()}  # JSON has no NaN
            for row in model.leaderboard_rows()
        ],
        "summary": model.summary(),
    }


def _show_fit(summary: dict[str, Any], notes: list[str]) -> None:
    from canet.errors import listed
    from canet.estimator.summary import percent
    from canet.scoring.metrics import METRICS
    from canet.util.console import print_table, print_text

    for note in notes:
        print_text(f"note: {note}")
    if summary["leaderboard"]:
        columns = ["model", "weight", "validation", "held out", "seconds", "note"]
        rows = [
            [
                row["model"],
                f"{row['weight']:.2f}" if row["weight"] else "",
                percent(row["validation"]),
                percent(row["held_out"]),
                f"{row['seconds']:.1f}" if row["seconds"] else "",
                row["note"] if row["validation"] is None else "",
            ]
            for row in summary["leaderboard"]
        ]
        if not any(row[-1] for row in rows):
            columns, rows = columns[:-1], [row[:-1] for row in rows]
        print_table("Models, the largest weight first", columns, rows)
    print_text(summary["summary"])
    name = summary["method"] if summary["leaderboard"] else "{method}-{backbone}".format(**summary)
    title = f"Scores of the model ({name}, {len(summary['classes'])} classes)"
    scores, baselines = summary["scores"], summary["baselines"]
    rows = [[split, percent(scores[split]), percent(baselines[split])] for split in scores]
    print_table(title, ["split", METRICS[summary["metric"]].label, summary["baseline"]], rows)
    if (shifted := summary["shifted_columns"]) is not None:
        count = f"{len(shifted):,} of {summary['features']:,} columns"
        print_text(f"Interventions shift {count}{': ' if shifted else ''}{listed(shifted)}")
    print(
        f"Model: {summary['model']}. To predict: canet predict {shlex.quote(summary['model'])} "
        "GRAPH --out FILE"
    )
