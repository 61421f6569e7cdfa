"""Train a method on a task, for one or more seeds."""

from __future__ import annotations

import logging
import platform
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import asdict, dataclass, replace
from itertools import compress
from pathlib import Path
from typing import Any, SupportsIndex

import numpy as np
import torch
from torch import Tensor

from canet._version import __version__
from canet.data.benchmarks.dataset import USER_GRAPH
from canet.data.digest import DataDigest
from canet.data.task import ShiftTask
from canet.errors import InputError
from canet.methods import METHODS, Backbone, Method, Settings, get_backbone, get_method
from canet.methods.base import ModelSettings
from canet.store.config import RunConfig
from canet.store.result import RunResult
from canet.store.run_folder import RunFolder
from canet.training.environments import inferred_environments
from canet.training.epochs import epochs_of
from canet.training.fields import TaskFields
from canet.training.loop import EpochReport, Loop, Progress, set_up_kernels, train_loops
from canet.training.start import fanout_of, load_initial, resume, share_state
from canet.util import distributed
from canet.util.devices import device_name, pick_device
from canet.util.files import digest_of
from canet.util.memory import peak_resident_mb
from canet.util.seeds import checked_seed
from canet.util.signals import deferred
from canet.util.torch_state import fast_products, seeded

logger = logging.getLogger("canet")
SELECTION = "best validation"
"""The rule of the paper: the first epoch with the best validation score."""
Callback = Callable[[dict[str, Any]], None]
"""Called after each epoch with `model`, `seed`, `epoch`, `epochs`, `loss` and `valid`."""


@dataclass(frozen=True)
class Run:
    """A finished run."""

    config: RunConfig  # the configuration
    result: RunResult  # scores between 0 and 1, selection rule, timing and versions
    history: dict[str, list[float]]  # loss and scores of every epoch
    method: Method  # the trained method, with the weights of the selected epoch
    predicted: dict[str, Tensor] | None = None  # logits of every split; None: the run was read


