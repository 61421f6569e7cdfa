"""`python -m experiments NAME --out FOLDER`: run a study that is not in the paper."""

from __future__ import annotations

from typing import Annotated

import typer

from canet.cli.main import main
from canet.cli.options import DataRoot, Device, Jobs, Quiet, RayAddress, names
from canet.cli.reproduce import Archive, Methods, Out, Quick, Retry, Tasks
from canet.paper import Scope
from canet.paper.reproduce import reproduce
from experiments import EXPERIMENTS

app = typer.Typer(add_completion=False, pretty_exceptions_enable=False, rich_markup_mode=None)


@app.command()
def run(
    name: Annotated[str, typer.Argument(help=f"{', '.join(EXPERIMENTS)} or all.")],
    out: Out,
    jobs: Jobs = 1,
    quick: Quick = False,
    device: Device = "auto",
    methods: Methods = None,
    tasks: Tasks = None,
    retry: Retry = False,
    archive: Archive = None,
    ray: RayAddress = None,
    data_root: DataRoot = None,
    quiet: Quiet = False,
) -> None:
    """Run the jobs of a study, then write its tables and figures."""
    scope = Scope(quick, names(methods), names(tasks), data_root)
    if reproduce(EXPERIMENTS, name, out, scope, jobs, device, retry, archive, quiet, ray):
        raise typer.Exit(1)


if __name__ == "__main__":
    main(app, "experiments")
