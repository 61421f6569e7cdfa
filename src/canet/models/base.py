"""What a model is: a `Learner` learns from a task, and gives a `Fitted`, which reads a graph."""

import logging
import shutil
import time
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from itertools import compress
from pathlib import Path
from typing import Any, ClassVar, Self

import numpy as np
import scipy.sparse as sp
import torch
from torch import Tensor

from canet.data.benchmarks.dataset import USER_GRAPH
from canet.data.digest import DataDigest
from canet.data.graph import Graph
from canet.data.task import ShiftTask
from canet.errors import InputError, VersionError
from canet.methods import METHODS, Settings, Traits
from canet.methods.base import Findings, ModelSettings
from canet.models.options import Options
from canet.models.replacing import Replacing, replacing_in
from canet.nn.model import Prediction
from canet.reading.pieces import Piece
from canet.reading.prepared import PreparedGraph, task_graph
from canet.scoring.metrics import finite_score
from canet.store.config import RunConfig
from canet.store.result import Candidate, InferredEnvironments, RunResult, versions
from canet.store.run_folder import RunFolder
from canet.training.fields import hides_shifted_nodes
from canet.training.loop import Progress
from canet.util import distributed
from canet.util.colour import Colour
from canet.util.devices import device_name, peak_memory_mb, pick_device
from canet.util.files import digest_of
from canet.util.seeds import checked_seed
from canet.util.signals import deferred
from canet.util.sparse import Matrix, from_matrix, to_matrix
from canet.util.torch_state import limited_threads, seeded, single_precision

logger = logging.getLogger("canet")
MAX_SIZE = 2**31  # of a saved model
SCORE_LINE = "%s, seed %d: validation score %.4f"  # that a finished training logs
WORK_FOLDER = ".work"  # folder of what an unfinished run has finished
State = tuple[dict[str, Any], dict[str, Tensor]]  # a model as JSON and as named tensors
KINDS: "dict[str, type[Fitted]]" = {}  # kind of a saved model → its class


@dataclass(frozen=True)
class Training:
    """What a training reports for the result of its run; a learner without epochs need not.

    Args:
        epochs: Number of epochs, over all trainings.
        seconds_per_epoch: Mean over the epochs of this process; None: that of the whole training.
        history: Loss and scores of every epoch.
        selection, selected_epoch, last_scores, inferred_environments, findings, runs_at_once: As in
            :class:`RunResult`.
    """

    epochs: int = 0
    seconds_per_epoch: float | None = None
    history: Mapping[str, list[float]] = field(default_factory=dict)
    selection: str = "none"
    selected_epoch: int = 0
    last_scores: dict[str, float] = field(default_factory=dict)
    inferred_environments: InferredEnvironments | None = None
    findings: Findings | None = None
    runs_at_once: int = 1


class Fitted(ABC):
    """A trained model, which predicts the nodes of a graph.

    Attributes:
        kind: Name of the class in saved models.
        in_parts: Whether a graph on disk is read in parts, not at once.
        sizes: Numbers of features D and classes C, if they are known.
        num_hops: Number of hops from which a prediction reads neighbours.
        training: What the training reports for the result of its run.
        is_complete: Whether the training was not stopped early by the user.
        candidates: The models that were compared to choose this one; empty if there was no choice.
        result: Scores, timing and versions of the training run, if there was one.
        predicted: Logits of every split, if they were computed for the scores.
    """

    kind: ClassVar[str]
    in_parts: ClassVar[bool] = False
    sizes: tuple[int, int] | None = None
    num_hops: int = 2
    training: Training = Training()
    is_complete: bool = True
    candidates: Sequence[Candidate] = ()
    result: RunResult | None = None
    predicted: Mapping[str, Tensor] | None = None

    def __init_subclass__(cls) -> None:
        KINDS[cls.kind] = cls

    @abstractmethod
    def read(self, graph: PreparedGraph, nodes: Tensor | None = None) -> Prediction:
        """Predict all nodes, or the nodes with ids $[n]$; the result is on the CPU."""

    def parts(self, graph: PreparedGraph, nodes: Tensor | None = None) -> Iterator[Piece]:
        """Predict as `read`, some nodes at a time: yield their rows in the result of `read`."""
        found = self.read(graph, nodes)
        yield torch.arange(len(found.logits)), found

    def replacing(self, graph: PreparedGraph, nodes: Tensor) -> Replacing:
        """Prepare predictions of nodes $[n]$ of a graph in memory with columns of other nodes.

        The result maps numbers of columns to a function, which maps a donor of each node $[N]$ to
        the logits $[n, C]$ that the model has if every node gets the values of its donor in these
        columns, before columns are scaled. Override it if a model can compute many of them faster.
        """

        def read(x: Matrix) -> Tensor:
            return self.read(graph.with_features(from_matrix(x)), nodes).logits

        x = to_matrix(graph.data.x)
        rows = sp.eye(x.shape[1], dtype=np.float32, format="csr")
        return replacing_in(x, x, lambda values, columns: values @ rows[columns], read)

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

    def learner(self, shared: Settings, options: Options) -> "Learner":
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


