"""How fast it is: `canet bench`."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Annotated

import typer

from canet.cli.app import app
from canet.cli.options import (
    DataRoot,
    Device,
    DeviceOption,
    Quiet,
    names,
)
from canet.errors import CanetError


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
        float | None, typer.Option(min=0, max=3600, help="About how long to time each contestant.")
    ] = None,
    device: DeviceOption = Device.auto,
    data_root: DataRoot = None,
    out: Annotated[
        Path, typer.Option(help="JSON file for the measurements; pictures go beside it.")
    ] = Path("bench.json"),
    quiet: Quiet = False,
) -> None:
    """Speed and memory of CaNet and ERM beside a plain implementation of the equations."""
    if growth and (full or tasks):
        raise CanetError("--growth measures nothing else: leave out --full and --tasks")
    command = ["canet", "bench", *(["--growth"] if growth else ["--full" if full else "--quick"])]
    command += ["--device", device.value]
    command += ["--tasks", tasks] if tasks else []
    command += ["--seconds", f"{seconds:g}"] if seconds is not None else []
    from benchmarks.harness import run_bench

    run_bench(
        out,
        full,
        names(tasks),
        growth,
        device.value,
        seconds,
        data_root,
        quiet,
        shlex.join(command),
    )
