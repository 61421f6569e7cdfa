"""The shape of an experiment: its jobs, and the tables and figures that are made of them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from pathlib import Path
from typing import Any, ClassVar

from canet.paper.finished import Finished
from canet.paper.published import PAPER_BACKBONES
from canet.paper.scope import Scope, Subject
from canet.report.score import Score
from canet.report.tables import Cell, Table
from canet.store import RunConfig


class Experiment(ABC):
    """One table or figure of the paper, for a scope."""

    name: ClassVar[str]
    title: ClassVar[str]
    tasks: ClassVar[tuple[str, ...]]
    quick_tasks: ClassVar[tuple[str, ...]]
    methods: ClassVar[tuple[str, ...]] = ()
    """Methods that it compares; none where it is about CaNet alone."""
    quick_methods: ClassVar[tuple[str, ...]] = ("erm", "irm", "canet")

    def __init__(self, scope: Scope) -> None:
        self.scope = scope
        self.subjects = scope.subjects(self.tasks, self.quick_tasks)
        self.chosen_methods = scope.methods or (self.quick_methods if scope.quick else self.methods)

    @property
    def backbones(self) -> tuple[str, ...]:
        """Those of the paper; of a quick version the first alone."""
        return PAPER_BACKBONES[:1] if self.scope.quick else PAPER_BACKBONES

    @abstractmethod
    def configs(self) -> list[RunConfig]:
        """Every job that the tables and figures need."""

    def score_again(self, finished: Finished, device: str) -> None:  # noqa: B027
        """Compute what the runs do not score themselves, once, and add it to their folders."""

    @abstractmethod
    def tables(self, finished: Finished) -> list[Table]:
        """The tables, the headline first, made from run folders only."""

    def draw(self, finished: Finished, folder: Path) -> None:  # noqa: B027
        """Write the figures, if there are any, made from run folders only."""

    def runs(self, subject: Subject, method: str, backbone: str, **options: Any) -> list[RunConfig]:
        """A job for each repeat, with the options of `Scope.job`."""
        repeats = self.scope.repeats(subject)
        return [self.scope.job(subject, method, backbone, repeat, **options) for repeat in repeats]

    def table(
        self,
        part: str,
        about: str,
        columns: Sequence[str],
        rows: Sequence[Sequence[Cell]],
        notes: Sequence[str],
    ) -> Table:
        """A table of this experiment; `part` is empty for the headline."""
        quick = " (quick version, no result)" if self.scope.quick else ""
        return Table(self.file_name(part), f"{self.title}: {about}{quick}", columns, rows, notes)

    def file_name(self, part: str = "") -> str:
        """Name of a table or figure; those of a quick version never replace the others."""
        parts = [self.name, part, "quick" if self.scope.quick else ""]
        return "-".join(word for word in parts if word)

    def notes(self, subjects: Sequence[Subject] | None = None) -> list[str]:
        """What every table says of its runs: all, or those of some subjects."""
        shown = self.subjects if subjects is None else subjects
        epochs = sorted({config.settings["epochs"] for config in self.configs()})
        lines = [
            f"{' or '.join(map(str, epochs))} epochs, epoch selected by best validation, "
            "scores in percent, mean ± standard deviation."
        ]
        lines += [
            f"{subject.label}: {subject.metric}, {len(self.scope.repeats(subject))} "
            f"{subject.spread_over}."
            for subject in shown
        ]
        if any(subject.features == "structural" for subject in shown):
            lines.append("Structural features are computed from the graph alone: not the paper's.")
        return lines


def score(finished: Finished, configs: Sequence[RunConfig], split: str) -> Score:
    """Our scores of some runs, with no published number."""
    return Score(finished.scores(configs, split), len(configs))


def difference(
    finished: Finished, ours: Sequence[RunConfig], base: Sequence[RunConfig], split: str
) -> Score:
    """How far runs are above others, pair by pair; pairs with an unfinished run are left out."""
    values = [
        mine - others
        for run, other in zip(ours, base, strict=True)
        for mine in finished.scores([run], split)
        for others in finished.scores([other], split)
    ]
    return Score(values, len(ours))
