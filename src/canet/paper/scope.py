"""The part of an experiment to run: tasks and features, methods, draws and epochs."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from canet.data import DATASETS, file_status
from canet.data.benchmarks.dataset import PROTOCOLS
from canet.defaults import searched_instead, task_settings
from canet.errors import check_name
from canet.methods import get_method
from canet.paper.published import PAPER_BACKBONES
from canet.scoring.metrics import METRICS
from canet.settings import override
from canet.store import RunConfig

REPEATS, QUICK_REPEATS = 5, 2
REPLACEMENT_TASK = "synthetic"


class Repeat(NamedTuple):
    """Data seed and seed of a run."""

    data_seed: int
    seed: int


class TaskSpec(NamedTuple):
    """A task with its features, and its label in tables."""

    task: str
    features: str
    label: str

    @property
    def spread_over(self) -> str:
        return "runs on one split" if DATASETS[self.task].has_single_split else "draws of the data"

    @property
    def metric(self) -> str:
        return METRICS[DATASETS[self.task].metric].label

    @property
    def ood_sets(self) -> tuple[str, ...]:
        """Names of the OOD scores in result.json."""
        return DATASETS[self.task].ood_sets

    @property
    def protocols(self) -> tuple[str, ...]:
        """`paper`; also `disjoint` for a task with spurious columns."""
        return tuple(name for name in DATASETS[self.task].protocols if name in PROTOCOLS)

    @property
    def settings_note(self) -> str | None:
        """A note if methods have their defaults because no search used these features."""
        other = searched_instead(self.task, "erm", PAPER_BACKBONES[0], self.features)
        if other is None:
            return None
        return (
            f"{self.label}: the methods except CaNet have their default settings, because the "
            f"search for better ones used {other} features."
        )

    @property
    def is_spurious(self) -> bool:
        """Whether the shift is caused by spurious columns."""
        return len(self.protocols) > 1


@dataclass(frozen=True)
class Scope:
    """The part of an experiment that the user selected."""

    quick: bool = False  # few tasks, methods, repeats and epochs, as a test
    methods: tuple[str, ...] = ()  # empty for those of the paper
    tasks: tuple[str, ...] = ()  # empty for all of the experiment
    data_root: Path | None = None  # folder with raw data, as in `load_task`
    # Task and features of finished runs.
    available_features: frozenset[tuple[str, str]] = frozenset()

    def check(self) -> None:
        """Reject unknown names of methods and tasks."""
        for method in self.methods:
            get_method(method)
        for task in self.tasks:
            check_name("task", task, DATASETS)

    def specs(self, tasks: Sequence[str], quick_tasks: Sequence[str]) -> list[TaskSpec]:
        """The tasks to run; structural features or another task replace missing files."""
        wanted = [task for task in tasks if not self.tasks or task in self.tasks]
        if not self.quick:
            return [self._spec(task) for task in wanted]
        short = wanted if self.tasks else [task for task in wanted if task in quick_tasks]
        here = [task for task in short if self._files(task) != "absent"]
        if short and not here:
            return [
                TaskSpec(REPLACEMENT_TASK, "original", f"{REPLACEMENT_TASK} in place of {short[0]}")
            ]
        return [self._spec(task) for task in here]

    def _spec(self, task: str) -> TaskSpec:
        if self._files(task) == "structural":
            return TaskSpec(task, "structural", f"{task} (structural features)")
        return TaskSpec(task, "original", task)

    def _files(self, task: str) -> str:
        """The features that a task can be run with: `original`, `structural` or `absent`.

        If files are missing, the features of finished runs are used. A full run downloads absent
        files.
        """
        states = [file.state for file in file_status(task, self.data_root)]
        if "missing" not in states:
            return "original"
        for features in ("original", "structural"):
            if (task, features) in self.available_features:
                return features
        some = any(state != "missing" for state in states)
        return "structural" if some and "structural" in DATASETS[task].features else "absent"

    def repeats(self, spec: TaskSpec) -> list[Repeat]:
        """The repeats of a score: draws of the data, or runs if the task has one split."""
        runs = self.repeats_on_first_draw(spec)
        return (
            runs if DATASETS[spec.task].has_single_split else [Repeat(seed, 0) for _, seed in runs]
        )

    def repeats_on_first_draw(self, spec: TaskSpec) -> list[Repeat]:
        """Runs with data seed 0 that differ only in their initialisation, as in the paper."""
        return [Repeat(0, number) for number in range(QUICK_REPEATS if self.quick else REPEATS)]

    def job(
        self,
        spec: TaskSpec,
        method: str,
        backbone: str,
        repeat: Repeat,
        protocol: str = "paper",
        features: str | None = None,
        ood_curves: bool = False,
        changes: Mapping[str, Any] | None = None,
        generator: str = "shared",
    ) -> RunConfig:
        """One run with the default settings, except `changes`."""
        changed = dict(changes or {})
        if self.quick:
            changed["epochs"] = DATASETS[spec.task].quick_epochs
        features = features or spec.features
        settings = _settings(spec.task, method, backbone, features, tuple(changed.items()))
        return RunConfig(
            task=spec.task,
            protocol=protocol,
            data_seed=repeat.data_seed,
            features=features,
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
    task: str, method: str, backbone: str, features: str, changes: tuple[tuple[str, Any], ...]
) -> dict[str, Any]:
    """Default settings with changes, cached because many jobs share them."""
    return asdict(override(task_settings(task, method, backbone, features=features), dict(changes)))


def split_label(split: str) -> str:
    """`ood/ES` → `ES`, `test_id` → `ID`, `ood` → `OOD`."""
    return {"test_id": "ID", "ood": "OOD"}.get(split, split.rpartition("/")[2])