class Trainer:
    """Trains one method with one set of settings on one task, for any number of seeds.

    Args:
        task: The task; it is not changed. A graph store stays on disk if the settings `batch_size`
            or `fanout` are set, and is read into memory if not.
        method: Name of a method, or a subclass of :class:`Method`.
        backbone: Name of a backbone, or a :class:`Backbone`.
        settings: Settings of the method; None: its defaults.
        device: `auto`, `cpu` or `cuda`.
        epochs: Number of epochs, instead of the one in `settings`.
        fields: Batches of another trainer on the same task and device, to share them. That trainer
            must prepare features in the same way and have at least the same operators and layers.
        class_weight: Weights $[C]$ of the classes in the supervised loss; None: equal weights.
        threads: CPU threads. They are part of a run: its last bits depend on them.
        callbacks: Functions that are called after each epoch with a dict of `model`, `seed`,
            `epoch`, `epochs`, `loss` and `valid`. On a GPU they are called every 20 epochs, for
            each of these.
        check: Called before each step in batches that is not captured; an error ends the training.
    """

    def __init__(
        self,
        task: ShiftTask,
        method: str | type[Method] = "canet",
        backbone: str | Backbone = "gcn",
        settings: ModelSettings | None = None,
        device: str | torch.device = "auto",
        epochs: int | None = None,
        fields: TaskFields | None = None,
        class_weight: Tensor | None = None,
        threads: int = 1,
        callbacks: Sequence[Callback] = (),
        check: Callable[[], None] = lambda: None,
        initial: Mapping[str, Tensor] | None = None,
    ) -> None:
        if not isinstance(task, ShiftTask):
            raise InputError(
                f"task is a {type(task).__name__}, not a ShiftTask: pass the result of "
                "canet.load_task"
            )
        self.method_type = get_method(method)
        self.backbone = get_backbone(backbone)
        settings_type = self.method_type.settings_type
        settings = settings_type() if settings is None else settings
        if not isinstance(settings, settings_type):
            raise InputError(
                f"settings of method '{self.method_type.name}' must be {settings_type.__name__}, "
                f"not {type(settings).__name__}"
            )
        self.settings: Settings = settings
        if epochs is not None:
            self.settings = replace(self.settings, epochs=epochs)
        self.given_task = task
        self.task = task = task if self.settings.in_batches else task.in_memory()
        self.class_weight = class_weight
        if threads < 1:
            raise InputError(f"threads is {threads}, but must be 1 or more")
        self.threads = threads
        self.callbacks, self.check = tuple(callbacks), check
        self.initial = initial
        self.device = distributed.own_device(pick_device(device))
        distributed.join(self.device)
        set_up_kernels(self.device)
        self._check_environments()
        if (
            task.data.get("edge_weight") is not None
            and not self.method_type.traits.uses_edge_weights
        ):
            raise InputError(
                f"method '{self.method_type.name}' adds and removes edges and cannot use edge "
                "weights: choose another method, or remove the weights"
            )
        self._fanout = fanout_of(self.method_type, self.settings, task)
        with torch.device("meta"):
            model = self._new_method().model
        if fields is None:
            sizes, how = (model.operators, model.num_layers), self.settings.scaling
            fields = TaskFields(task, *sizes, self.device, how, in_batches=self._fanout is not None)
        self.fields = fields
        self.metric = task.scorer

    @property
    def digest(self) -> DataDigest:
        """The digest of the task; class weights count as part of its labels."""
        return weighted_digest(self.task, self.class_weight)

    def config(self, seed: SupportsIndex = 0, ood_curves: bool = False) -> RunConfig:
        """Return the complete configuration of a run with this seed."""
        names = self.method_type.name, self.backbone.name
        return run_config(self.task, *names, self.settings, seed, self.threads, ood_curves)

    def run(
        self,
        seed: SupportsIndex = 0,
        folder: str | Path | None = None,
        ood_curves: bool = False,
        on_progress: Progress | None = None,
    ) -> Run:
        """Train with one seed and score the epoch with the best validation score.

        Args:
            seed: Seed of the initialisation, dropout and sampling; from 0 to 2³² - 1.
            folder: Folder of the run. A finished run there is read; an unfinished one is resumed,
                with the same result to the bit.
            ood_curves: Also score every split at every epoch. This does not influence the run.
            on_progress: Called with (finished epochs, all epochs, last validation score).
        """
        return self.run_together({checked_seed(seed): folder}, ood_curves, on_progress)[0]

    @property
    def together(self) -> bool:
        """Whether training several runs side by side is faster than one after the other."""
        is_alone = distributed.world_size() == 1
        return is_alone and self.device.type == "cuda" and self.method_type.traits.capturable

    def run_together(
        self,
        folders: Mapping[int, str | Path | None],
        ood_curves: bool = False,
        on_progress: Progress | None = None,
    ) -> list[Run]:
        """Train with several seeds side by side; the results are the same as one by one.

        Args:
            folders: Seed → folder of its run, or None.
            ood_curves, on_progress: As in `run`; the progress is that of one of the runs.
        """
        run_folders = {
            checked_seed(seed): None if path is None else RunFolder(Path(path))
            for seed, path in folders.items()
        }
        if self.device.type == "cuda":
            torch.cuda.reset_peak_memory_stats(self.device)
        self._check_processes(list(run_folders), ood_curves)
        writes = distributed.rank() == 0
        for seed, run_folder in run_folders.items():
            if run_folder and writes:
                run_folder.begin(self.config(seed, ood_curves), self.digest)
        is_open = [not (folder and folder.finished) for folder in run_folders.values()]
        is_open = distributed.broadcast(torch.tensor(is_open, device=self.device)).tolist()
        open_seeds = list(compress(run_folders, is_open))
        finished: dict[int, Run] = {}
        batches = [open_seeds] if self.together else [[seed] for seed in open_seeds]
        for seeds in filter(None, batches):
            with deferred():  # a run after its last epoch is written before a signal takes effect
                folders_of = {seed: run_folders[seed] if writes else None for seed in seeds}
                finished |= self._train(folders_of, ood_curves, on_progress)
        return [
            finished.get(seed) or self._read(seed, ood_curves, run_folders) for seed in run_folders
        ]

    def _check_processes(self, seeds: Sequence[int], ood_curves: bool) -> None:
        """Raise an error if another process of this run trains something else."""
        if distributed.world_size() > 1:
            # The path of a graph store may differ between machines; its digest may not.
            settings = replace(self.config(0, ood_curves), task="")
            parts = {"settings": repr(settings), "seeds": repr(seeds), "data": self.digest.short}
            distributed.check_same(parts, self.device)

    def _train(
        self,
        run_folders: Mapping[int, RunFolder | None],
        ood_curves: bool,
        on_progress: Progress | None,
    ) -> dict[int, Run]:
        """Train runs side by side.

        Two or more runs share the random generator of the CPU, so none of them may draw from it.
        """
        with seeded(0, self.device, self.threads):
            loops = {
                seed: self._loop(seed, run_folder, ood_curves, lane)
                for lane, (seed, run_folder) in enumerate(run_folders.items())
            }
            # Drawing neighbours changes a step far more than rounding does.
            with nullcontext() if self._fanout is None else fast_products(self.device):
                train_loops(list(loops.values()), list(run_folders.values()), on_progress)
            return {
                seed: self._finish(seed, loop, run_folders[seed], ood_curves, len(loops))
                for seed, loop in loops.items()
            }

    def _loop(self, seed: int, run_folder: RunFolder | None, ood_curves: bool, lane: int) -> Loop:
        """Return the loop of a run before its first epoch, or at its last checkpoint."""
        torch.manual_seed(seed)
        method = self._new_method().to(self.device)
        if self.initial is not None:
            load_initial(method, self.initial)
        method.prepare(self.fields.view(self.settings.batch_size))
        curves = list(self.fields.nodes) if ood_curves else ["valid"]
        report, batch, train_epoch = self._epoch_report(seed), None, None
        if self._fanout is None:
            batch = self.fields.batch("train")
        else:
            sizes = self.settings.batch_size, self._fanout
            train_epoch = epochs_of(self.fields, method, *sizes, seed, self.check)
        loop = Loop(method, self.settings, batch, self.score, curves, lane, report, train_epoch)
        if run_folder:
            resume(loop, run_folder)
        share_state(loop)
        return loop

    def _epoch_report(self, seed: int) -> EpochReport | None:
        if not self.callbacks:
            return None
        facts = {"model": self.config(seed).model, "seed": seed}

        def report(epoch: int, loss: float, valid: float) -> None:
            numbers = {"epoch": epoch, "epochs": self.settings.epochs, "loss": loss, "valid": valid}
            for callback in self.callbacks:
                callback(facts | numbers)

        return report

    def _finish(
        self, seed: int, loop: Loop, run_folder: RunFolder | None, ood_curves: bool, at_once: int
    ) -> Run:
        """Score the selected epoch, and write the run."""
        history = {name: curve[: loop.epoch].tolist() for name, curve in loop.history.items()}
        last = self.scores(loop.method)
        loop.method.load_state_dict(loop.best.tensors)
        predicted = dict[str, Tensor]()
        scores, inferred = self.scores(loop.method, predicted), None
        if distributed.rank() == 0:
            inferred = inferred_environments(loop.method, self.fields)
        result = RunResult(
            scores=scores,
            last_scores=last,
            selection=SELECTION,
            selected_epoch=int(np.nanargmax(history["valid"])) + 1,
            environments_seen=self._environments_seen(),
            inferred_environments=inferred,
            findings=loop.method.findings(),
            epochs=loop.epoch,
            seconds_per_epoch=loop.seconds / max(1, loop.epochs_here),
            runs_at_once=at_once,
            peak_memory_mb=peak_memory_mb(self.device),
            device=device_name(self.device, self.threads),
            versions=versions(),
        )
        model, score = self.config(seed).model, result.scores["valid"]
        logger.info("%s, seed %d: validation score %.4f", model, seed, score)
        if run_folder:
            run_folder.finish(loop.best.tensors, history, result)
        config = self.config(seed, ood_curves)
        return Run(config, result, history, loop.method, predicted or None)

    def load(self, run_folder: RunFolder) -> Method:
        """Load the trained method of a finished run of this task, method and settings."""
        run_folder.check_data(self.digest)
        with seeded(0, self.device):
            method = self._new_method().to(self.device)
        run_folder.load_weights(method)
        return method.eval()

    def scores(
        self, method: Method, predicted: dict[str, Tensor] | None = None
    ) -> dict[str, float]:
        """Return the score of every split, by its name in `task.splits()`.

        The first of several processes computes them. `predicted` receives its logits, on the CPU.
        """
        method.eval()
        values = torch.empty(len(self.fields.nodes), dtype=torch.double, device=self.device)
        if distributed.rank() == 0:
            with seeded(0, self.device, self.threads):
                found = self.fields.logits(method)
                for i, split in enumerate(self.fields.nodes):
                    values[i] = self._scored(*found[split])
                if predicted is not None:
                    predicted |= {split: logits.cpu() for split, (logits, _) in found.items()}
        return dict(zip(self.fields.nodes, distributed.broadcast(values).tolist(), strict=True))

    def score(self, method: Method, split: str) -> Tensor:
        """Return the score of a split, a tensor on the device; NaN if a logit is not finite."""
        return self._scored(*self.fields.predict(method, split)).to(self.device)

    def _scored(self, logits: Tensor, y: Tensor) -> Tensor:
        return torch.where(logits.isfinite().all(), self.metric(logits, y), torch.nan)

    def _check_environments(self) -> None:
        """Raise an error if the method needs environment labels and the task has none."""
        ids = self.task.training_environments()
        if self.method_type.traits.needs_environments and (ids.numel() < 2 or ids.min() < 0):
            free = ", ".join(
                name for name, cls in METHODS.items() if not cls.traits.needs_environments
            )
            how = f"task '{self.task.name}' does not have them"
            if self.task.name == USER_GRAPH:
                how = "pass environment to fit, or --environment COLUMN"
            raise InputError(
                f"method '{self.method_type.name}' needs an environment label for every training "
                f"node and at least two environments: {how}. Methods that need no environment "
                f"labels: {free}"
            )

    def _environments_seen(self) -> list[str] | None:
        """Return the names of the environments that the method used; None if it used none."""
        if not self.method_type.traits.needs_environments:
            return None
        ids = self.task.training_environments().tolist()
        names = self.task.environments
        return [names[i] if i < len(names) else str(i) for i in ids]

    def _new_method(self) -> Method:
        return self.method_type(
            self.settings,
            self.backbone,
            self.task.num_features,
            self.task.num_classes,
            self.task.training_environments().numel(),
            self.class_weight,
        )

    def _read(
        self, seed: int, ood_curves: bool, run_folders: Mapping[int, RunFolder | None]
    ) -> Run:
        """Read a finished run from its folder."""
        run_folder = run_folders[seed]
        assert run_folder is not None
        config, result = self.config(seed, ood_curves), run_folder.read_result()
        return Run(config, result, run_folder.read_metrics(), self.load(run_folder))


