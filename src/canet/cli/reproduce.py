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


@app.command()
def reproduce(
    what: Annotated[
        str,
        typer.Argument(
            help="table1, table2, elliptic, ablation, sensitivity, weights, protocols, all; or "
            "backbones, diagnosis, interventions."
        ),
    ],
    out: Annotated[Path, typer.Option(help="Folder for runs, tables and figures.")],
    jobs: Annotated[
        int, typer.Option(min=1, max=MOST_JOBS, help="Worker processes, also on one GPU.")
    ] = 1,
    quick: Annotated[
        bool, typer.Option("--quick", help="For trying out: about two minutes on two cores.")
    ] = False,
    device: DeviceOption = Device.auto,
    methods: Annotated[
        str | None, typer.Option(help="Methods to compare, such as erm,canet.")
    ] = None,
    tasks: Annotated[str | None, typer.Option(help="Tasks to run, such as cora,pubmed.")] = None,
    retry: Annotated[bool, typer.Option("--retry", help="Run failed jobs again.")] = False,
    archive: Annotated[
        Path | None, typer.Option(help="Archive of runs that need not be made again.")
    ] = None,
    ray: RayAddress = None,
    data_root: DataRoot = None,
    quiet: Quiet = False,
) -> None:
    """A table or figure of the paper: run its jobs, and set the results beside the published."""
    from canet.paper import Scope
    from canet.paper.reproduce import reproduce as run

    scope = Scope(quick, names(methods), names(tasks), data_root)
    if run(what, out, scope, jobs, device.value, retry, archive, quiet, ray):
        raise typer.Exit(1)
