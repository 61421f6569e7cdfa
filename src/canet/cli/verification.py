"""Check runs, saved models and graph stores: read every file and collect the errors."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from canet.data.graph_store import GraphStore, is_graph_store
from canet.errors import CanetError
from canet.estimator.classifier import load
from canet.store import RunFolder, open_runs
from canet.store.folders import folders_below
from canet.store.model_folder import MODEL
from canet.store.run_folder import CONFIG, MARKER, read_checkpoint


@dataclass
class Verification:
    """Counts of what was read, and the problems."""

    problems: list[str] = field(default_factory=list)  # a line each
    finished: int = 0  # number of finished runs, with problems or without
    unfinished: int = 0  # number of the others
    models: int = 0  # number of saved models
    stores: int = 0  # number of graph stores

    @property
    def count(self) -> str:
        """The counts in one line."""
        seen = [f"{self.finished} finished run(s)"]
        seen += [f"{self.unfinished} unfinished run(s)"] if self.unfinished else []
        seen += [f"{self.models} model(s)"] if self.models else []
        seen += [f"{self.stores} graph store(s)"] if self.stores else []
        wrong = f"{len(self.problems)} problem(s)" if self.problems else "no problems"
        return f"{', '.join(seen)}: {wrong}"

    def attempt(self, read: Callable[[], object]) -> None:
        """Call `read`, and record an error as a problem."""
        try:
            read()
        except CanetError as error:
            self.problems.append(str(error))


def verify(path: Path) -> Verification:
    """Read a run, a saved model, a graph store, an archive, or all of these below a folder.

    Links to folders are followed. A folder that cannot be listed is a problem.
    """
    found = Verification()

    def unreadable(error: OSError) -> None:
        found.problems.append(f"cannot read '{error.filename}' ({error.strerror})")

    with open_runs(path) as root:
        for folder in folders_below(root, unreadable):
            _verify_folder(folder, found)
    seen = found.finished + found.unfinished + found.models + found.stores
    if not seen + len(found.problems):
        raise CanetError(
            f"'{path}' contains no run, no model and no graph store: pass the folder given to --out"
        )
    return found


def _verify_folder(folder: Path, found: Verification) -> None:
    """Count the run, model or store in a folder, if any, and record its problems."""
    for link in sorted(folder.iterdir()):
        if link.is_symlink() and not link.exists():
            found.problems.append(f"'{link}' is a link to a missing file or folder")
    if (folder / MODEL).exists():
        found.models += 1
        found.attempt(lambda: load(folder, "cpu"))
    elif (folder / MARKER).is_file():
        found.finished += 1
        place = RunFolder(folder)
        if changed := place.problems():
            found.problems += changed
            return
        found.attempt(place.read_config)
        found.attempt(place.read_result)
        if place.has_metrics:
            found.attempt(place.read_metrics)
    elif (folder / CONFIG).is_file():
        found.unfinished += 1
        place = RunFolder(folder)
        found.attempt(place.read_config)
        for checkpoint in place.checkpoints:
            found.attempt(lambda path=checkpoint: read_checkpoint(path))  # type: ignore[misc]
    elif is_graph_store(folder):
        found.stores += 1
        found.attempt(lambda: found.problems.extend(GraphStore(folder).problems()))
