"""`canet search`: find a method's settings on validation data."""

from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from canet.cli import options
from canet.cli.app import app
from canet.errors import CanetError


def _journal_file(text: str) -> Path:
    """Return a path; reject the address of a database, without its password."""
    if "://" in text:
        raise CanetError(
            "--storage takes a journal file, not the address of a database: pass --ray to use "
            "several machines, or a file on a disk that they share"
        )
    return Path(text)


@app.command()
@options.option_groups
def search(
    task: Annotated[
        str,
        typer.Argument(
            metavar="TASK|GRAPH", help="Name of a task (see `canet datasets`), or your graph."
        ),
    ],
    *,
    method: options.MethodName = "canet",
    backbone: str = options.option("gcn", "Name of a backbone; see `canet backbones`."),
    trials: int = options.option(
        32, "Number of trials, including those of earlier calls.", min=1, max=options.MAX_TRIALS
    ),
    sampler: Literal["tpe", "random", "grid"] = options.option(
        "tpe", "How the settings of a trial are chosen."
    ),
    epochs: options.Epochs = None,
    seeds: int = options.option(
        1, "Runs per trial; a trial is rated by their mean score.", min=1, max=options.MAX_SEEDS
    ),
    variant: options.TaskOptions,
    columns: options.ColumnOptions,
    undirected: options.Undirected = None,
    metric: options.MetricName = None,
    storage: Path | None = options.option(
        None,
        "Journal file for the trials. Default: a file in --out.",
        parser=_journal_file,
        metavar="FILE",
    ),
    jobs: options.Jobs = 1,
    ray: options.RayAddress = None,
    device: options.Device = "auto",
    data_root: options.DataRoot = None,
    out: Path | None = options.option(
        None, "Folder of the search. Default: a folder in searches/."
    ),
    output: options.OutputOptions,
) -> None:
    """Search for good settings of a method on validation data.

    For your graph, training, validation and test data are those of `canet compare`.
    Run the same command again to continue.
    """
    from canet.data import DATASETS
    from canet.defaults import unsearched
    from canet.methods import get_backbone
    from canet.runs.compare import base_config
    from canet.search.study import Plan
    from canet.settings import override

    get_backbone(backbone)
    changes = {} if epochs is None else {"epochs": epochs}
    settings = override(unsearched(task, method, backbone), changes)
    is_graph = task not in DATASETS and Path(task).exists()
    if is_graph:
        base = base_config(method, backbone, asdict(settings))
    else:
        base = variant.config(task.lower(), method, backbone, settings)
    plan = Plan(base, sampler, seeds)

    from canet.search.search import run_search

    folder = out or Path("searches") / plan.name
    if is_graph:
        from canet.runs.comparison_task import read_comparison, write_task

        own = read_comparison(task, metric or "accuracy", undirected, **columns.arguments)
        write_task(folder, own)
        data_root = folder
    words = [task, *columns.words, *(["--metric", metric] if metric else [])]
    words += [] if undirected is None else ["--undirected" if undirected else "--directed"]
    best = run_search(
        plan,
        trials,
        folder,
        storage=storage,
        jobs=jobs,
        device=device,
        data_root=data_root,
        quiet=output.silent,
        ray=ray,
        graph=words,
    )
    output.show(best, _show)


def _show(best: dict[str, Any]) -> None:
    """Print the best trials, the importance of the settings, and the next command."""
    from canet.scoring.metrics import METRICS
    from canet.util.console import print_table

    names = list(best["settings"])
    rows = []
    for trial in best["best_trials"]:
        values = [f"{value:g}" for value in trial["settings"].values()]
        rows.append([str(trial["number"]), f"{100 * trial['valid']:.2f}", *values])
    runs = f"mean of {best['seeds']} runs" if best["seeds"] > 1 else "one run"
    print_table(
        f"{best['task']}, {best['method']}-{best['backbone']}: best of {best['trials']} trials "
        f"({best['pruned']} pruned, {best['failed']} failed) of {best['epochs']} epochs by "
        f"validation {METRICS[best['metric']].label} %, {runs}",
        ["trial", "valid", *names],
        rows,
    )
    if best["start"]["valid"] is not None:
        print(f"Before the search: {100 * best['start']['valid']:.2f} % on validation nodes.")
    if best["importances"]:
        shares = (f"{name} {share:.0%}" for name, share in best["importances"].items())
        print(f"Importance: {', '.join(shares)}")
    print(f"Train with the best settings: {best['train']}")
