"""Runs and saved models looked through: is each what was written, and can it be used?"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import torch

from canet.data import CATALOG
from canet.errors import CanetError
from canet.estimator import load
from canet.methods import check_backbone, get_method
from canet.model_folder import MODEL
from canet.report.results import read_run
from canet.settings import override
from canet.training import RunFolder, runs_at
from canet.training.checkpoint import CONFIG, RESULT, WEIGHTS
from canet.training.record import MARKER
from canet.training.states import read_state
from canet.training.summary import summarise


@dataclass
class Verification:
    """What was looked at, and what is wrong with it.

    Args:
        problems: A line each.
        finished: Number of finished runs, damaged or not.
        unfinished: Number of the others.
        without_checksums: Number of finished runs that are older than checksums.
        models: Number of saved models.
    """

    problems: list[str] = field(default_factory=list)
    finished: int = 0
    unfinished: int = 0
    without_checksums: int = 0
    models: int = 0

    @property
    def count(self) -> str:
        """All of it in one line."""
        seen = [f"{self.finished} finished run(s)"]
        if self.without_checksums:
            seen[0] += f", {self.without_checksums} of them without checksums"
        seen += [f"{self.unfinished} unfinished run(s)"] if self.unfinished else []
        seen += [f"{self.models} model(s)"] if self.models else []
        wrong = f"{len(self.problems)} problem(s)" if self.problems else "nothing wrong"
        return f"{', '.join(seen)}: {wrong}"


def verify(path: Path) -> Verification:
    """Look through a run, a saved model, an archive, or all runs and models below a folder."""
    found = Verification()
    with runs_at(path) as root:
        for folder in _folders(root):
            if (folder / MODEL).exists():
                found.models += 1
                found.problems += _problems_of_model(folder)
                continue
            place = RunFolder(folder)
            problems = [*(_problems(place) if place.finished else _problems_of_start(place))]
            found.problems += problems
            found.finished += place.finished
            found.unfinished += not place.finished
            found.without_checksums += place.finished and not (folder / MARKER).stat().st_size
    if not found.finished + found.unfinished + found.models:
        raise CanetError(f"no run and no model at '{path}': give the folder that --out named")
    return found


def _folders(root: Path) -> list[Path]:
    """The folders at or below `root` that hold a run, finished or not, or a model."""
    signs = (MARKER, CONFIG, MODEL)
    return sorted({path.parent for sign in signs for path in root.rglob(sign) if path.is_file()})


def _problems_of_model(folder: Path) -> Iterator[str]:
    try:
        load(folder, "cpu")
    except CanetError as error:
        yield str(error)


def _problems_of_start(place: RunFolder) -> Iterator[str]:
    """What is wrong with a run that is not finished."""
    try:
        place.read_config()
    except CanetError as error:
        yield str(error)
    for path in place.checkpoints:
        try:
            read_state(path)
        except CanetError as error:
            yield f"{error}: the run goes on from the checkpoint before it, or starts over"


def _problems(place: RunFolder) -> Iterator[str]:
    """What is wrong with a finished run: first its files, and if those are whole, what they say."""
    damaged = list(_problems_of_files(place))
    if damaged:
        yield from damaged
        return
    try:
        _check_use(place)
    except CanetError as error:
        yield str(error)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        yield f"'{place.path}': no table can be made of it ({type(error).__name__}: {error})"


def _problems_of_files(place: RunFolder) -> Iterator[str]:
    """Files that are missing, or are not what the record says."""
    try:
        record = place.read_record()
    except CanetError as error:
        yield str(error)
        return
    present = {path.name for path in place.path.iterdir() if path.is_file()}
    needed = {CONFIG, RESULT} | (set() if record is None else record.keys())
    for name in sorted(needed - present):
        yield f"'{place.path / name}' is missing"
    for name in sorted(present):
        if not place.intact(name, (place.path / name).read_bytes()):
            yield f"'{place.path / name}' is damaged or was changed after the run"


def _check_use(place: RunFolder) -> None:
    """Try what runs are for: a table of the scores, and the weights in their model."""
    config, run = place.read_config(), read_run(place)
    known = CATALOG.get(config.task)
    summarise([run], known.metric if known else "accuracy")
    if place.has_metrics:
        place.read_metrics()
    method_type = get_method(config.method)
    check_backbone(config.backbone)
    settings = override(method_type.settings_type(), config.settings)
    if (place.path / WEIGHTS).exists():
        tensors = place.read_tensors(WEIGHTS)
        with torch.device("meta"):
            method = method_type(
                settings,
                config.backbone,
                tensors["model.phi_in.weight"].shape[1],
                tensors["model.phi_out.weight"].shape[0],
                len(run.result["environments_seen"] or ()),
            )
        place.load_weights(method.to_empty(device="cpu"))
