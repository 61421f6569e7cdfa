"""What a model is: a `Learner` learns from a task, and gives a `Fitted`, which reads a graph."""

from __future__ import annotations

import math
import shutil
import time
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, ClassVar, Self

import torch
from torch import Tensor

from canet.data.digest import DataDigest
from canet.data.task import ShiftTask
from canet.errors import CanetError, InputError, VersionError
from canet.methods import Settings, Traits
from canet.methods.base import ModelSettings
from canet.models.replacing import Replacing, only, replacing_in
from canet.nn.model import Prediction
from canet.reading.predict import Part
from canet.reading.prepared import PreparedGraph, task_graph
from canet.store.config import RunConfig
from canet.store.result import Candidate, RunResult
from canet.store.run_folder import RunFolder
from canet.training import Callback
from canet.training.fields import hides_shifted_nodes
from canet.training.loop import Progress
from canet.training.trainer import peak_memory_mb, run_config, versions, weighted_digest
from canet.util.colour import Colour
from canet.util.devices import device_name, pick_device
from canet.util.jobs import Pool
from canet.util.seeds import checked_seed
from canet.util.sparse import Matrix, from_matrix, to_matrix
from canet.util.torch_state import limited_threads, seeded, single_precision

WORK_FOLDER = ".work"
"""Folder of what an unfinished run has finished."""
State = tuple[dict[str, Any], dict[str, Tensor]]
"""A model as JSON and as named tensors."""


KINDS: dict[str, type[Fitted]] = {}
"""Kind of a saved model → its class."""


class OutOfTime(CanetError):
    """A training did not end before its deadline."""


class Fitted(ABC):
    """A trained model, which predicts the nodes of a graph.

    Attributes:
        kind: Name of the class in saved models.
        in_parts: Whether a graph on disk is read in parts, not at once.
        sizes: Numbers of features D and classes C, if they are known.
        num_hops: Number of hops from which a prediction reads neighbours.
        epochs: Number of epochs of the training; 0 if there are none.
        is_complete: Whether the training was not stopped early by the user.
        candidates: The models that were compared to choose this one; empty if there was no choice.
        result: Scores, timing and versions of the training run, if there was one.
        history: Loss and scores of every epoch; empty if there are no epochs.
        predicted: Logits of every split, if they were computed for the scores.
    """

    kind: ClassVar[str]
    in_parts: ClassVar[bool] = False
    sizes: tuple[int, int] | None = None
    num_hops: int = 2
    epochs: int = 0
    is_complete: bool = True
    candidates: Sequence[Candidate] = ()
    result: RunResult | None = None
    history: Mapping[str, list[float]] = {}  # never changed
    predicted: Mapping[str, Tensor] | None = None

    def __init_subclass__(cls) -> None:
        KINDS[cls.kind] = cls

    @abstractmethod
    def read(
        self, graph: PreparedGraph, nodes: Tensor | None = None, x: Tensor | None = None
    ) -> Prediction:
        """Predict all nodes, or the nodes with ids $[n]$; the result is on the CPU.

        `x` $[N, D]$ replaces the features of the graph.
        """

    def parts(self, graph: PreparedGraph, nodes: Tensor | None = None) -> Iterator[Part]:
        """Predict as `read`, some nodes at a time: yield their rows in the result of `read`."""
        found = self.read(graph, nodes)
        yield torch.arange(len(found.logits)), found

    def replacing(self, graph: PreparedGraph, nodes: Tensor) -> Replacing:
        """Prepare predictions of nodes $[n]$ of a graph in memory with columns of other nodes.

        The result maps numbers of columns to a function, which maps a donor of each node $[N]$ to
        the logits $[n, C]$ that the model has if every node gets the values of its donor in these
        columns. Override it if a model can compute many of them faster.
        """

        def read(x: Matrix) -> Tensor:
            return self.read(graph.with_features(from_matrix(x)), nodes).logits

        x = to_matrix(graph.user_graph.x)
        return replacing_in(x, partial(only, x), read)

    def logits(self, task: ShiftTask) -> dict[str, Tensor]:
        """Return the logits $[n, C]$ of every split of a task, by its name, on the CPU."""
        splits, found = task.scored(), dict[str, Tensor]()
        for hidden in (True, False):
            own = [split for split in splits if hides_shifted_nodes(task, split) == hidden]
            if own:
                nodes = torch.cat([splits[split] for split in own])
                logits = self.read(task_graph(task, hidden), nodes).logits
                sizes = [splits[split].numel() for split in own]
                found |= dict(zip(own, logits.split(sizes), strict=True))
        return {split: found[split] for split in splits}

    @abstractmethod
    def state(self) -> State:
        """Return the model as JSON and tensors, for `restore`."""

    @classmethod
    @abstractmethod
    def restore(cls, about: Mapping[str, Any], tensors: Mapping[str, Tensor]) -> Self:
        """Build the model from the result of `state`."""

    def learner(self, shared: Settings, options: Options) -> Learner:
        """Return the learner that continues the training, with the epochs of `shared` settings."""
        raise InputError(
            f"warm_start does not work with a model of kind '{self.kind}': fit a new model"
        )

    def chosen_settings(self) -> dict[str, Any]:
        """Return the settings that the training chose, to train on parts of its data with them."""
        return {}

    def to(self, device: torch.device) -> Self:
        """Move the model to a device; models that compute on the CPU stay there."""
        return self


