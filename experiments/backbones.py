"""A study of five backbones with the same settings, with ERM and CaNet."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import NamedTuple

from canet.defaults import shared
from canet.methods import BACKBONES
from canet.paper.experiment import Experiment, difference, score
from canet.paper.finished_runs import FinishedRuns
from canet.paper.scope import TaskSpec
from canet.report.figures import draw_bars, new_figure, share_legend, tidy
from canet.report.labels import backbone_label, method_label
from canet.report.score import Score
from canet.report.tables import Cell, Table
from canet.store import RunConfig
from canet.store.summary import OOD_MEAN
from canet.util.rendering import save_figure

TRANSFORMER = "transformer"
COMPARED = ("gcn", "gat", "sage", "gin", TRANSFORMER)
COLUMNS = 4
"""Number of panels in a row of the figure."""
DIFFERENCES = (
    "Difference of OOD scores in percentage points, paired by draw: mean ± standard deviation."
)


class TaskProtocol(NamedTuple):
    """A task under one of its protocols."""

    spec: TaskSpec
    protocol: str

    @property
    def label(self) -> str:
        label = self.spec.label
        return f"{label}, {self.protocol}" if self.spec.is_spurious else label


class Backbones(Experiment):
    """Methods on five backbones, and the difference between global attention and the others."""

    name = "backbones"
    title = "Backbones"
    tasks = ("cora", "citeseer", "pubmed", "twitch")
    quick_tasks = ("cora",)
    methods = ("erm", "canet")
    quick_methods = ("erm", "canet")

    def configs(self) -> list[RunConfig]:
        return [
            config
            for case in self._cases()
            for backbone in COMPARED
            for method in self.chosen_methods
            for config in self._jobs(case, method, backbone)
        ]

    def tables(self, finished: FinishedRuns) -> list[Table]:
        return [self._scores(finished), self._attention(finished), self._methods(finished)]

    def draw(self, finished: FinishedRuns, folder: Path) -> None:
        cases = self._cases()
        columns = min(COLUMNS, len(cases))
        rows = -(-len(cases) // columns)
        figure = new_figure(rows, columns, max(3.4, 7 / columns), 3.0)
        panels = figure.subplots(rows, columns, squeeze=False).ravel()
        for axes, case in zip(panels, cases, strict=False):
            bars = [
                (
                    backbone_label(name),
                    BACKBONES[name].colour.light,
                    [
                        finished.scores(self._jobs(case, method, name), OOD_MEAN)
                        for method in self.chosen_methods
                    ],
                )
                for name in COMPARED
            ]
            draw_bars(axes, [method_label(method) for method in self.chosen_methods], bars)
            axes.set_ylim(0, 100)
            tidy(axes, case.label, y="OOD score %")
        for axes in panels[len(cases) :]:
            axes.set_axis_off()
        share_legend(figure, panels[0], columns=len(COMPARED))
        save_figure(figure, folder, self.file_name())

    def _cases(self) -> list[TaskProtocol]:
        protocols = slice(1 if self.scope.quick else None)
        return [
            TaskProtocol(spec, protocol)
            for spec in self.specs
            for protocol in spec.protocols[protocols]
        ]

    def _jobs(self, case: TaskProtocol, method: str, backbone: str) -> list[RunConfig]:
        spec, protocol = case
        changes = asdict(shared(spec.task, method))
        return self.runs(spec, method, backbone, protocol=protocol, changes=changes)

    def _scores(self, finished: FinishedRuns) -> Table:
        rows: list[list[Cell]] = []
        for case in self._cases():
            for backbone in COMPARED:
                jobs = [self._jobs(case, method, backbone) for method in self.chosen_methods]
                scores = [
                    score(finished, j, split) for split in (OOD_MEAN, "test_id") for j in jobs
                ]
                rows.append([case.label, backbone_label(backbone), *scores])
        heads = [
            f"{method_label(method)} {split}"
            for split in ("OOD", "ID")
            for method in self.chosen_methods
        ]
        notes = [
            *self.notes(),
            "All backbones have the same settings: the defaults and the loss of the task. No "
            "settings were searched.",
        ]
        subtitle, columns = "all backbones with the same settings", ["task", "backbone", *heads]
        return self.table("", subtitle, columns, rows, notes).ranked()

    def _attention(self, finished: FinishedRuns) -> Table:
        """Score of the Transformer minus that of each other backbone, paired by draw."""
        others = [name for name in COMPARED if name != TRANSFORMER]
        rows = [
            [case.label, method_label(method)]
            + [
                self._difference(finished, case, method, TRANSFORMER, method, other)
                for other in others
            ]
            for case in self._cases()
            for method in self.chosen_methods
        ]
        notes = [
            DIFFERENCES,
            "CaNet-Transformer is CaNet-GCN in which attention over the whole graph replaces "
            "half of each sum over neighbours.",
        ]
        columns = [
            "task",
            "method",
            *(f"Transformer − {backbone_label(other)}" for other in others),
        ]
        subtitle = "Transformer minus other backbones, under shift"
        return self.table("attention", subtitle, columns, rows, notes)

    def _methods(self, finished: FinishedRuns) -> Table:
        """Score of each method minus that of the first, paired by draw."""
        first, *others = self.chosen_methods
        rows = [
            [case.label, method_label(method)]
            + [self._difference(finished, case, method, name, first, name) for name in COMPARED]
            for case in self._cases()
            for method in others
        ]
        columns = ["task", "method", *(backbone_label(backbone) for backbone in COMPARED)]
        subtitle = f"methods minus {method_label(first)}, under shift"
        return self.table("methods", subtitle, columns, rows, [DIFFERENCES])

    def _difference(self, finished: FinishedRuns, case: TaskProtocol, *models: str) -> Score:
        """Score of one method and backbone minus that of another, paired by draw."""
        first, second = self._jobs(case, *models[:2]), self._jobs(case, *models[2:])
        return difference(finished, first, second, OOD_MEAN)