@dataclass(eq=False)
class Reader:
    """A trained model on one graph, checked and normalised once for all predictions."""

    model: Fitted
    graph: PreparedGraph
    y: object = None  # labels of the graph as passed by the user
    columns: Sequence[str] = ()  # names of the features, if they have names

    @property
    def data(self) -> Graph:
        return self.graph.data

    def read(self, nodes: Tensor | None = None) -> Prediction:
        """Predict all nodes, or the nodes with ids $[n]$; see `Fitted.read`."""
        return self._checked(self.model.read(self.graph, nodes))

    def parts(self, nodes: Tensor | None = None) -> Iterator[Piece]:
        """Predict as `read`, some nodes at a time; see `Fitted.parts`."""
        for rows, found in self.model.parts(self.graph, nodes):
            yield rows, self._checked(found)

    def _checked(self, found: Prediction) -> Prediction:
        """Return a prediction, or name the largest feature if it is not finite."""
        if found.logits.isfinite().all():
            return found
        x = to_matrix(self.data.x)
        extremes = [divmod(int(i), x.shape[1]) for i in (x.argmin(), x.argmax())]
        row, column = max(extremes, key=lambda place: abs(x[place]))
        node = self.data.names(np.array([row]))[0]
        name = self.columns[column] if self.columns else column
        raise InputError(
            f"the predictions are not finite: node '{node}' has the value {x[row, column]:.4g} in "
            f"column '{name}', the largest in the graph: correct it, or scale the columns as for "
            "training"
        )


