"""`canet reproduce`: the paper's tables and figures."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from canet.cli.app import app
from canet.cli.options import (
    MOST_JOBS,
    DataRoot,
    Device,
    DeviceOption,
    Quiet,
    RayAddress,
    names,
)

# Options that `python -m experiments` has, too.
Out = Annotated[Path, typer.Option(help="Folder for runs, tables and figures.")]
Jobs = Annotated[int, typer.Option(min=1, max=MOST_JOBS, help="Worker processes, also on one GPU.")]
Quick = Annotated[
    bool, typer.Option("--quick", help="For trying out: about two minutes on two cores.")
]
Methods = Annotated[str | None, typer.Option(help="Methods to compare, such as erm,canet.")]
Tasks = Annotated[str | None, typer.Option(help="Tasks to run, such as cora,pubmed.")]
Retry = Annotated[bool, typer.Option("--retry", help="Run failed jobs again.")]
Archive = Annotated[
    Path | None, typer.Option(help="Archive of finished runs, which are not run again.")
]


@app.command()
def reproduce(
    what: Annotated[
        str,
        typer.Argument(help="table1, table2, elliptic, ablation, sensitivity, weights or all."),
    ],
    out: Out,
    jobs: Jobs = 1,
    quick: Quick = False,
    device: DeviceOption = Device.auto,
    methods: Methods = None,
    tasks: Tasks = None,
    retry: Retry = False,
    archive: Archive = None,
    ray: RayAddress = None,
    data_root: DataRoot = None,
    quiet: Quiet = False,
) -> None:
    """A table or figure of the paper: run its jobs, compare the results with the published ones."""
    from canet.paper import EXPERIMENTS, Scope
    from canet.paper.reproduce import reproduce as run

    scope = Scope(quick, names(methods), names(tasks), data_root)
    if run(EXPERIMENTS, what, out, scope, jobs, device.value, retry, archive, quiet, ray):
        raise typer.Exit(1)
