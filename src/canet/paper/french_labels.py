"""Twitch's FR scored with shifted labels: how the published column most likely came about.

The target file of FR has two users twice. Taken row by row, sorted but with the repeats in, every
user behind them gets the label of another. No result: it is only set beside the published column.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import torch
from torch import Tensor

from canet.data.task import ShiftTask
from canet.files import read_json, write_json
from canet.report.results import results_of
from canet.runs.evaluate import open_trainer
from canet.training import RunFolder

SPLIT, SHIFTED = "ood/FR", "FR, labels shifted"
FILE = "published_fr.json"
REPEATED = (1018, 3754)
"""Users that the target file names twice."""


def shifted(y: Tensor) -> Tensor:
    """Labels $[n]$ by user → by row of the sorted file, the surplus rows at the end cut off."""
    rows = sorted([*range(len(y)), *(user for user in REPEATED if user < len(y))])
    return y[torch.tensor(rows[: len(y)], device=y.device)]


def write_missing(places: Sequence[RunFolder], device: str, data_root: Path | None) -> None:
    """Score the runs that are not yet, from their weights; the score is kept in their folder."""
    missing = [place for place in places if not (place.path / FILE).exists()]
    task: ShiftTask | None = None
    for result in sorted(results_of(missing), key=lambda result: result.config.data_seed):
        if task is not None and task.data_seed != result.config.data_seed:
            task = None
        trainer = open_trainer(result.config, device, data_root, task)
        task = trainer.task
        batch = trainer.fields.batch(SPLIT)
        for place in result.places:
            with torch.no_grad():
                logits = trainer.load(place).predict(batch)
            score = float(trainer.metric(logits, shifted(batch.y)))
            write_json(place.path / FILE, {SHIFTED: score})


def read(places: Sequence[RunFolder]) -> list[float]:
    """The scores in percent of those runs that have one."""
    files = [place.path / FILE for place in places]
    return [float(read_json(file)[SHIFTED]) for file in files if file.exists()]
