"""What of an experiment to run: which tasks with which features, methods, draws and epochs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from canet.data import DATASETS, file_status
from canet.data.benchmarks.dataset import PROTOCOLS
from canet.data.metrics import METRIC_NAMES
from canet.errors import check_name
from canet.methods import get_method
from canet.presets import preset
from canet.settings import override
from canet.store import RunConfig

REPEATS, QUICK_REPEATS = 5, 2
STAND_IN = "synthetic"


class Repeat(NamedTuple):
    """Seed of the data and seed of the run."""

    data_seed: int
    seed: int


class Subject(NamedTuple):
    """A task as it is run: with which features, and how tables call it."""

    task: str
    features: str
    label: str

    @property
    def spread_over(self) -> str:
        return "runs on one split" if DATASETS[self.task].one_split else "draws of the data"

    @property
    def metric(self) -> str:
        return METRIC_NAMES[DATASETS[self.task].metric]

    @property
    def ood_sets(self) -> tuple[str, ...]:
        """The names of its OOD scores in result.json."""
        return DATASETS[self.task].ood_sets

    @property
    def protocols(self) -> tuple[str, ...]:
        """`paper`, and `disjoint` for a task with spurious features."""
        return tuple(name for name in DATASETS[self.task].protocols if name in PROTOCOLS)

    @property
    def is_spurious(self) -> bool:
        """Whether its shift is made of spurious columns."""
        return len(self.protocols) > 1


@dataclass(frozen=True)
class Scope:
    """The part of an experiment that a user asks for."""

    quick: bool = False  # few tasks, methods, repeats and epochs, for trying out
    methods: tuple[str, ...] = ()  # none for those of the paper
    tasks: tuple[str, ...] = ()  # none for all of the experiment
    data_root: Path | None = None  # folder with raw data, as in `load_task`
    available_features: frozenset[tuple[str, str]] = frozenset()  # tasks of finished runs

    def check(self) -> None:
        """Refuse names of methods and tasks that do not exist."""
        for method in self.methods:
            get_method(method)
        for task in self.tasks:
            check_name("task", task, DATASETS)

    def subjects(self, tasks: Sequence[str], quick_tasks: Sequence[str]) -> list[Subject]:
        """The tasks to run: with structural features, or another in their place, where need be."""
        wanted = [task for task in tasks if not self.tasks or task in self.tasks]
        if not self.quick:
            return [self._subject(task) for task in wanted]
        short = wanted if self.tasks else [task for task in wanted if task in quick_tasks]
        here = [task for task in short if self._files(task) != "absent"]
        if short and not here:
            return [Subject(STAND_IN, "original", f"{STAND_IN} in place of {short[0]}")]
        return [self._subject(task) for task in here]

    def _subject(self, task: str) -> Subject:
        if self._files(task) == "structural":
            return Subject(task, "structural", f"{task} (structural features)")
        return Subject(task, "original", task)

    def _files(self, task: str) -> str:
        """Whether a task can be run with its `original` features, or `structural` ones, or neither.

        Without files, finished runs decide. `absent` files are downloaded by a full run.
        """
        states = [file.state for file in file_status(task, self.data_root)]
        if "missing" not in states:
            return "original"
        for features in ("original", "structural"):
            if (task, features) in self.available_features:
                return features
        some = any(state != "missing" for state in states)
        return "structural" if some and "structural" in DATASETS[task].features else "absent"

    def repeats(self, subject: Subject) -> list[Repeat]:
        """The repeats that a score is averaged over: draws of the data, or runs on one split."""
        runs = self.reruns(subject)
        return runs if DATASETS[subject.task].one_split else [Repeat(seed, 0) for _, seed in runs]

    def reruns(self, subject: Subject) -> list[Repeat]:
        """Runs on draw 0 that differ in their initialisation alone, as the paper's do."""
        return [Repeat(0, number) for number in range(QUICK_REPEATS if self.quick else REPEATS)]

    def job(
        self,
        subject: Subject,
        method: str,
        backbone: str,
        repeat: Repeat,
        protocol: str = "paper",
        features: str | None = None,
        ood_curves: bool = False,
        changes: Mapping[str, Any] | None = None,
        generator: str = "shared",
    ) -> RunConfig:
        """One run with the settings of the preset but for `changes`."""
        changed = dict(changes or {})
        if self.quick:
            changed["epochs"] = DATASETS[subject.task].quick_epochs
        settings = _settings(subject.task, method, backbone, tuple(changed.items()))
        return RunConfig(
            task=subject.task,
            protocol=protocol,
            data_seed=repeat.data_seed,
            features=features or subject.features,
            inductive=False,
            method=method,
            backbone=backbone,
            settings=dict(settings),
            seed=repeat.seed,
            ood_curves=ood_curves,
            generator=generator,
        )


@cache
def _settings(
    task: str, method: str, backbone: str, changes: tuple[tuple[str, Any], ...]
) -> dict[str, Any]:
    """Settings of a preset with some changed, computed once for all jobs that share them."""
    return asdict(override(preset(task, method, backbone), dict(changes)))


def split_label(split: str) -> str:
    """`ood/ES` → `ES`, `test_id` → `ID`, `ood` → `OOD`."""
    return {"test_id": "ID", "ood": "OOD"}.get(split, split.rpartition("/")[2])
