"""A study of protocols and selection rules: how well CaNet does on new nodes."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product
from pathlib import Path
from statistics import mean
from typing import Any

from canet.data.benchmarks.dataset import PROTOCOLS
from canet.methods import METHODS
from canet.paper.experiment import Experiment, difference, score
from canet.paper.finished_runs import FinishedRuns
from canet.paper.scope import TaskSpec
from canet.report.comparison import CONTROLS
from canet.report.figures import draw_bars, new_figure, share_legend, tidy
from canet.report.labels import backbone_label, method_label
from canet.report.score import Score
from canet.report.tables import Cell, Table
from canet.store import RunConfig
from canet.store.summary import OOD_MEAN
from canet.util.rendering import save_figure
from experiments.method_variant import ERM_CENTRED_PER_GRAPH, ERM_WITHOUT_SPURIOUS, MethodVariant
from experiments.selection_rules import SELECTION_RULES


class Protocols(Experiment):
    """The `paper` and the `disjoint` protocol, three selection rules, and two controls."""

    name = "protocols"
    title = "Protocols"
    tasks = ("cora", "citeseer", "pubmed")
    quick_tasks = ("cora",)
    methods = ("erm", "canet")
    quick_methods = ("erm", "canet")

    def configs(self) -> list[RunConfig]:
        return [config for case in self._cases() for config in self._jobs(*case)]

    def tables(self, finished: FinishedRuns) -> list[Table]:
        rows = [self._row(finished, *case) for case in self._cases()]
        heads = [f"OOD, {rule.name}" for rule in SELECTION_RULES]
        notes = [
            *self.notes(),
            "paper: a test node usually has a copy in the training domains. disjoint: test nodes "
            "are new nodes.",
            "OOD − control: OOD score at best validation minus that of ERM without the spurious "
            "columns, paired by draw. The control is not an upper bound: the spurious columns "
            "are a function of the label plus an offset per domain, and ERM centred per graph "
            "(the mean over each domain is subtracted from all columns) can read the label from "
            "them.",
            "The oracle uses test labels, so it is not a result.",
        ]
        columns = ["task", "protocol", "backbone", "method", *heads, "ID", "OOD − control"]
        return [self.table("", "new nodes, selection rules and controls", columns, rows, notes)]

    def draw(self, finished: FinishedRuns, folder: Path) -> None:
        backbones = self.backbones
        figure = new_figure(len(backbones), len(self.specs), max(4.2, 7 / len(self.specs)), 3.0)
        panels = figure.subplots(len(backbones), len(self.specs), sharey="row", squeeze=False)
        for row, backbone in zip(panels, backbones, strict=True):
            for axes, spec in zip(row, self.specs, strict=True):
                self._draw_panel(finished, axes, spec, backbone)
            row[0].set_ylabel("OOD accuracy %")
        share_legend(figure, panels[0][0], columns=4)
        save_figure(figure, folder, self.file_name())

    def _draw_panel(self, finished: FinishedRuns, axes: Any, spec: TaskSpec, backbone: str) -> None:
        bars = []
        for variant in self._variants():
            control = CONTROLS.get(variant.features or "")
            shown = control.colour if control else METHODS[variant.method].colour
            values = [
                finished.scores(self._jobs(spec, protocol, backbone, variant), OOD_MEAN)
                for protocol in PROTOCOLS
            ]
            bars.append((variant.label, shown.light, values))
        draw_bars(axes, PROTOCOLS, bars)
        tidy(axes, f"{backbone_label(backbone)}, {spec.label}")

    def _cases(self) -> list[tuple[TaskSpec, str, str, MethodVariant]]:
        lists = (self.specs, PROTOCOLS, self.backbones, self._variants())
        return list(product(*lists))

    def _variants(self) -> list[MethodVariant]:
        return [
            *(MethodVariant(method_label(m), m) for m in self.chosen_methods),
            ERM_WITHOUT_SPURIOUS,
            ERM_CENTRED_PER_GRAPH,
        ]

    def _jobs(
        self, spec: TaskSpec, protocol: str, backbone: str, variant: MethodVariant
    ) -> list[RunConfig]:
        options = {"protocol": protocol, "features": variant.features, "ood_curves": True}
        return self.runs(spec, variant.method, backbone, **options)

    def _row(
        self,
        finished: FinishedRuns,
        spec: TaskSpec,
        protocol: str,
        backbone: str,
        variant: MethodVariant,
    ) -> list[Cell]:
        jobs = self._jobs(spec, protocol, backbone, variant)
        control = self._jobs(spec, protocol, backbone, ERM_WITHOUT_SPURIOUS)
        curves = [run.read_metrics() for run in finished.folders(jobs)]
        splits = spec.ood_sets
        rules = [
            Score([_ood_at(curve, rule.epoch(curve), splits) for curve in curves], len(jobs))
            for rule in SELECTION_RULES
        ]
        above = (
            "" if variant == ERM_WITHOUT_SPURIOUS else difference(finished, jobs, control, OOD_MEAN)
        )
        labels = [spec.label, protocol, backbone_label(backbone), variant.label]
        return [*labels, *rules, score(finished, jobs, "test_id"), above]


def _ood_at(history: dict[str, list[float]], epoch: int, splits: Sequence[str]) -> float:
    """Mean OOD score of one epoch."""
    return mean(history[split][epoch] for split in splits)
