"""`python -m benchmarks`: how fast it is, and how much memory it needs."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Annotated

import typer

from benchmarks.harness import run_bench
from canet.cli.main import main
from canet.cli.options import DataRoot, Device, Quiet, names
from canet.errors import CanetError

app = typer.Typer(add_completion=False, pretty_exceptions_enable=False, rich_markup_mode=None)


@app.command()
def bench(
    full: Annotated[
        bool, typer.Option("--full/--quick", help="All tasks and growth, or a few minutes' worth.")
    ] = False,
    tasks: Annotated[str | None, typer.Option(help="Only these tasks, such as cora,arxiv.")] = None,
    growth: Annotated[
        bool, typer.Option("--growth", help="Only how cost grows with the graph and the model.")
    ] = False,
    seconds: Annotated[
        float | None, typer.Option(min=0, max=3600, help="About how long to time each contender.")
    ] = None,
    device: Device = "auto",
    data_root: DataRoot = None,
    out: Annotated[
        Path, typer.Option(help="JSON file for the measurements; pictures go next to it.")
    ] = Path("bench.json"),
    quiet: Quiet = False,
) -> None:
    """Speed and memory of CaNet and ERM compared with a plain implementation of the equations."""
    if growth and (full or tasks):
        raise CanetError("--growth measures nothing else: leave out --full and --tasks")
    what = "--growth" if growth else "--full" if full else "--quick"
    command = ["python", "-m", "benchmarks", what, "--device", device]
    command += ["--tasks", tasks] if tasks else []
    command += ["--seconds", f"{seconds:g}"] if seconds is not None else []
    run_bench(
        out,
        shlex.join(command),
        full,
        names(tasks),
        growth,
        device,
        seconds,
        data_root,
        quiet,
    )


if __name__ == "__main__":
    main(app, "benchmarks")
