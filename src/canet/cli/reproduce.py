"""Many runs: `canet reproduce`, `report` and `archive`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from canet.cli import options
from canet.cli.app import app

if TYPE_CHECKING:
    from canet.paper import Experiment


@dataclass(frozen=True)
class ExperimentOptions:
    """Options of `canet reproduce` and of `python -m experiments`."""

    out: Annotated[Path, typer.Option(help="Folder for runs, tables and figures.")]
    jobs: options.Jobs = 1
    quick: bool = options.option(
        False, "A short version, about two minutes on two cores.", "--quick"
    )
    device: options.Device = "auto"
    methods: str | None = options.option(None, "Methods to compare, for example erm,canet.")
    tasks: str | None = options.option(None, "Tasks to run, for example cora,pubmed.")
    retry: bool = options.option(False, "Repeat failed runs.", "--retry")
    archive: Path | None = options.option(
        None, "Archive of finished runs to use instead of training."
    )
    ray: options.RayAddress = None
    data_root: options.DataRoot = None
    quiet: options.Quiet = False

    def run(self, experiments: Mapping[str, type[Experiment]], what: str) -> None:
        """Run the jobs of experiments, then write their tables and figures."""
        from canet.paper import Scope
        from canet.paper.reproduce import reproduce

        chosen = asdict(self)
        methods, tasks = (options.names(chosen.pop(name)) for name in ("methods", "tasks"))
        scope = Scope(chosen.pop("quick"), methods, tasks, chosen.pop("data_root"))
        if reproduce(experiments, what, scope=scope, **chosen):
            raise typer.Exit(1)


@app.command()
@options.option_groups
def reproduce(
    what: Annotated[
        str, typer.Argument(help="table1, table2, elliptic, ablation, sensitivity, weights or all.")
    ],
    chosen: ExperimentOptions,
) -> None:
    """Reproduce a table or figure of the paper."""
    from canet.paper import EXPERIMENTS

    chosen.run(EXPERIMENTS, what)


@app.command()
def report(
    runs: Annotated[Path, typer.Argument(help="Folder or archive of runs.")],
    out: Annotated[
        Path | None,
        options.out(
            "File for the page. Default: report.html in (or next to) RUNS.", dir_okay=False
        ),
    ] = None,
) -> None:
    """Write an HTML page about finished runs."""
    from canet.paper.paper_report import write_report

    target = out or (runs.parent if runs.is_file() else runs) / "report.html"
    write_report(runs, target)
    print(f"Report: {target}")


@app.command()
def archive(
    runs: Annotated[Path, typer.Argument(help="Folder of runs.")],
    out: Annotated[Path, options.out("The archive, for example runs.tar.xz.", dir_okay=False)],
) -> None:
    """Pack finished runs into one small file.

    The archive has no weights, but all that tables and reports need.
    """
    from canet.store import find_runs, write_archive

    count = write_archive(find_runs(runs), out)
    print(f"{count} runs: {out}, {out.stat().st_size / 2**20:.1f} MB")