class Learner(ABC):
    """Trains models: a network with its method, an average of models, or a model of your own.

    A subclass defines `fit`. One that trains several seeds side by side overrides `fit_together`.
    `run` is the same for all: it trains, scores and writes what is not finished.

    Args:
        settings: An instance of `settings_type`; None: the defaults.
        options: How to train.
    """

    name: str
    label: ClassVar[str]
    colour: ClassVar[Colour]
    summary: ClassVar[str]
    paper: ClassVar[str]
    settings_type: type[ModelSettings] = Settings
    traits: Traits = Traits()
    has_epochs: ClassVar[bool] = False
    """Whether training is a loop of epochs: they have scores, and a signal ends it between two."""

    def __init__(
        self, settings: ModelSettings | None = None, options: Options | None = None
    ) -> None:
        self.settings: ModelSettings = self.settings_type() if settings is None else settings
        if not isinstance(self.settings, self.settings_type):
            raise InputError(
                f"settings of method '{self.names[0]}' must be {self.settings_type.__name__}, "
                f"not {type(settings).__name__}"
            )
        self.options = options or Options()
        self.device = distributed.own_device(pick_device(self.options.device))

    @property
    def names(self) -> tuple[str, str]:
        """The names of the method and the backbone in configurations."""
        return self.name, self.name

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

    def fit_together(
        self,
        task: ShiftTask,
        folders: Mapping[int, RunFolder | None],
        *,
        initial: Fitted | None = None,
        ood_curves: bool = False,
        on_progress: Progress | None = None,
    ) -> list[Fitted]:
        """Train with some seeds, by default with `fit`; arguments as for `run`."""
        fit = partial(self.fit, task, initial=initial, on_progress=on_progress)
        works = {seed: one.path / WORK_FOLDER if one else None for seed, one in folders.items()}
        return [fit(seed, work=work) for seed, work in works.items()]

    @property
    def together(self) -> bool:
        """Whether training several seeds side by side is faster than one after the other."""
        return False

    def check(self, task: ShiftTask) -> None:
        """Raise an error if this learner cannot train on a task."""
        if not isinstance(task, ShiftTask):
            raise InputError(
                f"task is a {type(task).__name__}, not a ShiftTask: pass the result of "
                "canet.load_task"
            )
        name, ids = self.names[0], task.training_environments()
        if self.traits.needs_environments and (ids.numel() < 2 or ids.min() < 0):
            free = ", ".join(n for n, cls in METHODS.items() if not cls.traits.needs_environments)
            how = f"task '{task.name}' does not have them"
            if task.name == USER_GRAPH:
                how = "pass environment to fit, or --environment COLUMN"
            raise InputError(
                f"method '{name}' needs an environment label for every training node and at least "
                f"two environments: {how}. Methods that need no environment labels: {free}"
            )
        if task.data.is_weighted and not self.traits.uses_edge_weights:
            raise InputError(
                f"method '{name}' adds and removes edges and cannot use edge weights: choose "
                "another method, or remove the weights"
            )

    def run(
        self,
        task: ShiftTask,
        folders: Mapping[int, str | Path | None],
        *,
        initial: Fitted | None = None,
        ood_curves: bool = False,
        on_progress: Progress | None = None,
    ) -> list[Fitted]:
        """Train with some seeds, score every split, and write each run to its folder.

        Of several processes that train one model, the first one writes.

        Args:
            task: The task.
            folders: Seed → folder of its run, or None. A finished run there is read, and an
                unfinished one is continued, with the same result to the bit.
            initial, on_progress: As for `fit`; the progress is that of one of the runs.
            ood_curves: Also score every split at every epoch, if there are epochs. This does not
                influence the run.
        """
        if ood_curves and not self.has_epochs:
            raise InputError(
                f"method '{self.name}' has no scores per epoch: leave out --ood-curves"
            )
        self.check(task)
        distributed.join(self.device)
        if self.device.type == "cuda":
            torch.cuda.reset_peak_memory_stats(self.device)
        places = {
            checked_seed(seed): None if path is None else RunFolder(Path(path))
            for seed, path in folders.items()
        }
        self._check_processes(task, list(places), ood_curves)
        writes = distributed.rank() == 0
        for seed, place in places.items():
            if place and writes:
                place.begin(self.config(task, seed, ood_curves), self.digest(task))
        is_open = [not (place and place.finished) for place in places.values()]
        is_open = distributed.broadcast(torch.tensor(is_open, device=self.device)).tolist()
        seeds, trained = list(compress(places, is_open)), dict[int, Fitted]()
        for some in filter(None, [seeds] if self.together else [[seed] for seed in seeds]):
            own = {seed: places[seed] if writes else None for seed in some}
            # A run after its last epoch is written before a signal takes effect.
            with deferred() if self.has_epochs else nullcontext():
                trained |= self._train(task, own, initial, ood_curves, on_progress)
        for seed, place in places.items():
            if place and seed not in trained:
                shutil.rmtree(place.path / WORK_FOLDER, ignore_errors=True)
                trained[seed] = self.load(task, place)
        return [trained[seed] for seed in places]

    def _check_processes(self, task: ShiftTask, seeds: Sequence[int], ood_curves: bool) -> None:
        """Raise an error if another process of this run trains something else."""
        if distributed.world_size() > 1:
            # The path of a graph store may differ between machines; its digest may not.
            settings = replace(self.config(task, 0, ood_curves), task="")
            parts = {"settings": repr(settings), "seeds": repr(seeds)}
            distributed.check_same(parts | {"data": self.digest(task).short}, self.device)

    def _train(
        self,
        task: ShiftTask,
        places: Mapping[int, RunFolder | None],
        initial: Fitted | None,
        ood_curves: bool,
        on_progress: Progress | None,
    ) -> dict[int, Fitted]:
        """Train, score and write runs."""
        begin = time.monotonic()
        with limited_threads(self.options.threads), single_precision():
            trained = self.fit_together(
                task, places, initial=initial, ood_curves=ood_curves, on_progress=on_progress
            )
            for (seed, place), fitted in zip(places.items(), trained, strict=True):
                model, tensors = self.content(fitted)
                seconds = sum(one.seconds for one in fitted.candidates) or time.monotonic() - begin
                fitted.result = self._result(task, fitted, model, seconds)
                name, score = self.options.name, fitted.result.scores["valid"]
                logger.info(SCORE_LINE, name or self.config(task).model, seed, score)
                if place and fitted.is_complete:
                    place.finish(tensors, fitted.training.history, fitted.result)
                    shutil.rmtree(place.path / WORK_FOLDER, ignore_errors=True)
        return dict(zip(places, trained, strict=True))

    def _result(
        self, task: ShiftTask, fitted: Fitted, model: dict[str, Any], seconds: float
    ) -> RunResult:
        """Score a model, and return the result of its run."""
        ids, names = task.training_environments().tolist(), task.environments
        seen = [names[i] if i < len(names) else str(i) for i in ids]
        training = fitted.training
        return RunResult(
            scores=self.scores(task, fitted),
            last_scores=training.last_scores,
            selection=training.selection,
            selected_epoch=training.selected_epoch,
            environments_seen=seen if self.traits.needs_environments else None,
            inferred_environments=training.inferred_environments,
            findings=training.findings,
            epochs=training.epochs,
            seconds_per_epoch=training.seconds_per_epoch or seconds / max(1, training.epochs),
            runs_at_once=training.runs_at_once,
            peak_memory_mb=peak_memory_mb(self.device),
            device=device_name(self.device, self.options.threads),
            versions=versions(),
            candidates=list(fitted.candidates),
            model=model,
        )

    def load(self, task: ShiftTask, place: RunFolder) -> Fitted:
        """Load the model of a finished run on this task."""
        place.check_data(self.digest(task))
        result = place.read_result()
        fitted = self.restored(task, place, result.model)
        fitted.result, fitted.candidates = result, result.candidates
        history = place.read_metrics() if place.has_metrics else {}
        fitted.training = Training(result.epochs, history=history)
        return fitted

    def content(self, fitted: Fitted) -> State:
        """Return what a run stores of its model, for `restored`."""
        return fitted.state()

    def restored(self, task: ShiftTask, place: RunFolder, about: Mapping[str, Any]) -> Fitted:
        """Build the model of a finished run from what `content` returned."""
        return restore(about, place.read_weights()).to(self.device)

    def scores(self, task: ShiftTask, fitted: Fitted) -> dict[str, float]:
        """Return the score of every split, by its name in `task.splits()`.

        It is NaN if a logit is not finite. The first of several processes computes them.
        """
        splits = list(task.scored())
        values = torch.empty(len(splits), dtype=torch.double, device=self.device)
        if distributed.rank() == 0:
            with seeded(0, self.device, self.options.threads):
                found = self.logits(task, fitted)
                for i, split in enumerate(splits):
                    values[i] = finite_score(task.scorer, *found[split])
            fitted.predicted = {split: found[split][0].cpu() for split in splits}
        return dict(zip(splits, distributed.broadcast(values).tolist(), strict=True))

    def logits(self, task: ShiftTask, fitted: Fitted) -> dict[str, tuple[Tensor, Tensor]]:
        """Return logits $[n, C]$ and labels $[n]$ of every split, by its name."""
        logits, y = fitted.logits(task), task.y
        return {split: (logits[split], y[nodes]) for split, nodes in task.scored().items()}

    def config(self, task: ShiftTask, seed: int = 0, ood_curves: bool = False) -> RunConfig:
        """Return the complete configuration of a run with this seed."""
        method, backbone = self.names
        return RunConfig(
            task=task.name,
            protocol=task.protocol,
            data_seed=checked_seed(task.data_seed, "the task's data_seed"),
            features=task.features,
            inductive=task.inductive,
            method=method,
            backbone=backbone,
            settings=asdict(self.settings),
            seed=checked_seed(seed),
            ood_curves=ood_curves,
            generator=task.generator,
            threads=self.options.threads,
        )

    def digest(self, task: ShiftTask) -> DataDigest:
        """Return the digest of a task; class weights count as part of its labels."""
        if self.options.class_weight is None:
            return task.digest
        text = f"{task.digest.labels} {self.options.class_weight.tolist()}"
        return replace(task.digest, labels=digest_of(text.encode()))


def entry(about: Mapping[str, Any], name: str, kind: Any) -> Any:
    """Return an entry of the result of `Fitted.state`, which must have this type."""
    value = about.get(name)
    if not isinstance(value, kind) or (isinstance(value, int) and abs(value) > MAX_SIZE):
        raise VersionError(f"the entry '{name}' of the model is missing or not possible")
    return value


def restore(about: Mapping[str, Any], tensors: Mapping[str, Tensor]) -> Fitted:
    """Build a model from the result of `Fitted.state`."""
    kind = entry(about, "kind", str)
    if kind not in KINDS:
        raise VersionError(
            f"the model has the unknown kind '{kind}': install or import the package that adds it, "
            "or use the version of canet that wrote it"
        )
    for name, tensor in tensors.items():
        values = tensor.double() if tensor.is_floating_point() else tensor
        # A threshold of trees is infinite if it only separates missing values.
        wrong = values.isnan() if name.endswith("num_threshold") else ~values.isfinite()
        if wrong.any():
            raise VersionError(f"the weights '{name}' of the model contain NaN or infinity")
    return KINDS[kind].restore(about, tensors)
