"""`canet compare`: several methods on your graph."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any

import typer

from canet.cli import options
from canet.cli.app import app
from canet.errors import CanetError, listed

REPORT = "report.html"


@app.command()
def compare(
    graph: options.GraphPath,
    methods: Annotated[
        str | None,
        typer.Option(metavar="NAME,...", help="Methods, or auto. Default: all that can be used."),
    ] = None,
    backbones: Annotated[
        str, typer.Option(metavar="NAME,...", help="Backbones; see `canet backbones`.")
    ] = "gcn",
    seeds: Annotated[
        int, typer.Option(min=1, max=options.MAX_SEEDS, help="Number of runs of each method.")
    ] = 3,
    out: Annotated[
        Path, typer.Option("--out", "-o", help="Folder for the runs and the report.")
    ] = Path("comparison"),
    label: options.LabelColumn = None,
    split: options.SplitColumn = None,
    environment: options.EnvironmentColumn = None,
    time: options.TimeColumn = None,
    sample_weight: options.SampleWeightColumn = None,
    id_: options.IdColumn = None,
    weight: options.WeightColumn = None,
    source: options.SourceColumn = None,
    target: options.TargetColumn = None,
    without: options.Without = None,
    fill: options.Fill = "mean",
    undirected: options.Undirected = None,
    metric: options.MetricName = None,
    epochs: options.Epochs = None,
    set_: options.Assignments = None,
    device: options.Device = "auto",
    jobs: options.Jobs = 1,
    quiet: options.Quiet = False,
    as_json: options.Json = False,
) -> None:
    """Train several methods on your graph, and compare their scores.

    The scores are those of the test set: the nodes with split test, or a fifth of the labelled
    nodes, the latest if there are times. Run the same command again to continue.
    """
    changes = options.changed_settings(set_, None, epochs)
    chosen_backbones = options.names(backbones)
    for name in chosen_backbones:
        options.backbone_of("erm", name)

    from canet.report.html import write_report
    from canet.runs.comparison import RUNS, applicable_methods, compare_on_graph

    roles = (id_, label, split, environment, time, sample_weight, weight, source, target)
    task = options.graph_task(graph, roles, without, fill, undirected, metric)
    chosen = options.names(methods) or applicable_methods(task)
    summaries, failed = compare_on_graph(
        task, chosen, chosen_backbones, seeds, changes, out, jobs, device, quiet or as_json
    )
    if not summaries:
        raise CanetError(f"all runs failed: {failed[0].lines[-1]}")
    write_report(out / RUNS, out / REPORT)
    if as_json:
        print(json.dumps(summaries, indent=2))
    elif not quiet:
        _show(summaries)
        print(f"Report: {out / REPORT}")
    if failed:
        names = listed(dict.fromkeys(job.config.model for job in failed))
        raise CanetError(f"{len(failed)} runs failed ({names}): {failed[0].lines[-1]}")


def _show(summaries: list[dict[str, Any]]) -> None:
    """Print a table with the best method first."""
    from canet.data.metrics import METRIC_NAMES
    from canet.data.task_file import TEST
    from canet.util.console import print_table, spread_text

    rows = []
    for one in summaries:
        name = "-".join(dict.fromkeys([one["method"], one["backbone"]]))
        scores = [one["scores"]["test_ood"][TEST], one["scores"]["valid"]]
        epoch = f"{1000 * one['seconds_per_epoch']:.1f}"
        rows.append([name, *map(spread_text, scores), epoch])
    metric, runs = METRIC_NAMES[summaries[0]["metric"]], len(summaries[0]["seeds"])
    title = f"{metric} in %, mean ± standard deviation of {runs} runs; the best first"
    print_table(title, ["method", "test", "validation", "ms per epoch"], rows)
