"""`canet verify`: are runs and models what was written?"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from canet.cli.app import app


@app.command()
def verify(
    path: Annotated[
        Path, typer.Argument(help="Folder of a run, of runs or of a model, or an archive of runs.")
    ],
) -> None:
    """Check that runs and models are what was written: a line for each problem, then a count."""
    from canet.cli.verification import verify as look_through

    found = look_through(path)
    for problem in found.problems:
        print(" ".join(problem.split()))
    print(found.count)
    if found.problems:
        raise typer.Exit(2)
