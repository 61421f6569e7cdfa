"""The Elliptic figure: macro F1 on eight groups of time steps, and on steps not in the paper."""

from pathlib import Path

from matplotlib.axes import Axes

from canet.data.benchmarks.elliptic import LEFT_OUT_STEPS
from canet.methods import METHODS
from canet.paper.experiment import score
from canet.paper.finished_runs import FinishedRuns
from canet.paper.method_table import CANET, MethodRow, MethodTable
from canet.paper.published import ELLIPTIC_LEAD, PAPER_BACKBONES
from canet.paper.scope import split_label
from canet.report.figures import BACKGROUND_GREY, Style, draw_band, new_figure, tidy
from canet.report.labels import backbone_label, method_label
from canet.report.score import to_percent
from canet.report.tables import Table
from canet.store.summary import OOD_MEAN
from canet.util.rendering import save_figure

LEFT_OUT = tuple(f"left_out/steps {steps.start}-{steps.stop - 1}" for steps in LEFT_OUT_STEPS)
"""Groups of time steps that the paper leaves out: before and after those that it shows."""
BACKGROUND = Style(BACKGROUND_GREY, "", width=0.9, band=0.0)
OTHERS = "other methods"
COLUMNS = 4  # number of panels in a row


class Elliptic(MethodTable):
    """Scores over the OOD groups; a panel for each backbone and method."""

    name = "elliptic"
    title = "Elliptic"
    tasks = ("elliptic",)
    quick_tasks = ("elliptic",)

    def tables(self, finished: FinishedRuns) -> list[Table]:
        (spec,) = self.specs
        groups = (OOD_MEAN, *spec.ood_sets, "test_id")
        main = self._table(finished, "", "OOD groups of time steps", groups)
        if spec.task != "elliptic":
            return [main]
        subtitle = "time steps that the paper leaves out"
        return [main, self._table(finished, "left-out", subtitle, LEFT_OUT)]

    def draw(self, finished: FinishedRuns, folder: Path) -> None:
        """Draw a panel for each method, with CaNet in colour and the other methods in grey."""
        (spec,) = self.specs
        left_out = LEFT_OUT if spec.task == "elliptic" else ()
        groups = [*left_out[:1], *spec.ood_sets, *left_out[1:]]  # in chronological order
        methods = [method for method in self.chosen_methods if method != CANET] or [CANET]
        columns = min(COLUMNS, len(methods))
        rows = -(-len(methods) // columns)
        figure = new_figure(len(PAPER_BACKBONES) * rows, columns, max(3.0, 7 / columns), 2.2)
        panels = figure.subplots(
            len(PAPER_BACKBONES) * rows, columns, sharex=True, sharey=True, squeeze=False
        )
        for i, backbone in enumerate(PAPER_BACKBONES):
            jobs = {m: self.jobs(spec, MethodRow(m), backbone) for m in self.chosen_methods}
            values = {m: [finished.scores(jobs[m], s) for s in groups] for m in jobs}
            block = panels[i * rows : (i + 1) * rows].ravel()
            for axes, method in zip(block, methods, strict=False):
                _draw_panel(axes, values, method, bool(left_out))
                tidy(axes, f"{method_label(method)}-{backbone_label(backbone)}")
            for axes in block[len(methods) :]:
                axes.set_axis_off()
        panels[0, 0].set_xticks(range(len(groups)), [short_label(split) for split in groups])
        for axes in panels[:, 0]:
            axes.set_ylabel(f"{spec.metric} %")
        for axes in panels[-1]:
            axes.tick_params(axis="x", rotation=90)
        label = "time steps (shaded: left out by the paper); " if left_out else ""
        figure.supxlabel(f"{label}mean and one standard deviation", fontsize="medium")
        handles, labels = panels[0, 0].get_legend_handles_labels()
        in_every_panel = (method_label(CANET), OTHERS)
        shown = {n: h for h, n in zip(handles, labels, strict=True) if n in in_every_panel}
        handles, labels = [*shown.values()], [*shown]
        figure.legend(handles, labels, loc="outside upper right", ncols=2, frameon=False)
        save_figure(figure, folder, self.file_name())

    def _table(
        self, finished: FinishedRuns, part: str, subtitle: str, splits: tuple[str, ...]
    ) -> Table:
        (spec,) = self.specs
        rows = [
            [backbone_label(backbone), row.label]
            + [score(finished, self.jobs(spec, row, backbone), split) for split in splits]
            for backbone in PAPER_BACKBONES
            for row in self.method_rows(backbone)
        ]
        notes = self.notes()
        if spec.features == "original" and spec.task == "elliptic":
            notes.append(
                "The paper shows a figure without numbers. According to its text, CaNet is on "
                f"average {to_percent(ELLIPTIC_LEAD):.4g} % better than the second best method."
            )
        heads = ["OOD mean" if split == OOD_MEAN else short_label(split) for split in splits]
        return self.table(part, subtitle, ["backbone", "method", *heads], rows, notes).ranked()


def short_label(split: str) -> str:
    """`ood/steps 11-14` → `11-14`."""
    return split_label(split).removeprefix("steps ")


def _draw_panel(
    axes: Axes, values: dict[str, list[list[float]]], method: str, has_left_out: bool
) -> None:
    """Draw one method and CaNet in colour; groups that the paper leaves out are not connected."""
    positions = list(range(len(next(iter(values.values())))))
    inner = positions[1:-1] if has_left_out else positions
    for other in sorted(values, key=lambda name: (name in (CANET, method), name == method)):
        is_highlighted = other in (CANET, method)
        marker = "o" if other == CANET else "s"
        style = (
            Style(METHODS[other].colour.light, marker, width=1.8) if is_highlighted else BACKGROUND
        )
        label = method_label(other) if is_highlighted else OTHERS
        draw_band(axes, inner, [values[other][x] for x in inner], style, label)
        for x in set(positions) - set(inner):
            draw_band(axes, [x], [values[other][x]], style, "_left out")
    for x in set(positions) - set(inner):
        axes.axvspan(x - 0.5, x + 0.5, color="0.95", zorder=0)