@dataclass(frozen=True)
class Options:
    """How to train, in addition to the settings of a method.

    Args:
        device: `auto`, or a device of torch.
        class_weight: Weights $[C]$ of the classes in the supervised loss; None: equal weights.
        threads: CPU threads. They are part of a run: its last bits depend on them.
        callbacks: Functions that are called after each epoch; see :class:`canet.Trainer`.
        pool: Processes or machines that train, if several models are compared; None: this process.
        begin: Time (`time.time()`) from which a time limit counts; None: the start of the choice.
        deadline: Time after which a training raises `OutOfTime`.
        keep_on_interrupt: Whether Ctrl-C ends a comparison of models and keeps the finished ones.
    """

    device: str | torch.device = "auto"
    class_weight: Tensor | None = None
    threads: int = 1
    callbacks: Sequence[Callback] = ()
    pool: Pool | None = field(default=None, compare=False)
    begin: float | None = field(default=None, compare=False)
    deadline: float = field(default=math.inf, compare=False)
    keep_on_interrupt: bool = field(default=False, compare=False)

    def check_time(self, *_: object) -> None:
        """Raise `OutOfTime` after the deadline."""
        if time.time() > self.deadline:
            raise OutOfTime("the time limit was reached")


class Learner(ABC):
    """Trains models: a network with its method, an average of models, or a model of your own.

    A subclass defines `fit`. A learner whose training can be resumed, or that trains several seeds
    side by side, also overrides `run`.

    Args:
        settings: An instance of `settings_type`; None: the defaults.
        options: How to train.
    """

    name: str
    label: ClassVar[str]
    colour: ClassVar[Colour]
    summary: ClassVar[str]
    paper: ClassVar[str]
    settings_type: ClassVar[type[ModelSettings]] = Settings
    traits: Traits = Traits()

    def __init__(
        self, settings: ModelSettings | None = None, options: Options | None = None
    ) -> None:
        self.settings: ModelSettings = self.settings_type() if settings is None else settings
        self.options = options or Options()
        self.device = pick_device(self.options.device)

    @abstractmethod
    def fit(
        self,
        task: ShiftTask,
        seed: int = 0,
        *,
        initial: Fitted | None = None,
        work: Path | None = None,
        on_progress: Progress | None = None,
    ) -> Fitted:
        """Train on a task, without its test labels.

        Args:
            task: The task.
            seed: Seed of all random numbers.
            initial: An earlier model, whose training continues.
            work: Folder for intermediate results, from which an interrupted training continues.
            on_progress: Called with (finished steps, all steps, last validation score).
        """

    def run(
        self,
        task: ShiftTask,
        folders: Mapping[int, Path | None],
        *,
        initial: Fitted | None = None,
        ood_curves: bool = False,
        on_progress: Progress | None = None,
    ) -> list[Fitted]:
        """Train with some seeds, score every split, and write each run to its folder.

        Args:
            task: The task.
            folders: Seed → folder of its run, or None. A finished run there is read.
            initial, on_progress: As for `fit`.
            ood_curves: Also score every split at every epoch, if there are epochs.
        """
        if ood_curves:
            raise InputError(
                f"method '{self.name}' has no scores per epoch: leave out --ood-curves"
            )
        how = initial, on_progress
        return [self._run(task, seed, folder, *how) for seed, folder in folders.items()]

    def _run(
        self,
        task: ShiftTask,
        seed: int,
        folder: Path | None,
        initial: Fitted | None,
        on_progress: Progress | None,
    ) -> Fitted:
        seed, work, begin = checked_seed(seed), None, time.monotonic()
        run_folder = None if folder is None else RunFolder(Path(folder))
        if run_folder:
            work = run_folder.path / WORK_FOLDER
            run_folder.begin(self.config(task, seed), self.digest(task))
            if run_folder.finished:
                shutil.rmtree(work, ignore_errors=True)
                return self.load(task, run_folder)
        with limited_threads(self.options.threads), single_precision():
            fitted = self.fit(task, seed, initial=initial, work=work, on_progress=on_progress)
            scores = self.scores(task, fitted)
        about, tensors = fitted.state()
        seconds = sum(one.seconds for one in fitted.candidates) or time.monotonic() - begin
        fitted.result = RunResult(
            scores=scores,
            selection="held-out likelihood" if fitted.candidates else "none",
            selected_epoch=0,
            environments_seen=None,
            epochs=fitted.epochs,
            seconds_per_epoch=seconds / max(1, fitted.epochs),
            peak_memory_mb=peak_memory_mb(self.device),
            device=device_name(self.device, self.options.threads),
            versions=versions(),
            candidates=list(fitted.candidates),
            model=about,
        )
        if run_folder and work and fitted.is_complete:
            run_folder.finish(tensors, {}, fitted.result)
            shutil.rmtree(work, ignore_errors=True)
        return fitted

    def load(self, task: ShiftTask, run_folder: RunFolder) -> Fitted:
        """Load the model of a finished run on this task."""
        run_folder.check_data(self.digest(task))
        result = run_folder.read_result()
        fitted = restore(result.model, run_folder.read_weights()).to(self.device)
        fitted.result, fitted.candidates = result, result.candidates
        return fitted

    def scores(self, task: ShiftTask, fitted: Fitted) -> dict[str, float]:
        """Return the score of every split, by its name in `task.splits()`."""
        with seeded(0, self.device, self.options.threads):
            logits = fitted.predicted = fitted.logits(task)
        metric, y = task.scorer, task.y
        return {s: float(metric(logits[s], y[nodes])) for s, nodes in task.scored().items()}

    def config(self, task: ShiftTask, seed: int = 0, ood_curves: bool = False) -> RunConfig:
        """Return the complete configuration of a run with this seed."""
        how = self.name, self.name, self.settings  # without a backbone of its own
        return run_config(task, *how, seed, self.options.threads, ood_curves)

    def digest(self, task: ShiftTask) -> DataDigest:
        """Return the digest of a task; class weights count as part of its labels."""
        return weighted_digest(task, self.options.class_weight)


def entry(about: Mapping[str, Any], name: str, kind: Any) -> Any:
    """Return an entry of the result of `Fitted.state`, which must have this type."""
    if not isinstance(about.get(name), kind):
        raise VersionError(f"the entry '{name}' of the model is missing or has the wrong type")
    return about[name]


def restore(about: Mapping[str, Any], tensors: Mapping[str, Tensor]) -> Fitted:
    """Build a model from the result of `Fitted.state`."""
    kind = entry(about, "kind", str)
    if kind not in KINDS:
        raise VersionError(
            f"the model has the unknown kind '{kind}': install or import the package that adds it, "
            "or use the version of canet that wrote it"
        )
    return KINDS[kind].restore(about, tensors)
