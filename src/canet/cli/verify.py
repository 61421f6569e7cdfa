"""`canet verify`: read every file of runs, models and graph stores, and print the errors."""

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

import typer

from canet.cli.app import app
from canet.errors import CanetError, printable

KINDS = ("finished run", "unfinished run", "model", "graph store")


@app.command()
def verify(
    paths: Annotated[
        list[Path],
        typer.Argument(help="Folders with runs, models or graph stores, or archives of runs."),
    ],
) -> None:
    """Check files of runs, models and graph stores by their checksums."""
    from canet.store import open_runs
    from canet.store.run_folder import folders_below

    counts: Counter[str] = Counter()
    problems: list[str] = []

    def unreadable(error: OSError) -> None:
        problems.append(f"cannot read '{error.filename}' ({error.strerror})")

    for path in paths:
        before = sum(counts.values()), len(problems)
        with open_runs(path) as root:
            for folder in folders_below(root, unreadable):
                for link in sorted(folder.iterdir()):
                    if link.is_symlink() and not link.exists():
                        problems.append(f"'{link}' is a link to a missing file or folder")
                if kind := _kind(folder):
                    counts[kind] += 1
                    try:
                        problems.extend(_problems(folder, kind))
                    except CanetError as error:
                        problems.append(str(error))
        if before == (sum(counts.values()), len(problems)):
            raise CanetError(
                f"'{path}' contains no run, no model and no graph store: pass the folder given to "
                "--out"
            )
    for problem in problems:
        print(" ".join(printable(problem).split()))
    shown = [kind for kind in KINDS if counts[kind] or kind == KINDS[0]]
    seen = ", ".join(f"{counts[kind]} {kind}(s)" for kind in shown)
    print(f"{seen}: {f'{len(problems)} problem(s)' if problems else 'no problems'}")
    if problems:
        raise typer.Exit(2)


def _kind(folder: Path) -> str | None:
    """Return what a folder contains."""
    from canet.data.graph_store import is_graph_store
    from canet.store.model_folder import MODEL
    from canet.store.run_folder import CONFIG, MARKER

    if (folder / MODEL).exists():
        return "model"
    if (folder / MARKER).is_file():
        return "finished run"
    if (folder / CONFIG).is_file():
        return "unfinished run"
    return "graph store" if is_graph_store(folder) else None


def _problems(folder: Path, kind: str) -> Iterator[str]:
    """Read all files of a folder, and yield the problems; another problem is a `CanetError`."""
    from canet.data.graph_store import GraphStore
    from canet.estimator.classifier import load
    from canet.store import RunFolder
    from canet.store.run_folder import read_checkpoint

    if kind == "model":
        load(folder, "cpu")
    elif kind == "graph store":
        yield from GraphStore(folder).problems()
    else:
        run = RunFolder(folder)
        if changed := run.problems() if run.finished else []:
            yield from changed
            return
        run.read_config()
        if run.finished:
            run.read_result()
        if run.finished and run.has_metrics:
            run.read_metrics()
        for checkpoint in run.checkpoints:
            read_checkpoint(checkpoint)
