"""The Elliptic figure: macro F1 on eight chronological groups, and on what the paper leaves out."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from canet.data.benchmarks.elliptic import LEFT_OUT_STEPS
from canet.methods import METHODS
from canet.paper.contenders import OURS, Contender, ContenderTable
from canet.paper.experiment import score
from canet.paper.finished import Finished
from canet.paper.published import ELLIPTIC_LEAD, PAPER_BACKBONES
from canet.paper.scope import split_label
from canet.report.figures import QUIET, Style, draw_band, new_figure, save_figure, tidy
from canet.report.labels import backbone_label, method_label
from canet.report.tables import Table
from canet.store.summary import OOD_MEAN

LEFT_OUT = tuple(f"left_out/steps {steps.start}-{steps.stop - 1}" for steps in LEFT_OUT_STEPS)
"""What the paper leaves out: groups before and behind those it shows."""
BEHIND = Style(QUIET, "", width=0.9, band=0.0)
OTHERS = "other methods"
COLUMNS = 4
"""Panels of the figure side by side."""


class Elliptic(ContenderTable):
    """Lines over the OOD groups, a panel per backbone and method; none for searched CaNet."""

    name = "elliptic"
    title = "Elliptic"
    tasks = ("elliptic",)
    quick_tasks = ("elliptic",)

    def tables(self, finished: Finished) -> list[Table]:
        (subject,) = self.subjects
        groups = (OOD_MEAN, *subject.ood_sets, "test_id")
        main = self._table(finished, "", "OOD groups of time steps", groups)
        if subject.task != "elliptic":
            return [main]
        about = "time steps that the paper leaves out"
        return [main, self._table(finished, "left-out", about, LEFT_OUT)]

    def draw(self, finished: Finished, folder: Path) -> None:
        """Each method with CaNet, the others in grey, so that two lines are read at a time."""
        (subject,) = self.subjects
        left_out = LEFT_OUT if subject.task == "elliptic" else ()
        groups = [*left_out[:1], *subject.ood_sets, *left_out[1:]]  # in the order of time
        methods = [method for method in self.chosen_methods if method != OURS] or [OURS]
        columns = min(COLUMNS, len(methods))
        rows = -(-len(methods) // columns)
        figure = new_figure(len(PAPER_BACKBONES) * rows, columns, max(3.0, 7 / columns), 2.2)
        panels = figure.subplots(
            len(PAPER_BACKBONES) * rows, columns, sharex=True, sharey=True, squeeze=False
        )
        for i, backbone in enumerate(PAPER_BACKBONES):
            jobs = {m: self.jobs(subject, Contender(m), backbone) for m in self.chosen_methods}
            values = {m: [finished.scores(jobs[m], s) for s in groups] for m in jobs}
            block = panels[i * rows : (i + 1) * rows].ravel()
            for axes, method in zip(block, methods, strict=False):
                _draw_panel(axes, values, method, bool(left_out))
                tidy(axes, f"{method_label(method)}-{backbone_label(backbone)}")
            for axes in block[len(methods) :]:
                axes.set_axis_off()
        panels[0, 0].set_xticks(range(len(groups)), [short_label(split) for split in groups])
        for axes in panels[:, 0]:
            axes.set_ylabel(f"{subject.metric} %")
        for axes in panels[-1]:
            axes.tick_params(axis="x", rotation=90)
        about = "time steps (shaded: left out by the paper); " if left_out else ""
        figure.supxlabel(f"{about}mean and one standard deviation", fontsize="medium")
        handles, labels = panels[0, 0].get_legend_handles_labels()
        in_every_panel = (method_label(OURS), OTHERS)
        shown = {n: h for h, n in zip(handles, labels, strict=True) if n in in_every_panel}
        handles, labels = [*shown.values()], [*shown]
        figure.legend(handles, labels, loc="outside upper right", ncols=2, frameon=False)
        save_figure(figure, folder, self.file_name())

    def _table(self, finished: Finished, part: str, about: str, splits: tuple[str, ...]) -> Table:
        (subject,) = self.subjects
        rows = [
            [backbone_label(backbone), contender.label]
            + [score(finished, self.jobs(subject, contender, backbone), split) for split in splits]
            for backbone in PAPER_BACKBONES
            for contender in self.contenders(backbone)
        ]
        notes = self.notes()
        if subject.features == "original" and subject.task == "elliptic":
            notes.append(
                f"The paper shows a figure without numbers; its text puts CaNet {ELLIPTIC_LEAD} % "
                "above the runner-ups on average."
            )
        heads = ["OOD mean" if split == OOD_MEAN else short_label(split) for split in splits]
        return self.table(part, about, ["backbone", "method", *heads], rows, notes).ranked()


def short_label(split: str) -> str:
    """`ood/steps 11-14` → `11-14`."""
    return split_label(split).removeprefix("steps ")


def _draw_panel(
    axes: Any, values: dict[str, list[list[float]]], method: str, has_left_out: bool
) -> None:
    """One method and CaNet in their colours; groups that are left out stand apart."""
    places = list(range(len(next(iter(values.values())))))
    inner = places[1:-1] if has_left_out else places
    for other in sorted(values, key=lambda name: (name in (OURS, method), name == method)):
        is_shown = other in (OURS, method)
        marker = "o" if other == OURS else "s"
        style = Style(METHODS[other].colour.light, marker, width=1.8) if is_shown else BEHIND
        label = method_label(other) if is_shown else OTHERS
        draw_band(axes, inner, [values[other][x] for x in inner], style, label)
        for x in set(places) - set(inner):
            draw_band(axes, [x], [values[other][x]], style, "_left out")
    for x in set(places) - set(inner):
        axes.axvspan(x - 0.5, x + 0.5, color="0.95", zorder=0)
