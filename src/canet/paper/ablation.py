"""The ablations: learning curves with and without the regulariser, scores without each part."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from canet.methods import METHODS
from canet.paper.experiment import Experiment, difference, score
from canet.paper.finished import Finished
from canet.paper.published import PAPER_BACKBONES
from canet.paper.scope import Subject, split_label
from canet.report.figures import (
    Style,
    draw_band,
    draw_rows,
    new_figure,
    save_figure,
    share_legend,
    tidy,
)
from canet.report.labels import backbone_label
from canet.report.tables import Cell, Table
from canet.store import RunConfig
from canet.store.summary import OOD_MEAN

FULL, NO_REGULARISER = "full", "w/o Reg Loss"
VARIANTS: dict[str, dict[str, Any]] = {
    FULL: {},
    NO_REGULARISER: {"prior": "none"},
    "w/ VPrior Reg": {"prior": "mixture"},
    "w/o Layer Env": {"shared_environment": True},
    "w/o Para Env": {"learned_environment": False},
    "one branch": {"num_environments": 1, "prior": "none"},
}
"""A variant → what it changes, under the paper's names; the last, without any environment, is ours.
"""
OURS, LESSENED = METHODS["canet"].colour.light, "0.45"
"""The colours of CaNet, and of CaNet without one of its parts."""


class Ablation(Experiment):
    """CaNet without one of its parts."""

    name = "ablation"
    title = "Ablation"
    tasks = ("cora", "arxiv", "twitch")
    quick_tasks = ("cora",)

    def configs(self) -> list[RunConfig]:
        return [
            config
            for subject in self.subjects
            for backbone in PAPER_BACKBONES
            for variant in VARIANTS
            for config in self._jobs(subject, backbone, variant)
        ]

    def tables(self, finished: Finished) -> list[Table]:
        return [self._table(finished, subject) for subject in self.subjects]

    def draw(self, finished: Finished, folder: Path) -> None:
        for subject in self.subjects:
            self._draw_parts(finished, subject, folder)
            if _has_curves(subject):
                self._draw_curves(finished, subject, folder)

    def _jobs(self, subject: Subject, backbone: str, variant: str) -> list[RunConfig]:
        curves, changes = _has_curves(subject), VARIANTS[variant]
        return self.runs(subject, "canet", backbone, ood_curves=curves, changes=changes)

    def _table(self, finished: Finished, subject: Subject) -> Table:
        splits = [OOD_MEAN, *subject.ood_sets, "test_id"]
        rows: list[list[Cell]] = []
        for backbone in PAPER_BACKBONES:
            full = self._jobs(subject, backbone, FULL)
            for variant in VARIANTS:
                jobs = self._jobs(subject, backbone, variant)
                scores = [score(finished, jobs, split) for split in splits]
                lost = "" if variant == FULL else difference(finished, jobs, full, OOD_MEAN)
                rows.append([backbone_label(backbone), variant, *scores, lost])
        heads = ["OOD mean", *map(split_label, splits[1:]), "OOD mean, above full"]
        note = "Above full: difference of the OOD mean to the full model, repeat by repeat."
        columns, notes = ["backbone", "variant", *heads], [*self.notes(), note]
        return self.table(subject.task, subject.label, columns, rows, notes)

    def _draw_parts(self, finished: Finished, subject: Subject, folder: Path) -> None:
        """A panel for each OOD set and backbone, a row for each variant."""
        splits = subject.ood_sets
        figure = new_figure(len(splits), 2, 5.2, 2.1)
        panels = figure.subplots(len(splits), 2, sharex="row", sharey=True, squeeze=False)
        for row, split in zip(panels, splits, strict=True):
            for axes, backbone in zip(row, PAPER_BACKBONES, strict=True):
                rows = []
                for variant in VARIANTS:
                    scores = finished.scores(self._jobs(subject, backbone, variant), split)
                    rows.append((variant, OURS if variant == FULL else LESSENED, scores))
                draw_rows(axes, rows)
                tidy(axes, f"CaNet-{backbone_label(backbone)}, {split_label(split)}")
        figure.suptitle(subject.label, x=0.01, ha="left", fontsize="medium")
        for axes in panels[-1]:
            axes.set_xlabel(f"OOD {subject.metric} %")
        save_figure(figure, folder, self.file_name(f"bars-{subject.task}"))

    def _draw_curves(self, finished: Finished, subject: Subject, folder: Path) -> None:
        figure = new_figure(1, 2, 5.2, 3.8)
        panels = figure.subplots(1, 2, sharey=True)
        for axes, backbone in zip(panels, PAPER_BACKBONES, strict=True):
            for variant, colour in ((FULL, OURS), (NO_REGULARISER, LESSENED)):
                places = finished.places(self._jobs(subject, backbone, variant))
                histories = [place.read_metrics() for place in places]
                words = f"{'with' if variant == FULL else 'without'} regulariser"
                ood = [np.mean([h[s] for s in subject.ood_sets], axis=0) for h in histories]
                train = [np.array(history["train"]) for history in histories]
                _draw_curve(axes, ood, Style(colour), f"OOD test, {words}")
                _draw_curve(axes, train, Style(colour, dashes=":"), f"training, {words}")
            tidy(axes, f"CaNet-{backbone_label(backbone)}, {subject.label}", "epoch")
        panels[0].set_ylabel(f"{subject.metric} %")
        share_legend(figure, panels[0], columns=4)
        save_figure(figure, folder, self.file_name(f"curves-{subject.task}"))


def _has_curves(subject: Subject) -> bool:
    """Every epoch is scored on the task of the paper's learning curves."""
    return subject.task in ("cora", "synthetic")


def _draw_curve(axes: Any, curves: Sequence[np.ndarray], style: Style, label: str) -> None:
    """A band over the epochs; runs of the same length."""
    if curves:
        table = np.stack(curves).T
        draw_band(axes, range(1, len(table) + 1), table.tolist(), style, label)
