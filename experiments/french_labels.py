"""Scores on Twitch FR with shifted labels, for the comparison with the published column.

    python -m experiments.french_labels RUNS [--device cuda]

prints a table of the runs of `canet reproduce table2`, given as a folder or an archive. The score
of a run is computed from its weights once, and is stored in its folder as `published_fr.json`.

The target file of FR lists two users twice. If it is read row by row, without removing the repeated
rows, every later user gets the label of another user. The published column was most likely computed
that way. The scores with shifted labels are not a result.
"""

from __future__ import annotations

import argparse
from dataclasses import replace
from pathlib import Path

import torch
from torch import Tensor

from canet.paper.experiment import score
from canet.paper.finished_runs import FinishedRuns
from canet.paper.published import PAPER_BACKBONES, SHIFTED_FR, published
from canet.paper.published_tables import Table2
from canet.paper.scope import Scope
from canet.report.labels import backbone_label
from canet.report.score import Score
from canet.report.tables import Cell, Table
from canet.runs.evaluate import load_task_of, open_learner
from canet.store import RunFolder, open_runs

FILE = "published_fr.json"
REPEATED = (1018, 3754)
"""Users that the target file lists twice."""


def shift_labels(y: Tensor) -> Tensor:
    """Labels $[n]$ by user → labels by row of the sorted file, cut to the same length."""
    rows = sorted([*range(len(y)), *(user for user in REPEATED if user < len(y))])
    return y[torch.tensor(rows[: len(y)], device=y.device)]


def shifted_score(folder: RunFolder, device: str = "auto", data_root: Path | None = None) -> float:
    """The score of a run on FR with shifted labels, from its folder or else from its weights."""
    if not (folder.path / FILE).exists():
        config = folder.read_config()
        task, learner = load_task_of(config, data_root), open_learner(config, device)
        logits = learner.load(task, folder).logits(task)["ood/FR"]
        found = float(task.scorer(logits, shift_labels(task.y[task.test_ood["FR"]])))
        folder.add_json(FILE, {SHIFTED_FR: found})
    return float(folder.read_json(FILE)[SHIFTED_FR])


def table(finished: FinishedRuns, device: str = "auto", data_root: Path | None = None) -> Table:
    """Scores on FR with correct and with shifted labels, next to the published scores."""
    available = frozenset({("twitch", "original")})
    table2 = Table2(Scope(tasks=("twitch",), data_root=data_root, available_features=available))
    (spec,) = table2.specs
    rows: list[list[Cell]] = []
    for backbone in PAPER_BACKBONES:
        for row in table2.method_rows(backbone):
            jobs = table2.jobs(spec, row, backbone, table2.scope.repeats(spec))
            paper = None if row.is_searched else published(jobs[0], SHIFTED_FR)
            values = [shifted_score(f, device, data_root) for f in finished.folders(jobs)]
            shifted = replace(Score(values, len(jobs)), published=paper)
            cells = score(finished, jobs, "ood/FR"), shifted
            rows.append([backbone_label(backbone), row.label, *cells])
    columns = ["backbone", "method", "FR", SHIFTED_FR]
    return Table("french-labels", "Twitch FR: ROC-AUC %", columns, rows)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("runs", type=Path)
    parser.add_argument("--device", default="auto")
    arguments = parser.parse_args()
    with open_runs(arguments.runs) as root:
        print(table(FinishedRuns(root), arguments.device).markdown())


if __name__ == "__main__":
    main()