def peak_memory_mb(device: torch.device) -> float:
    """Return the peak memory in MB: allocated on the GPU, or resident in this process."""
    if device.type == "cuda":
        return torch.cuda.max_memory_allocated(device) / 2**20
    return peak_resident_mb()


def versions() -> dict[str, str]:
    return {"canet": __version__, "python": platform.python_version(), "torch": torch.__version__}


def run_config(
    task: ShiftTask,
    method: str,
    backbone: str,
    settings: ModelSettings,
    seed: SupportsIndex,
    threads: int,
    ood_curves: bool,
) -> RunConfig:
    """Return the complete configuration of a run."""
    return RunConfig(
        task=task.name,
        protocol=task.protocol,
        data_seed=checked_seed(task.data_seed, "the task's data_seed"),
        features=task.features,
        inductive=task.inductive,
        method=method,
        backbone=backbone,
        settings=asdict(settings),
        seed=checked_seed(seed),
        ood_curves=ood_curves,
        generator=task.generator,
        threads=threads,
    )


def weighted_digest(task: ShiftTask, class_weight: Tensor | None) -> DataDigest:
    """Return the digest of a task; class weights count as part of its labels."""
    if class_weight is None:
        return task.digest
    labels = digest_of(f"{task.digest.labels} {class_weight.tolist()}".encode())
    return replace(task.digest, labels=labels)
