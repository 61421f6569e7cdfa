"""Many runs: `canet reproduce`, `report` and `archive`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from canet.cli import options
from canet.cli.app import app

# Options that `python -m experiments` has, too.
Out = Annotated[Path, typer.Option(help="Folder for runs, tables and figures.")]
Quick = Annotated[
    bool, typer.Option("--quick", help="A short version, about two minutes on two cores.")
]
Methods = Annotated[str | None, typer.Option(help="Methods to compare, for example erm,canet.")]
Tasks = Annotated[str | None, typer.Option(help="Tasks to run, for example cora,pubmed.")]
Retry = Annotated[bool, typer.Option("--retry", help="Repeat failed runs.")]
Archive = Annotated[
    Path | None, typer.Option(help="Archive of finished runs to use instead of training.")
]


@app.command()
def reproduce(
    what: Annotated[
        str,
        typer.Argument(help="table1, table2, elliptic, ablation, sensitivity, weights or all."),
    ],
    out: Out,
    jobs: options.Jobs = 1,
    quick: Quick = False,
    device: options.Device = "auto",
    methods: Methods = None,
    tasks: Tasks = None,
    retry: Retry = False,
    archive: Archive = None,
    ray: options.RayAddress = None,
    data_root: options.DataRoot = None,
    quiet: options.Quiet = False,
) -> None:
    """Reproduce a table or figure of the paper."""
    from canet.paper import EXPERIMENTS, Scope
    from canet.paper.reproduce import reproduce as run

    scope = Scope(quick, options.names(methods), options.names(tasks), data_root)
    if run(EXPERIMENTS, what, out, scope, jobs, device, retry, archive, quiet, ray):
        raise typer.Exit(1)


@app.command()
def report(
    runs: Annotated[Path, typer.Argument(help="Folder or archive of runs.")],
    out: Annotated[
        Path | None,
        typer.Option(
            "--out",
            "-o",
            help="File for the page. Default: report.html in (or next to) RUNS.",
            callback=options.not_a_folder,
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
    out: Annotated[
        Path,
        typer.Option(
            "--out",
            "-o",
            help="The archive, for example runs.tar.xz.",
            callback=options.not_a_folder,
        ),
    ],
) -> None:
    """Pack finished runs into one small file.

    The archive has no weights, but all that tables and reports need.
    """
    from canet.store import find_runs, write_archive

    count = write_archive(find_runs(runs), out)
    print(f"{count} runs: {out}, {out.stat().st_size / 2**20:.1f} MB")
