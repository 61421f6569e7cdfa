"""Runs and saved models looked through: is each what was written, and can it be used?"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import torch
from torch import Tensor, nn

from canet.data import DATASETS
from canet.errors import CanetError
from canet.estimator.classifier import load
from canet.methods import check_backbone, get_method
from canet.report.results import read_run
from canet.settings import override
from canet.store import RunFolder, runs_at
from canet.store.folders import folders_below
from canet.store.model_folder import MODEL
from canet.store.record import MARKER
from canet.store.run_folder import CONFIG, RESULT, WEIGHTS
from canet.store.states import read_state
from canet.store.summary import summarise


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
    """Look through a run, a saved model, an archive, or all runs and models below a folder.

    Links to folders are followed; what cannot be looked at is a problem, too.
    """
    found = Verification()

    def unreadable(error: OSError) -> None:
        found.problems.append(f"'{error.filename}' cannot be read ({error.strerror})")

    with runs_at(path) as root:
        for folder in folders_below(root, unreadable):
            try:
                _look_at(folder, found)
            except Exception as error:  # the others are looked at all the same
                cause = " ".join(f"{type(error).__name__}: {error}".split())
                found.problems.append(f"'{folder}' cannot be used ({cause})")
    if not found.finished + found.unfinished + found.models + len(found.problems):
        raise CanetError(f"no run and no model at '{path}': give the folder that --out named")
    return found


def _dead_links(folder: Path) -> Iterator[str]:
    for path in sorted(folder.iterdir()):
        if path.is_symlink() and not path.exists():
            yield f"'{path}' is a link to what is not there"


def _look_at(folder: Path, found: Verification) -> None:
    """Count the run or model of a folder, if there is one, and add what is wrong with it."""
    found.problems += _dead_links(folder)
    if not any((folder / sign).is_file() for sign in (MARKER, CONFIG, MODEL)):
        return
    place = RunFolder(folder)
    if (folder / MODEL).exists():
        found.models += 1
        found.problems += _problems_of_model(folder)
    elif place.finished:
        found.finished += 1
        found.without_checksums += not (folder / MARKER).stat().st_size
        found.problems += _problems(place)
    else:
        found.unfinished += 1
        found.problems += _problems_of_start(place)


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
    known = DATASETS.get(config.task)
    summarise([run], known.metric if known else "accuracy")
    if place.has_metrics:
        place.read_metrics()
    method_type = get_method(config.method)
    check_backbone(config.backbone)
    settings = override(method_type.settings_type(), config.settings)
    num_environments = len(run.result["environments_seen"] or ())

    def new_method(num_features: int, num_classes: int) -> nn.Module:
        return method_type(settings, config.backbone, num_features, num_classes, num_environments)

    if (place.path / WEIGHTS).exists() and not _fit(place.read_tensors(WEIGHTS), new_method):
        raise CanetError(
            f"'{place.path / WEIGHTS}' does not fit the model of the run's settings: delete "
            f"'{place.path}' and train the run again"
        )


def _fit(tensors: Mapping[str, Tensor], new_method: Callable[[int, int], nn.Module]) -> bool:
    """Whether weights are those of a method for as many features and classes as they tell."""
    first, last = (tensors.get(f"model.{name}.weight") for name in ("phi_in", "phi_out"))
    if first is None or last is None:
        return False
    if not (first.dim() == last.dim() == 2 and first.numel() and last.numel()):
        return False
    with torch.device("meta"):  # shapes alone, which take no memory
        expected = new_method(first.shape[1], last.shape[0]).state_dict()
    return _kinds(expected) == _kinds(tensors)


def _kinds(tensors: Mapping[str, Tensor]) -> dict[str, tuple[torch.Size, torch.dtype]]:
    return {name: (tensor.shape, tensor.dtype) for name, tensor in tensors.items()}
