"""Your graph and a model: `canet predict` and `canet diagnose`."""

import shlex
import sys
from dataclasses import asdict, replace
from pathlib import Path
from typing import Annotated, Any

import typer

from canet.cli import options
from canet.cli.app import app
from canet.errors import CanetError
from canet.settings import MAX_NUMBER

FAILED = 3  # exit code if a condition of `--fail-if` holds
MAX_CLASSES = 10  # rows of the table of predicted classes


@app.command()
@options.option_groups
def predict(
    model: options.ModelPath,
    graph: options.GraphPath,
    *,
    out: Annotated[Path, options.out("File for the predictions: .csv or .parquet.")],
    nodes: options.Nodes = None,
    calibrated: bool = options.option(
        False, "Calibrate the probabilities with the validation data.", "--calibrated"
    ),
    threshold: str | None = options.option(
        None,
        "Predict the rarer of two classes if it has at least this probability; best: the "
        "threshold with the best F1 on validation data.",
        metavar="NUMBER|best",
    ),
    recall_at: int | None = options.option(
        None,
        "Show the recall of the rarer class among the K likeliest nodes.",
        metavar="K",
        min=1,
        max=MAX_NUMBER,
    ),
    columns: options.KnownColumnOptions,
    device: options.Device = "auto",
    output: options.OutputOptions,
) -> None:
    """Predict the class of every node of a graph.

    The file has one row per node: class, probabilities, and a novelty score from 0 to 1. A graph
    store is predicted in parts and need not fit into memory.
    """
    from canet.estimator.prediction_table import check_target, choose_nodes, write_predictions

    check_target(out)
    _check_is_not_input(out, graph)
    limit = _threshold(threshold)
    data, classifier = _open(model, graph, device, columns)
    chosen = None if nodes is None else choose_nodes(data, nodes)
    summary = write_predictions(classifier, data, out, chosen, calibrated, limit, recall_at)
    if limit is not None:
        limit = classifier.calibration_.threshold_as_number(limit, calibrated)
    summary |= {"threshold": limit, "out": str(out)}

    def show(summary: dict[str, Any]) -> None:
        from canet.estimator.summary import compared
        from canet.scoring.metrics import METRICS
        from canet.util.console import print_table, print_text

        counts = sorted(summary["predictions"].items(), key=lambda item: -item[1])
        rows = [(name, f"{count:,}") for name, count in counts[:MAX_CLASSES]]
        if more := counts[MAX_CLASSES:]:
            rows.append((f"… {len(more):,} more classes", f"{sum(n for _, n in more):,}"))
        print_table(f"{summary['nodes']:,} nodes predicted", ["class", "nodes"], rows)
        print(f"mean confidence {summary['mean_confidence']:.2f}")
        if summary["novelty_score"] is not None:
            print(f"mean novelty score {summary['novelty_score']:.2f} (0.50 without shift)")
        if summary["score"] is not None:
            name = f"{METRICS[summary['metric']].label} of {summary['labelled']:,} labelled nodes"
            found = compared(summary["score"], summary["baseline"], classifier.baseline_name)
            print_text(f"{name}: {found}")
        if limit is not None:
            rarer = classifier.classes_[classifier.calibration_.positive]
            print_text(f"class {rarer} if its probability is at least {limit:.3f}")
        if "recall_at_k" in summary:
            recall, ranked = 100 * summary["recall_at_k"]["recall"], summary["labelled"]
            ranks = f"the {recall_at:,} likeliest of {ranked:,} labelled nodes"
            print(f"recall {recall:.1f} % among {ranks}")
        again = shlex.join(["canet", "diagnose", str(model), str(graph)])
        print(f"Predictions: {out}. To see what they rely on: {again}")

    output.show(summary, show)


@app.command()
@options.option_groups
def diagnose(
    model: options.ModelPath,
    graph: options.GraphPath,
    *,
    training: Path | None = options.option(
        None, "The training graph, to compare the two graphs.", metavar="GRAPH"
    ),
    columns: options.KnownColumnOptions,
    repeats: int | None = options.option(
        None,
        "Repeats of each random change. Default: 5, or 3 for more than 20,000 nodes.",
        min=1,
        max=options.MAX_REPEATS,
    ),
    held_out: bool = options.option(
        False,
        "For a better estimate of the score, train a single method again without two parts of the "
        "training data. Needs --training. auto has already done this.",
        "--held-out",
    ),
    out: Path | None = options.option(
        None, "File: .html (the page), .json (all numbers) or .txt.", "--out", "-o"
    ),
    nodes: options.Nodes = None,
    fail_if: list[str] | None = options.option(
        None,
        "Exit with code 3 if a condition holds, such as 'expected<0.7', 'expected_low<0.6', "
        "'actual<0.7', 'shifted>3' or 'separable>0.9'; repeat it for several.",
        metavar="CONDITION",
    ),
    device: options.Device = "auto",
    output: options.OutputOptions,
) -> None:
    """Show what a model relies on, what shifted, and what to expect."""
    from canet.diagnosis import diagnose as run
    from canet.diagnosis.diagnosis import check_diagnosis_file, parse_condition
    from canet.estimator.prediction_table import choose_nodes
    from canet.util.console import print_text

    for condition in fail_if or []:
        parse_condition(condition)
    if out is not None:
        _check_is_not_input(check_diagnosis_file(out), graph)
    data, classifier = _open(model, graph, device, columns)
    classifier.verbose = not output.silent
    chosen = None if nodes is None else choose_nodes(data, nodes)
    found = run(classifier, training, data, nodes=chosen, repeats=repeats, held_out=held_out)
    if out is not None:
        found.save(out)
    failures = [message for message in map(found.exceeded, fail_if or []) if message]

    def show(_: object) -> None:
        print_text(found)
        if out is not None:
            print(f"Written: {out}")

    output.show(found.to_dict() | {"failures": failures}, show)
    for message in failures:
        print(f"canet: {message}", file=sys.stderr)
    if failures:
        raise typer.Exit(FAILED)


def _threshold(text: str | None) -> Any:
    """Return the number of a threshold, `best` or None."""
    if text is None or text == "best":
        return text
    try:
        return float(text)
    except ValueError:
        raise CanetError(f"--threshold is '{text}': pass a number from 0 to 1, or best") from None


def _check_is_not_input(out: Path, graph: Path) -> None:
    """Reject an output file that would replace a file of the graph."""
    inputs = [graph, *(graph.iterdir() if graph.is_dir() else [])]
    if out.resolve() in [path.resolve() for path in inputs]:
        raise CanetError(f"'{out}' is a file of the graph: choose another file for --out")


def _open(model: Path, graph: Path, device: str, columns: options.KnownColumnOptions) -> Any:
    """Return the graph, encoded for the model, and the model; a graph store stays on disk."""
    from canet.data.graph_files import ReadOptions, read_columns
    from canet.estimator.classifier import load

    classifier = load(model, device)
    own, given = classifier.read_options(), ReadOptions.of(**asdict(columns))
    chosen = replace(given, earlier=own.earlier, reported=own.reported)
    return read_columns(graph, chosen, classifier.encoding_, in_memory=False), classifier
