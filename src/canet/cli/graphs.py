"""Your graph: `canet inspect`, `fit`, `predict` and `diagnose`."""

from __future__ import annotations

import json
import shlex
import shutil
from pathlib import Path
from statistics import mean
from typing import Annotated, Any

import typer

from canet.cli import options
from canet.cli.app import app
from canet.errors import CanetError
from canet.util.seeds import MAX_SEED

CHECKPOINTS = ".checkpoints"
MAX_SECONDS = 10**7


@app.command()
def inspect(
    graph: options.GraphPath,
    label: options.LabelColumn = None,
    split: options.SplitColumn = None,
    environment: options.EnvironmentColumn = None,
    time: options.TimeColumn = None,
    id_: options.IdColumn = None,
    as_json: options.Json = False,
) -> None:
    """Show what canet reads from your graph, and possible problems."""
    from canet.data.graph_files import inspect_graph
    from canet.util.console import print_table, print_text

    found = inspect_graph(
        graph, label=label, split=split, environment=environment, time=time, id=id_
    )
    if as_json:
        print(json.dumps(found.to_json(), indent=2))
        return
    for line in found.lines():
        print_text(line)
    for table in found.tables():
        print_table(*table)


@app.command()
def fit(
    graph: options.GraphPath,
    out: Annotated[Path, typer.Option(metavar="MODEL", help="Folder for the model.")],
    label: options.LabelColumn = None,
    split: options.SplitColumn = None,
    environment: options.EnvironmentColumn = None,
    time: options.TimeColumn = None,
    id_: options.IdColumn = None,
    undirected: Annotated[
        bool | None,
        typer.Option(
            "--undirected/--directed", help="Read each edge in both directions, or as given."
        ),
    ] = None,
    method: options.MethodName = "auto",
    backbone: options.BackboneName = None,
    preset: Annotated[
        str, typer.Option(help="Number of models that auto tries: fast, robust or best.")
    ] = "robust",
    time_limit: Annotated[
        float | None,
        typer.Option(
            min=0, max=MAX_SECONDS, help="Seconds after which auto starts no further model."
        ),
    ] = None,
    epochs: options.Epochs = None,
    metric: Annotated[
        str, typer.Option(help="accuracy, macro_f1, or roc_auc (two classes).")
    ] = "accuracy",
    balanced: Annotated[
        bool, typer.Option("--balanced", help="Give all classes the same total weight.")
    ] = False,
    set_: options.Assignments = None,
    settings_file: options.SettingsFile = None,
    seed: Annotated[
        int,
        typer.Option(min=0, max=MAX_SEED, help="Seed of training and of a random validation set."),
    ] = 0,
    device: options.Device = "auto",
    jobs: options.Jobs = 1,
    ray: options.RayAddress = None,
    log: options.LogFolder = None,
    quiet: options.Quiet = False,
    as_json: options.Json = False,
) -> None:
    """Train a model on your graph and save it.

    Use it with `canet predict` and `canet diagnose`. By default several models are tried, and the
    best are averaged. If the command is interrupted, run it again to continue.
    """
    from canet.presets import changed
    from canet.store.model_folder import check_target

    changes = options.changed_settings(set_, settings_file, epochs)
    options.backbone_of(method, backbone)
    changed(method, changes | ({"preset": preset} if method == "auto" else {}))
    check_target(out)

    from canet.data.graph_files import Roles, read_columns
    from canet.estimator.classifier import NodeClassifier
    from canet.util.progress import fit_display
    from canet.util.tensorboard import TensorBoardLog

    model = NodeClassifier(
        method,
        backbone,
        metric=metric,
        class_weight="balanced" if balanced else None,
        undirected=undirected,
        preset=preset,
        time_limit=time_limit,
        n_jobs=jobs,
        ray=ray,
        checkpoints=out / CHECKPOINTS,
        device=device,
        random_state=seed,
        verbose=not (quiet or as_json),
        callbacks=None if log is None else [TensorBoardLog(log)],
        **changes,
    )
    with fit_display("reading", quiet=not model.verbose) as display:
        model.fit(read_columns(graph, Roles(id_, label, split, environment, time)))
        display.stage("saving")
        model.save(out)
    shutil.rmtree(out / CHECKPOINTS, ignore_errors=True)
    summary = _fit_summary(model, out)
    if as_json:
        print(json.dumps(summary, indent=2))
    elif not quiet:
        _show_fit(summary, model.encoding_.notes() if model.encoding_ else [])


@app.command()
def predict(
    model: options.ModelPath,
    graph: options.GraphPath,
    out: Annotated[Path, typer.Option(help="File for the predictions: .csv or .parquet.")],
    label: options.KnownLabelColumn = None,
    id_: options.KnownIdColumn = None,
    device: options.Device = "auto",
    quiet: options.Quiet = False,
    as_json: options.Json = False,
) -> None:
    """Predict the class of every node of a graph.

    The file has one row per node: class, probabilities, and a novelty score from 0 to 1.
    """
    from canet.estimator.predictions import check_target, predictions, summarise, write_table

    check_target(out)
    _check_is_not_input(out, graph)
    data, classifier = _open(model, graph, device, label, id_)
    table = predictions(classifier, data)
    summary = summarise(classifier, data, table) | {"out": str(out)}
    write_table(table, out)
    if as_json:
        print(json.dumps(summary, indent=2))
    elif not quiet:
        from canet.data.metrics import METRIC_NAMES
        from canet.util.console import print_table

        rows = [(name, f"{count:,}") for name, count in summary["predictions"].items()]
        print_table(f"{summary['nodes']:,} nodes predicted", ["class", "nodes"], rows)
        print(f"mean confidence {summary['mean_confidence']:.2f}")
        if summary["novelty_score"] is not None:
            print(f"mean novelty score {summary['novelty_score']:.2f} (0.50 without shift)")
        if summary["score"] is not None:
            name = METRIC_NAMES[summary["metric"]]
            print(
                f"{name} {100 * summary['score']:.2f} % on {summary['labelled']:,} labelled nodes"
            )
        again = shlex.join(["canet", "diagnose", str(model), str(graph)])
        print(f"Predictions: {out}. To see what they rely on: {again}")


