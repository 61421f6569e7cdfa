"""Methods compared with each other, and CaNet once more with searched settings, as they have."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import NamedTuple

from canet.paper.experiment import Experiment
from canet.paper.published import PAPER_BACKBONES, PAPER_METHODS
from canet.paper.scope import Repeat, Subject
from canet.presets import searched
from canet.report.labels import SEARCHED_LABEL, SEARCHED_NOTE, method_label
from canet.store import RunConfig

OURS = "canet"


class Contender(NamedTuple):
    """A method with its preset, or CaNet with searched settings."""

    method: str
    searched: bool = False

    @property
    def label(self) -> str:
        return SEARCHED_LABEL if self.searched else method_label(self.method)


class ContenderTable(Experiment):
    """A row for every contender and backbone."""

    methods = PAPER_METHODS

    def configs(self) -> list[RunConfig]:
        return [
            config
            for subject in self.subjects
            for backbone in PAPER_BACKBONES
            for contender in self.contenders(backbone)
            for config in self.jobs(subject, contender, backbone)
        ]

    def contenders(self, backbone: str) -> list[Contender]:
        """Every method; after CaNet the searched one, unless quick or nowhere searched."""
        found = any(searched(subject.task, OURS, backbone) for subject in self.subjects)
        contenders = [Contender(method) for method in self.chosen_methods]
        if found and OURS in self.chosen_methods and not self.scope.quick:
            contenders.insert(self.chosen_methods.index(OURS) + 1, Contender(OURS, searched=True))
        return contenders

    def repeats(self, subject: Subject, contender: Contender) -> list[Repeat]:
        """Every repeat that a table needs."""
        return self.scope.repeats(subject)

    def jobs(
        self,
        subject: Subject,
        contender: Contender,
        backbone: str,
        repeats: Sequence[Repeat] | None = None,
    ) -> list[RunConfig]:
        """Some or all runs of a contender; none on a subject without the search that it needs."""
        method = contender.method
        found = searched(subject.task, method, backbone) if contender.searched else None
        if contender.searched and found is None:
            return []
        repeats = self.repeats(subject, contender) if repeats is None else repeats
        changes = asdict(found) if found else {}
        return [self.scope.job(subject, method, backbone, r, changes=changes) for r in repeats]

    def notes(self, subjects: Sequence[Subject] | None = None) -> list[str]:
        twice = any(contender.searched for b in PAPER_BACKBONES for contender in self.contenders(b))
        return [*super().notes(subjects), *([SEARCHED_NOTE] if twice else [])]
