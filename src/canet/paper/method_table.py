"""Tables with a row for each method, and one for CaNet with searched settings."""

from collections.abc import Sequence
from dataclasses import asdict
from typing import NamedTuple

from canet.defaults import searched
from canet.paper.experiment import Experiment
from canet.paper.published import PAPER_BACKBONES, PAPER_METHODS
from canet.paper.scope import Repeat, TaskSpec
from canet.report.labels import SEARCHED_LABEL, SEARCHED_NOTE, method_label
from canet.store import RunConfig

CANET = "canet"


class MethodRow(NamedTuple):
    """A row of a table: a method with default settings, or CaNet with searched settings."""

    method: str
    is_searched: bool = False

    @property
    def label(self) -> str:
        return SEARCHED_LABEL if self.is_searched else method_label(self.method)


class MethodTable(Experiment):
    methods = PAPER_METHODS

    def configs(self) -> list[RunConfig]:
        return [
            config
            for spec in self.specs
            for backbone in PAPER_BACKBONES
            for row in self.method_rows(backbone)
            for config in self.jobs(spec, row, backbone)
        ]

    def method_rows(self, backbone: str) -> list[MethodRow]:
        """All methods; CaNet with searched settings follows CaNet, except in a quick version."""
        found = any(searched(s.task, CANET, backbone, s.features) for s in self.specs)
        rows = [MethodRow(method) for method in self.chosen_methods]
        if found and CANET in self.chosen_methods and not self.scope.quick:
            rows.insert(self.chosen_methods.index(CANET) + 1, MethodRow(CANET, is_searched=True))
        return rows

    def repeats(self, spec: TaskSpec, row: MethodRow) -> list[Repeat]:
        """The repeats that the tables need."""
        return self.scope.repeats(spec)

    def jobs(
        self, spec: TaskSpec, row: MethodRow, backbone: str, repeats: Sequence[Repeat] | None = None
    ) -> list[RunConfig]:
        """Runs of a row; none if it needs a search and the task has none."""
        names = spec.task, row.method, backbone
        found = searched(*names, spec.features) if row.is_searched else None
        if row.is_searched and found is None:
            return []
        repeats = self.repeats(spec, row) if repeats is None else repeats
        changes = asdict(found) if found else {}
        return [self.scope.job(spec, row.method, backbone, r, changes=changes) for r in repeats]

    def notes(self, specs: Sequence[TaskSpec] | None = None) -> list[str]:
        has_searched = any(c.is_searched for b in PAPER_BACKBONES for c in self.method_rows(b))
        return [*super().notes(specs), *([SEARCHED_NOTE] if has_searched else [])]