@app.command()
def diagnose(
    model: options.ModelPath,
    graph: options.GraphPath,
    training: Annotated[
        Path | None,
        typer.Option(metavar="GRAPH", help="The training graph, to compare the two graphs."),
    ] = None,
    label: options.KnownLabelColumn = None,
    id_: options.KnownIdColumn = None,
    repeats: Annotated[
        int | None,
        typer.Option(
            min=1,
            max=options.MAX_REPEATS,
            help="Repeats of each random change. Default: 10, or 3 for more than 20,000 nodes.",
        ),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option("--out", "-o", help="File for the HTML page.", callback=options.not_a_folder),
    ] = None,
    device: options.Device = "auto",
    quiet: options.Quiet = False,
    as_json: options.Json = False,
) -> None:
    """Show what a model relies on, what shifted, and what to expect."""
    from canet.diagnosis import diagnose as run
    from canet.diagnosis.rendering import render_text, write_page
    from canet.util.console import print_text

    if out is not None:
        _check_is_not_input(out, graph)
    data, classifier = _open(model, graph, device, label, id_)
    before = None if training is None else _open(model, training, device, label, id_)[0]
    classifier.verbose = not (quiet or as_json)
    found = run(classifier, before, data, repeats=repeats)
    if out is not None:
        write_page(found, out)
    if as_json:
        print(json.dumps(found.to_json(), indent=2))
    elif not quiet:
        print_text(render_text(found))
        if out is not None:
            print(f"Page: {out}")


def _check_is_not_input(out: Path, graph: Path) -> None:
    """Reject an output file that would replace a file of the graph."""
    inputs = [graph, *(graph.iterdir() if graph.is_dir() else [])]
    if out.resolve() in [path.resolve() for path in inputs]:
        raise CanetError(f"'{out}' is a file of the graph: choose another file for --out")


def _open(
    model: Path, graph: Path, device: options.Device, label: str | None, id_: str | None
) -> Any:
    """Return the graph, encoded for the model, and the model."""
    from canet.data.graph_files import Roles, read_columns
    from canet.estimator.classifier import load

    classifier = load(model, device)
    return read_columns(graph, Roles(id_, label), classifier.encoding_), classifier


def _fit_summary(model: Any, out: Path) -> dict[str, Any]:
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
        "selection": "best rating" if model.candidates_ else "best validation",
        "selected_epoch": model.selected_epoch_,
        "environments_seen": model.environments_seen_,
        "shifted_columns": shifted,
        "settings": model.settings_,
        "leaderboard": model.leaderboard(),
    }


def _show_fit(summary: dict[str, Any], notes: list[str]) -> None:
    from canet.data.metrics import METRIC_NAMES
    from canet.errors import listed
    from canet.util.console import print_table, print_text

    for note in notes:
        print_text(f"note: {note}")
    if summary["leaderboard"]:
        _show_choice(summary["leaderboard"])
    name = summary["method"] if summary["leaderboard"] else "{method}-{backbone}".format(**summary)
    title = f"{name}, {len(summary['classes'])} classes"
    column = f"{METRIC_NAMES[summary['metric']]} % of the model, {summary['selection']}"
    rows = [(name, f"{100 * score:.2f}") for name, score in summary["scores"].items()]
    print_table(title, ["split", column], rows)
    if (shifted := summary["shifted_columns"]) is not None:
        count = f"{len(shifted):,} of {summary['features']:,} columns"
        print_text(f"Interventions shift {count}{': ' if shifted else ''}{listed(shifted)}")
    print(
        f"Model: {summary['model']}. To predict: canet predict {summary['model']} GRAPH --out FILE"
    )


def _show_choice(board: list[dict[str, Any]]) -> None:
    """Print the models that were tried, and the rule that chose."""
    from canet.errors import listed
    from canet.util.console import print_table, print_text

    parts = [name for name in board[0] if name.startswith("without ")]
    columns = ["model", "rating", "validation", "held out", "weight"]
    rows = []
    for row in board:
        held_out = f"{100 * mean(row[part] for part in parts):.1f}" if parts else "–"
        scores = [f"{100 * row[name]:.1f}" for name in ("rating", "validation")]
        rows.append([row["model"], *scores, held_out, f"{row['weight']:.2f}"])
    print_table("Models, the best first; scores in %", columns, rows)
    members = sum(row["weight"] > 0 for row in board)
    print_text(f"The model is the average of the best {members} of {len(board)} models.")
    if parts:
        names = listed(name.removeprefix("without ") for name in parts)
        print_text(
            "The rating of a model is the mean of its validation score and its mean score on "
            f"held-out parts of the training data ({names}), each without training on that part."
        )
    else:
        print_text(
            "The rating is the validation score: there are too few labels to hold out parts."
        )
