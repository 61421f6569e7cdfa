"""Scores on Twitch FR with shifted labels, for the comparison with the published column.

The target file of FR lists two users twice. If it is read row by row, without removing the repeated
rows, every later user gets the label of another user. The published column was most likely computed
that way. These scores are not a result.
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
from canet.store.config import group_by_configuration

SHIFTED = "FR, labels shifted"
SHIFTED_FR = ExtraSet(
    task="twitch",
    name=SHIFTED,
    file="published_fr.json",
    follows="ood/FR",
    subtitle="not a result",
    note="The published scores on FR were most likely computed with shifted labels. They are shown "
    "only next to our scores with shifted labels.",
)
REPEATED = (1018, 3754)
"""Users that the target file lists twice."""


def shift_labels(y: Tensor) -> Tensor:
    """Labels $[n]$ by user → labels by row of the sorted file, cut to the same length."""
    rows = sorted([*range(len(y)), *(user for user in REPEATED if user < len(y))])
    return y[torch.tensor(rows[: len(y)], device=y.device)]


def add_missing_scores(
    run_folders: Sequence[RunFolder], device: str, data_root: Path | None
) -> None:
    """Score runs from their weights, and add the score to their folders, if it is not there."""
    missing = [folder for folder in run_folders if not SHIFTED_FR.read(folder)]
    tasks: dict[int, ShiftTask] = {}
    for group in group_by_configuration((f.read_config(), f) for f in missing):
        config = next(iter(group.values())).read_config()
        trainer = open_trainer(config, device, data_root, tasks.get(config.data_seed))
        tasks[config.data_seed] = trainer.task
        batch = trainer.fields.batch(SHIFTED_FR.follows)
        for folder in group.values():
            with torch.no_grad():
                logits = trainer.load(folder).predict(batch)
            score = float(trainer.metric(logits, shift_labels(batch.y)))
            folder.add_json(SHIFTED_FR.file, {SHIFTED: score})
