"""`canet compare`: several methods on your graph."""

from pathlib import Path
from typing import Annotated, Any

from canet.cli import options
from canet.cli.app import app
from canet.errors import CanetError, listed

REPORT = "report.html"


@app.command()
@options.option_groups
def compare(
    graph: options.GraphPath,
    *,
    methods: str | None = options.option(
        None, "Default: linear, trees and all networks that the graph allows.", metavar="NAME,..."
    ),
    backbones: str = options.option("gcn", "Backbones; see `canet backbones`.", metavar="NAME,..."),
    seeds: int = options.option(3, "Number of runs of each method.", min=1, max=options.MAX_SEEDS),
    out: Annotated[Path, options.out("Folder for the runs and the report.")] = Path("comparison"),
    columns: options.ColumnOptions,
    undirected: options.Undirected = None,
    metric: options.MetricName = None,
    settings: options.SettingsOptions,
    device: options.Device = "auto",
    jobs: options.Jobs = 1,
    output: options.OutputOptions,
) -> None:
    """Train several methods on your graph, and compare their scores.

    The scores are those of the test set: the nodes with split test, or a fifth of the labelled
    nodes, the latest if there are times. The page calls them shifted only if --time or
    --environment distinguishes them from the training nodes. Run the same command again to
    continue.
    """
    changes = settings.changes
    chosen_backbones = options.names(backbones)
    from canet.methods import get_backbone

    for name in chosen_backbones:
        get_backbone(name)

    from canet.report.html import write_report
    from canet.runs.compare import RUNS, applicable_methods, compare_on_graph
    from canet.runs.comparison_task import read_comparison, score_on_test
    from canet.scoring.metrics import METRICS
    from canet.store.summary import spread_text
    from canet.util.console import print_table

    task = read_comparison(graph, metric or "accuracy", undirected, **columns.arguments)
    chosen = options.names(methods) or applicable_methods(task)
    summaries, failed = compare_on_graph(
        task,
        methods=chosen,
        backbones=chosen_backbones,
        seeds=seeds,
        changes=changes,
        out=out,
        jobs=jobs,
        device=device,
        quiet=output.silent,
    )
    if not summaries:
        raise CanetError(f"all runs failed: {failed[0].lines[-1]}")
    write_report(out / RUNS, out / REPORT)

    def show(summaries: list[dict[str, Any]]) -> None:
        rows = []
        for one in summaries:
            name = "-".join(dict.fromkeys([one["method"], one["backbone"]]))
            scores = [score_on_test(one["scores"]), one["scores"]["valid"]]
            rows.append([name, *map(spread_text, scores), f"{one['seconds']:.1f}"])
        metric, runs = METRICS[summaries[0]["metric"]].label, len(summaries[0]["seeds"])
        title = f"{metric} in %, mean ± standard deviation of {runs} runs; the best first"
        print_table(title, ["method", "test", "validation", "seconds"], rows)
        print(f"Report: {out / REPORT}")
        if not methods:
            print("auto takes longer and was left out: to compare it too, name it in --methods.")

    output.show(summaries, show)
    if failed:
        names = listed(dict.fromkeys(job.config.model for job in failed))
        raise CanetError(f"{len(failed)} runs failed ({names}): {failed[0].lines[-1]}")
