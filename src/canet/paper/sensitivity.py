"""The sensitivity figures: OOD scores for several K (environments) and τ (temperature)."""

from pathlib import Path
from typing import NamedTuple

from canet.methods import METHODS
from canet.paper.experiment import Experiment, score
from canet.paper.finished_runs import FinishedRuns
from canet.paper.scope import TaskSpec, split_label
from canet.report.figures import MARKERS, Style, draw_band, new_figure, shades, share_legend, tidy
from canet.report.labels import backbone_label
from canet.report.tables import Table
from canet.store import RunConfig
from canet.store.summary import OOD_MEAN
from canet.util.rendering import save_figure

MAX_LINES = 3  # maximal number of OOD sets in a panel


class Sweep(NamedTuple):
    """A setting and its values."""

    symbol: str
    setting: str
    values: tuple[float, ...]
    quick_values: tuple[float, ...]


SWEEPS = (
    Sweep("K", "num_environments", (2, 3, 4, 5, 6, 7), (2, 4, 7)),
    Sweep("τ", "tau", (0.5, 1.0, 2.0, 3.0, 5.0, 10.0), (0.5, 1.0, 10.0)),
)
"""K as in the paper. For τ the paper has no range, only the search space 1, 3, 5, 10."""


class Sensitivity(Experiment):
    """CaNet with one setting varied and the others as published."""

    name = "sensitivity"
    title = "Sensitivity"
    tasks = ("arxiv", "twitch")
    quick_tasks = ("twitch",)

    def configs(self) -> list[RunConfig]:
        return [
            config
            for spec in self.specs
            for case in self._cases()
            for config in self._jobs(spec, *case)
        ]

    def tables(self, finished: FinishedRuns) -> list[Table]:
        return [self._table(finished, spec) for spec in self.specs]

    def draw(self, finished: FinishedRuns, folder: Path) -> None:
        for spec in self.specs:
            self._draw(finished, spec, folder)

    def _cases(self) -> list[tuple[str, Sweep, float]]:
        return [
            (b, sweep, v) for b in self.backbones for sweep in SWEEPS for v in self._values(sweep)
        ]

    def _values(self, sweep: Sweep) -> tuple[float, ...]:
        return sweep.quick_values if self.scope.quick else sweep.values

    def _jobs(self, spec: TaskSpec, backbone: str, sweep: Sweep, value: float) -> list[RunConfig]:
        return self.runs(spec, "canet", backbone, changes={sweep.setting: value})

    def _table(self, finished: FinishedRuns, spec: TaskSpec) -> Table:
        splits = [*spec.ood_sets, OOD_MEAN, "test_id"]
        rows = [
            [backbone_label(backbone), f"{sweep.symbol} = {value:g}"]
            + [score(finished, self._jobs(spec, backbone, sweep, value), s) for s in splits]
            for backbone, sweep, value in self._cases()
        ]
        heads = ["OOD mean" if split == OOD_MEAN else split_label(split) for split in splits]
        columns, subtitle = ["backbone", "setting", *heads], f"CaNet on {spec.label}"
        return self.table(spec.task, subtitle, columns, rows, self.notes())

    def _draw(self, finished: FinishedRuns, spec: TaskSpec, folder: Path) -> None:
        backbones = self.backbones
        colours = shades(METHODS["canet"].colour.light, MAX_LINES)
        figure = new_figure(len(backbones), 2, 5.0, 3.2)
        panels = figure.subplots(len(backbones), 2, sharey="row", squeeze=False)
        for row, backbone in zip(panels, backbones, strict=True):
            for axes, sweep in zip(row, SWEEPS, strict=True):
                values = self._values(sweep)
                for i, split in enumerate(spec.ood_sets[:MAX_LINES]):
                    jobs = [self._jobs(spec, backbone, sweep, value) for value in values]
                    scores = [finished.scores(some, split) for some in jobs]
                    style = Style(colours[i], MARKERS[i])
                    draw_band(axes, values, scores, style, split_label(split))
                if sweep.setting == "tau":
                    axes.set_xscale("log")
                axes.set_xticks(values, [f"{value:g}" for value in values])
                axes.minorticks_off()
                title = f"CaNet-{backbone_label(backbone)}, {spec.label}"
                tidy(axes, title if sweep is SWEEPS[0] else "", sweep.symbol)
            row[0].set_ylabel(f"{spec.metric} %")
        share_legend(figure, panels[0][0], "outside right center")
        figure.supxlabel("lines: means; bands: one standard deviation", fontsize="medium")
        save_figure(figure, folder, self.file_name(spec.task))
