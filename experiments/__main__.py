"""`python -m experiments NAME --out FOLDER`: run a study that is not in the paper."""

from __future__ import annotations

from typing import Annotated

import typer

from canet.cli.main import main
from canet.cli.options import option_groups
from canet.cli.reproduce import ExperimentOptions
from experiments import EXPERIMENTS

app = typer.Typer(add_completion=False, pretty_exceptions_enable=False, rich_markup_mode=None)


@app.command()
@option_groups
def run(
    name: Annotated[str, typer.Argument(help=f"{', '.join(EXPERIMENTS)} or all.")],
    chosen: ExperimentOptions,
) -> None:
    """Run the jobs of a study, then write its tables and figures."""
    chosen.run(EXPERIMENTS, name)


if __name__ == "__main__":
    main(app, "experiments")
