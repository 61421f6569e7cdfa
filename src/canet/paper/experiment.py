"""Base class of an experiment: its jobs, tables and figures."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from pathlib import Path
from typing import Any, ClassVar

from canet.paper.finished_runs import FinishedRuns
from canet.paper.published import PAPER_BACKBONES
from canet.paper.scope import Scope, TaskSpec
from canet.report.score import Score
from canet.report.tables import Cell, Table
from canet.store import RunConfig


class Experiment(ABC):
    """One table or figure of the paper, restricted to a scope."""

    name: ClassVar[str]
    title: ClassVar[str]
    tasks: ClassVar[tuple[str, ...]]
    quick_tasks: ClassVar[tuple[str, ...]]
    methods: ClassVar[tuple[str, ...]] = ()
    """Methods to compare; empty if the experiment uses only CaNet."""
    quick_methods: ClassVar[tuple[str, ...]] = ("erm", "irm", "canet")

    def __init__(self, scope: Scope) -> None:
        self.scope = scope
        self.specs = scope.specs(self.tasks, self.quick_tasks)
        self.chosen_methods = scope.methods or (self.quick_methods if scope.quick else self.methods)

    @property
    def backbones(self) -> tuple[str, ...]:
        """The backbones of the paper; a quick version uses only the first."""
        return PAPER_BACKBONES[:1] if self.scope.quick else PAPER_BACKBONES

    @abstractmethod
    def configs(self) -> list[RunConfig]:
        """All jobs that the tables and figures need."""

    def add_measurements(self, finished: FinishedRuns, device: str) -> None:  # noqa: B027
        """Compute measurements that training does not make, and add them to the run folders."""

    @abstractmethod
    def tables(self, finished: FinishedRuns) -> list[Table]:
        """The tables, the main table first, made from run folders only."""

    def draw(self, finished: FinishedRuns, folder: Path) -> None:  # noqa: B027
        """Write the figures, made from run folders only."""

    def runs(self, spec: TaskSpec, method: str, backbone: str, **options: Any) -> list[RunConfig]:
        """A job for each repeat, with the options of `Scope.job`."""
        repeats = self.scope.repeats(spec)
        return [self.scope.job(spec, method, backbone, repeat, **options) for repeat in repeats]

    def table(
        self,
        part: str,
        subtitle: str,
        columns: Sequence[str],
        rows: Sequence[Sequence[Cell]],
        notes: Sequence[str],
    ) -> Table:
        """A table of this experiment; `part` is empty for the main table."""
        quick = " (quick version, not a result)" if self.scope.quick else ""
        return Table(self.file_name(part), f"{self.title}: {subtitle}{quick}", columns, rows, notes)

    def file_name(self, part: str = "") -> str:
        """File name of a table or figure; that of a quick version ends in `-quick`."""
        parts = [self.name, part, "quick" if self.scope.quick else ""]
        return "-".join(word for word in parts if word)

    def notes(self, specs: Sequence[TaskSpec] | None = None) -> list[str]:
        """Notes about the runs on all tasks, or on some of them."""
        shown = self.specs if specs is None else specs
        epochs = sorted({config.settings["epochs"] for config in self.configs()})
        lines = [
            f"{' or '.join(map(str, epochs))} epochs; epoch selected by best validation; "
            "scores in percent, mean ± standard deviation."
        ]
        lines += [
            f"{spec.label}: {spec.metric}, {len(self.scope.repeats(spec))} {spec.spread_over}."
            for spec in shown
        ]
        if any(spec.features == "structural" for spec in shown):
            lines.append(
                "Structural features are computed from the graph only; the paper does not use them."
            )
        if self.chosen_methods:
            lines += [note for spec in shown if (note := spec.settings_note)]
        return lines


def score(finished: FinishedRuns, configs: Sequence[RunConfig], split: str) -> Score:
    """Score of some runs, without the published score."""
    return Score(finished.scores(configs, split), len(configs))


def difference(
    finished: FinishedRuns, configs: Sequence[RunConfig], baseline: Sequence[RunConfig], split: str
) -> Score:
    """Paired difference of runs and baseline runs; pairs with an unfinished run are left out."""
    values = [
        score - baseline_score
        for config, other in zip(configs, baseline, strict=True)
        for score in finished.scores([config], split)
        for baseline_score in finished.scores([other], split)
    ]
    return Score(values, len(configs))
