"""The Elliptic figure: macro F1 on eight chronological groups, and on what the paper leaves out."""

from __future__ import annotations

from pathlib import Path

from canet.data.elliptic import LEFT_OUT_STEPS
from canet.methods import METHODS
from canet.paper.contest import OURS, Contest, Entrant
from canet.paper.experiment import score
from canet.paper.finished import Finished
from canet.paper.published import ELLIPTIC_LEAD, PAPER_BACKBONES
from canet.paper.scope import OOD_SETS, Subject, split_label
from canet.report.figures import (
    MARKERS,
    Style,
    draw_band,
    new_figure,
    save_figure,
    share_legend,
    tidy,
)
from canet.report.labels import backbone_label, method_label
from canet.report.results import OOD_MEAN
from canet.report.tables import Table
from canet.training import RunConfig

LEFT_OUT = tuple(f"left_out/steps {steps.start}-{steps.stop - 1}" for steps in LEFT_OUT_STEPS)


class Elliptic(Contest):
    """One line per method over the OOD groups, a panel per backbone; none for searched CaNet."""

    name = "elliptic"
    title = "Elliptic"
    tasks = ("elliptic",)
    quick_tasks = ("elliptic",)

    def tables(self, finished: Finished) -> list[Table]:
        (subject,) = self.subjects
        groups = (OOD_MEAN, *OOD_SETS[subject.task], "test_id")
        main = self._table(finished, "", "OOD groups of time steps", groups)
        if subject.task != "elliptic":
            return [main]
        about = "time steps that the paper leaves out"
        return [main, self._table(finished, "left-out", about, LEFT_OUT)]

    def draw(self, finished: Finished, folder: Path) -> None:
        (subject,) = self.subjects
        figure = new_figure(1, 2, 6.2, 4.0)
        panels = figure.subplots(1, 2, sharey=True)
        left_out = LEFT_OUT if subject.task == "elliptic" else ()
        groups = [*left_out[:1], *OOD_SETS[subject.task], *left_out[1:]]
        places = list(range(len(groups)))
        inner = places[1:-1] if left_out else places
        for axes, backbone in zip(panels, PAPER_BACKBONES, strict=True):
            for method in self.chosen_methods:
                style = method_style(method)
                jobs = self._jobs(subject, Entrant(method), backbone)
                values = [finished.scores(jobs, split) for split in groups]
                draw_band(axes, inner, [values[x] for x in inner], style, method_label(method))
                for x in set(places) - set(inner):
                    draw_band(axes, [x], [values[x]], style, "_left out")
            if left_out:
                axes.axvspan(-0.5, 0.5, color="0.94", zorder=0)
                axes.axvspan(places[-1] - 0.5, places[-1] + 0.5, color="0.94", zorder=0)
            axes.set_xticks(places, [short_label(split) for split in groups], rotation=35)
            title = f"{backbone_label(backbone)}, {subject.label}"
            tidy(axes, title, "time steps (grey: left out by the paper)" if left_out else "")
        panels[0].set_ylabel("macro F1 %" if left_out else "accuracy %")
        share_legend(figure, panels[0], "outside right center")
        save_figure(figure, folder, self.file_name())

    def _jobs(self, subject: Subject, entrant: Entrant, backbone: str) -> list[RunConfig]:
        return self.jobs(subject, entrant, backbone, self.repeats(subject, entrant))

    def _table(self, finished: Finished, part: str, about: str, splits: tuple[str, ...]) -> Table:
        (subject,) = self.subjects
        rows = [
            [backbone_label(backbone), entrant.label]
            + [score(finished, self._jobs(subject, entrant, backbone), split) for split in splits]
            for backbone in PAPER_BACKBONES
            for entrant in self.entrants(backbone)
        ]
        notes = self.notes()
        if subject.features == "original" and subject.task == "elliptic":
            notes.append(
                f"The paper shows a figure without numbers; its text puts CaNet {ELLIPTIC_LEAD} % "
                "above the runner-ups on average."
            )
        heads = ["OOD mean" if split == OOD_MEAN else short_label(split) for split in splits]
        columns = ["backbone", "method", *heads]
        return Table(self.file_name(part), self.heading(about), columns, rows, notes).ranked()


def short_label(split: str) -> str:
    """`ood/steps 11-14` → `11-14`."""
    return split_label(split).removeprefix("steps ")


def method_style(method: str) -> Style:
    """Each method in its own colour, CaNet on a thicker line."""
    colour = METHODS[method].colour.light
    if method == OURS:
        return Style(colour, "o", "-", 2.4)
    place = list(METHODS).index(method)
    return Style(colour, MARKERS[1 + place % (len(MARKERS) - 1)], band=0.05)
