"""The ablation: scores of CaNet without each part, and learning curves without the regulariser."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.axes import Axes

from canet.methods import METHODS
from canet.paper.experiment import Experiment, difference, score
from canet.paper.finished_runs import FinishedRuns
from canet.paper.published import PAPER_BACKBONES
from canet.paper.scope import TaskSpec, split_label
from canet.report.figures import Style, draw_band, draw_rows, new_figure, share_legend, tidy
from canet.report.labels import backbone_label
from canet.report.tables import Cell, Table
from canet.store import RunConfig
from canet.store.summary import OOD_MEAN
from canet.util.rendering import save_figure

FULL, NO_REGULARISER = "full", "w/o Reg Loss"
VARIANTS: dict[str, dict[str, Any]] = {
    FULL: {},
    NO_REGULARISER: {"prior": "none"},
    "w/ VPrior Reg": {"prior": "mixture"},
    "w/o Layer Env": {"shared_environment": True},
    "w/o Para Env": {"learned_environment": False},
    "one branch": {"num_environments": 1, "prior": "none"},
}
"""Name of a variant in the paper → changed settings. The last variant is not in the paper."""
CANET_COLOUR, ABLATED_COLOUR = METHODS["canet"].colour.light, "0.45"
"""Colours of CaNet, and of CaNet without one of its parts."""


class Ablation(Experiment):
    name = "ablation"
    title = "Ablation"
    tasks = ("cora", "arxiv", "twitch")
    quick_tasks = ("cora",)

    def configs(self) -> list[RunConfig]:
        return [
            config
            for spec in self.specs
            for backbone in PAPER_BACKBONES
            for variant in VARIANTS
            for config in self._jobs(spec, backbone, variant)
        ]

    def tables(self, finished: FinishedRuns) -> list[Table]:
        return [self._table(finished, spec) for spec in self.specs]

    def draw(self, finished: FinishedRuns, folder: Path) -> None:
        for spec in self.specs:
            self._draw_parts(finished, spec, folder)
            if _has_curves(spec):
                self._draw_curves(finished, spec, folder)

    def _jobs(self, spec: TaskSpec, backbone: str, variant: str) -> list[RunConfig]:
        curves, changes = _has_curves(spec), VARIANTS[variant]
        return self.runs(spec, "canet", backbone, ood_curves=curves, changes=changes)

    def _table(self, finished: FinishedRuns, spec: TaskSpec) -> Table:
        splits = [OOD_MEAN, *spec.ood_sets, "test_id"]
        rows: list[list[Cell]] = []
        for backbone in PAPER_BACKBONES:
            full = self._jobs(spec, backbone, FULL)
            for variant in VARIANTS:
                jobs = self._jobs(spec, backbone, variant)
                scores = [score(finished, jobs, split) for split in splits]
                gain = "" if variant == FULL else difference(finished, jobs, full, OOD_MEAN)
                rows.append([backbone_label(backbone), variant, *scores, gain])
        heads = ["OOD mean", *map(split_label, splits[1:]), "OOD mean − full"]
        note = "OOD mean − full: difference from the full model, paired by repeat."
        columns, notes = ["backbone", "variant", *heads], [*self.notes(), note]
        return self.table(spec.task, spec.label, columns, rows, notes)

    def _draw_parts(self, finished: FinishedRuns, spec: TaskSpec, folder: Path) -> None:
        """Draw a panel for each OOD set and backbone, with a row for each variant."""
        splits = spec.ood_sets
        figure = new_figure(len(splits), 2, 5.2, 2.1)
        panels = figure.subplots(len(splits), 2, sharex="row", sharey=True, squeeze=False)
        for row, split in zip(panels, splits, strict=True):
            for axes, backbone in zip(row, PAPER_BACKBONES, strict=True):
                rows = []
                for variant in VARIANTS:
                    scores = finished.scores(self._jobs(spec, backbone, variant), split)
                    rows.append(
                        (variant, CANET_COLOUR if variant == FULL else ABLATED_COLOUR, scores)
                    )
                draw_rows(axes, rows)
                tidy(axes, f"CaNet-{backbone_label(backbone)}, {split_label(split)}")
        figure.suptitle(spec.label, x=0.01, ha="left", fontsize="medium")
        for axes in panels[-1]:
            axes.set_xlabel(f"OOD {spec.metric} %")
        save_figure(figure, folder, self.file_name(f"bars-{spec.task}"))

    def _draw_curves(self, finished: FinishedRuns, spec: TaskSpec, folder: Path) -> None:
        figure = new_figure(1, 2, 5.2, 3.8)
        panels = figure.subplots(1, 2, sharey=True)
        for axes, backbone in zip(panels, PAPER_BACKBONES, strict=True):
            for variant, colour in ((FULL, CANET_COLOUR), (NO_REGULARISER, ABLATED_COLOUR)):
                run_folders = finished.folders(self._jobs(spec, backbone, variant))
                histories = [run_folder.read_metrics() for run_folder in run_folders]
                suffix = f"{'with' if variant == FULL else 'without'} regulariser"
                ood = [np.mean([h[s] for s in spec.ood_sets], axis=0) for h in histories]
                train = [np.array(history["train"]) for history in histories]
                _draw_curve(axes, ood, Style(colour), f"OOD test, {suffix}")
                _draw_curve(axes, train, Style(colour, dashes=":"), f"training, {suffix}")
            tidy(axes, f"CaNet-{backbone_label(backbone)}, {spec.label}", "epoch")
        panels[0].set_ylabel(f"{spec.metric} %")
        share_legend(figure, panels[0], columns=4)
        save_figure(figure, folder, self.file_name(f"curves-{spec.task}"))


def _has_curves(spec: TaskSpec) -> bool:
    """Whether all splits are scored at every epoch: on the task of the paper's learning curves."""
    return spec.task in ("cora", "synthetic")


def _draw_curve(axes: Axes, curves: Sequence[np.ndarray], style: Style, label: str) -> None:
    """Draw mean and spread over the epochs; all runs have the same length."""
    if curves:
        table = np.stack(curves).T
        draw_band(axes, range(1, len(table) + 1), table.tolist(), style, label)
