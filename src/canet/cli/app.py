"""The typer application that every command is registered with."""

from __future__ import annotations

import os
from typing import Annotated

import typer

DEBUG = "CANET_DEBUG"

app = typer.Typer(
    context_settings={"help_option_names": ["-h", "--help"]},
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)


def _print_version(wanted: bool) -> None:
    if wanted:
        from canet._version import __version__

        print(f"canet {__version__}")
        raise typer.Exit


@app.callback()
def options(
    version: Annotated[
        bool,
        typer.Option(
            "--version", help="Print the version and exit.", callback=_print_version, is_eager=True
        ),
    ] = False,
    debug: Annotated[
        bool, typer.Option("--debug", help=f"Show the traceback of an error (or set {DEBUG}=1).")
    ] = False,
) -> None:
    """Node classification on graphs that shift: train, predict, diagnose, compare methods.

    Your graph: inspect, fit, predict, diagnose. Benchmark: datasets, train, reproduce, report.
    """
    if debug:
        os.environ[DEBUG] = "1"  # worker processes see it too
