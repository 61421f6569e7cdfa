"""Methods set beside each other, and CaNet once more with searched settings, as they have."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any, NamedTuple

from canet.paper.experiment import Experiment
from canet.paper.published import PAPER_BACKBONES, PAPER_METHODS
from canet.paper.scope import Repeat, Subject
from canet.presets import searched
from canet.report.labels import SEARCHED_LABEL, SEARCHED_NOTE, method_label
from canet.store import RunConfig

OURS = "canet"


class Entrant(NamedTuple):
    """A method with its preset, or CaNet with searched settings."""

    method: str
    searched: bool = False

    @property
    def label(self) -> str:
        return SEARCHED_LABEL if self.searched else method_label(self.method)


class Contest(Experiment):
    """A row for every entrant and backbone."""

    methods = PAPER_METHODS

    def configs(self) -> list[RunConfig]:
        return [
            config
            for subject in self.subjects
            for backbone in PAPER_BACKBONES
            for entrant in self.entrants(backbone)
            for config in self.jobs(subject, entrant, backbone, self.repeats(subject, entrant))
        ]

    def entrants(self, backbone: str) -> list[Entrant]:
        """Every method; behind CaNet the searched one, but not if quick or nowhere searched."""
        found = any(searched(subject.task, OURS, backbone) for subject in self.subjects)
        entrants = [Entrant(method) for method in self.chosen_methods]
        if found and OURS in self.chosen_methods and not self.scope.quick:
            entrants.insert(self.chosen_methods.index(OURS) + 1, Entrant(OURS, searched=True))
        return entrants

    def repeats(self, subject: Subject, entrant: Entrant) -> list[Repeat]:
        """Every repeat that a table needs."""
        return self.scope.repeats(subject)

    def jobs(
        self, subject: Subject, entrant: Entrant, backbone: str, repeats: Sequence[Repeat]
    ) -> list[RunConfig]:
        """The runs of an entrant; none on a subject without the search that it needs."""
        changes: dict[str, Any] = {}
        if entrant.searched:
            found = searched(subject.task, entrant.method, backbone)
            if found is None:
                return []
            changes = asdict(found)
        return [
            self.scope.job(subject, entrant.method, backbone, repeat, changes=changes)
            for repeat in repeats
        ]

    def notes(self, subjects: Sequence[Subject] | None = None) -> list[str]:
        twice = any(entrant.searched for b in PAPER_BACKBONES for entrant in self.entrants(b))
        return [*super().notes(subjects), *([SEARCHED_NOTE] if twice else [])]
