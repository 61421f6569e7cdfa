"""The typer application that every command is registered with."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Annotated

import typer
from typer.core import TyperCommand, TyperGroup

if TYPE_CHECKING:
    from typer._click import Context, HelpFormatter

DEBUG = "CANET_DEBUG"
GROUPS = {
    "Your graph": ("inspect", "fit", "predict", "diagnose", "compare", "convert"),
    "Benchmark": (
        *("demo", "datasets", "methods", "backbones"),
        *("train", "evaluate", "search", "reproduce", "report"),
    ),
    "Files": ("archive", "verify"),
}
"""Groups of commands, in the order of the help."""
COMMON = {
    *("out", "label", "time", "without", "undirected"),
    *("method", "preset", "time_limit", "metric", "balanced"),
}
"""Options that the help of `canet fit` shows first."""


class GroupedCommands(TyperGroup):
    """The commands of canet, in groups."""

    def list_commands(self, ctx: Context) -> list[str]:
        return [name for names in GROUPS.values() for name in names]

    def format_commands(self, ctx: Context, formatter: HelpFormatter) -> None:
        for title, names in GROUPS.items():
            with formatter.section(title):
                helps = [self.commands[n].get_short_help_str(formatter.width) for n in names]
                formatter.write_dl(list(zip(names, helps, strict=True)))


class CommonFirst(TyperCommand):
    """A command whose help shows the common options first."""

    def format_options(self, ctx: Context, formatter: HelpFormatter) -> None:
        titles = ("Arguments", "Common options", "Other options")
        sections: dict[str, list[tuple[str, str]]] = {title: [] for title in titles}
        for parameter in self.get_params(ctx):
            title = "Common options" if parameter.name in COMMON else "Other options"
            title = "Arguments" if parameter.param_type_name == "argument" else title
            if record := parameter.get_help_record(ctx):
                sections[title].append(record)
        for title, records in sections.items():
            with formatter.section(title):
                formatter.write_dl(records)


app = typer.Typer(
    cls=GroupedCommands,
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
    """Node classification on graphs that shift: train, predict, diagnose, compare methods."""
    if debug:
        os.environ[DEBUG] = "1"  # worker processes see it too
