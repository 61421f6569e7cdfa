"""What came out of many: `canet report` and `archive`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from canet.cli.app import app


@app.command()
def report(
    runs: Annotated[Path, typer.Argument(help="Folder of runs or of a reproduction, or archive.")],
    out: Annotated[
        Path | None,
        typer.Option("--out", "-o", help="The page. Default: report.html in RUNS, or beside it."),
    ] = None,
) -> None:
    """One self-contained page about finished runs: who wins, curves, figures, settings."""
    from canet.paper.paper_report import write_report

    target = out or (runs.parent if runs.is_file() else runs) / "report.html"
    write_report(runs, target)
    print(f"Report: {target}")


@app.command()
def archive(
    runs: Annotated[Path, typer.Argument(help="Folder of runs, or of a reproduction.")],
    out: Annotated[Path, typer.Option("--out", "-o", help="The file, such as runs.tar.xz.")],
) -> None:
    """One small file of all finished runs, without weights: what tables and reports need."""
    from canet.store import find_runs, write_archive

    count = write_archive(find_runs(runs), out)
    print(f"{count} runs: {out}, {out.stat().st_size / 2**20:.1f} MB")
