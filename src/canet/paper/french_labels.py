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
from canet.report.context import ExtraSet
from canet.runs.evaluate import open_trainer
from canet.store import RunFolder
from canet.store.config import grouped

SHIFTED = "FR, labels shifted"
SHIFTED_FR = ExtraSet(
    task="twitch",
    name=SHIFTED,
    file="published_fr.json",
    follows="ood/FR",
    about="no result",
    note="The published column of FR was most likely scored with shifted labels: it stands beside "
    "no score whose labels are in their place.",
)
REPEATED = (1018, 3754)
"""Users that the target file names twice."""


def shifted(y: Tensor) -> Tensor:
    """Labels $[n]$ by user → by row of the sorted file, the surplus rows at the end cut off."""
    rows = sorted([*range(len(y)), *(user for user in REPEATED if user < len(y))])
    return y[torch.tensor(rows[: len(y)], device=y.device)]


def write_missing(places: Sequence[RunFolder], device: str, data_root: Path | None) -> None:
    """Score the runs that are not yet, from their weights; the score is kept in their folder."""
    missing = [place for place in places if not SHIFTED_FR.read(place)]
    tasks: dict[int, ShiftTask] = {}
    for group in grouped((place.read_config(), place) for place in missing):
        config = next(iter(group.values())).read_config()
        trainer = open_trainer(config, device, data_root, tasks.get(config.data_seed))
        tasks[config.data_seed] = trainer.task
        batch = trainer.fields.batch(SHIFTED_FR.follows)
        for place in group.values():
            with torch.no_grad():
                logits = trainer.load(place).predict(batch)
            score = float(trainer.metric(logits, shifted(batch.y)))
            place.add_json(SHIFTED_FR.file, {SHIFTED: score})
