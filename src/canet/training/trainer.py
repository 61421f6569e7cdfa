"""The training loop: Adam, validation every epoch, the best epoch's weights, scores at the end."""

from __future__ import annotations

import platform
import resource
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

import canet
from canet.data.task import ShiftTask
from canet.errors import CanetError
from canet.methods import METHODS, Batch, Method, Settings, check_backbone, get_method
from canet.training import checkpoint
from canet.training.checkpoint import RunConfig, RunFolder
from canet.training.environments import inferred_environments
from canet.training.fields import TaskFields
from canet.training.metrics import METRICS
from canet.training.selection import BestValidation

CHECKPOINT_SECONDS = 30.0
EPOCHS_BETWEEN_LOOKS = 20  # on a GPU, where looking at a number waits for the device

Progress = Callable[[int, int, float], None]


@dataclass(frozen=True)
class Run:
    """A finished run.

    Args:
        config: What was run.
        result: Scores in percent, selection rule, timing and versions: the content of result.json.
        history: Loss and scores of every epoch.
        method: The trained method, with the weights of the selected epoch.
    """

    config: RunConfig
    result: dict[str, Any]
    history: dict[str, list[float]]
    method: Method


class Trainer:
    """Trains one method with one set of settings on one task, for any number of seeds.

    Args:
        task: The task, left unchanged.
        method: Name of the method.
        backbone: `gcn` or `gat`.
        settings: The method's settings; its defaults where None.
        device: `auto`, `cpu` or `cuda`.
    """

    def __init__(
        self,
        task: ShiftTask,
        method: str = "canet",
        backbone: str = "gcn",
        settings: Settings | None = None,
        device: str = "auto",
    ) -> None:
        check_backbone(backbone)
        self.task = task
        self.method_type = get_method(method)
        self.backbone: Any = backbone
        self.settings = settings or self.method_type.settings_type()
        if not isinstance(self.settings, self.method_type.settings_type):
            raise CanetError(
                f"method '{method}' takes {self.method_type.settings_type.__name__}, "
                f"not {type(self.settings).__name__}"
            )
        self.device = pick_device(device)
        self._check_environments()
        with torch.device("meta"):
            model = self._new_method().model
        self.fields = TaskFields(task, model.operators, model.num_layers, self.device)
        self.metric = METRICS[task.metric]

    def config(self, seed: int = 0, ood_curves: bool = False) -> RunConfig:
        """What a run with this seed is, completely."""
        return RunConfig(
            task=self.task.name,
            protocol=self.task.protocol,
            data_seed=self.task.data_seed,
            features=self.task.features,
            inductive=self.task.inductive,
            method=self.method_type.name,
            backbone=self.backbone,
            settings=asdict(self.settings),
            seed=seed,
            ood_curves=ood_curves,
        )

    def run(
        self,
        seed: int = 0,
        folder: Path | None = None,
        ood_curves: bool = False,
        on_progress: Progress | None = None,
    ) -> Run:
        """Train with one seed and score the epoch with the best validation score.

        Args:
            seed: Seed of the initialisation, dropout and sampling.
            folder: Where the run is kept. A finished run there is read, an unfinished one goes on
                to the same bits as if it had never stopped.
            ood_curves: Also score every split at every epoch (they do not influence the run).
            on_progress: Called with (epochs done, epochs in all, last validation score).
        """
        config = self.config(seed, ood_curves)
        place = RunFolder(folder) if folder else None
        if place:
            place.begin(config)
            if place.finished:
                return self._read(place, config)
        if self.device.type == "cuda":
            torch.cuda.reset_peak_memory_stats(self.device)
        with seeded(seed, self.device):
            method = self._new_method().to(self.device)
            method.prepare(self.fields.view())
            loop = _Loop(self, method, ood_curves)
            saved = place.read_checkpoint() if place else None
            if saved:
                loop.restore(saved)
            loop.go(place, on_progress)
        history = {name: curve[: loop.epoch].tolist() for name, curve in loop.history.items()}
        loop.method.load_state_dict(loop.best)
        result = {
            "scores": self.scores(loop.method),
            "selection": BestValidation.name,
            "selected_epoch": BestValidation.epoch(history) + 1,
            "environments_seen": self._environments_seen(),
            "inferred_environments": inferred_environments(loop.method, self.fields),
            "epochs": loop.epoch,
            "seconds_per_epoch": loop.seconds / max(1, loop.epochs_here),
            "peak_memory_mb": peak_memory_mb(self.device),
            "device": device_name(self.device),
            "versions": versions(),
        }
        if place:
            place.finish(loop.best, history, result)
        return Run(config, result, history, loop.method)

    def load(self, place: RunFolder) -> Method:
        """The trained method of a finished run of this task, method and settings."""
        with seeded(0, self.device):
            method = self._new_method().to(self.device)
        place.load_weights(method)
        return method.eval()

    @torch.no_grad()
    def scores(self, method: Method) -> dict[str, float]:
        """Score of every split, by its name in `task.splits()`."""
        method.eval()
        return {split: float(self.score(method, split)) for split in self.fields.nodes}

    def score(self, method: Method, split: str) -> Tensor:
        """Score of one split, a tensor on the device; NaN if a logit is not finite."""
        batch = self.fields.batch(split)
        logits = method.predict(batch)
        return torch.where(logits.isfinite().all(), self.metric(logits, batch.y), torch.nan)

    def _check_environments(self) -> None:
        """A method that needs environment labels gets training nodes with at least two of them."""
        ids = self.task.training_environments()
        if self.method_type.needs_environments and (ids.numel() < 2 or ids.min() < 0):
            free = ", ".join(name for name, cls in METHODS.items() if not cls.needs_environments)
            raise CanetError(
                f"method '{self.method_type.name}' needs training nodes labelled with two or more "
                f"environments, which task '{self.task.name}' does not have; methods that need no "
                f"labels: {free}"
            )

    def _environments_seen(self) -> list[str] | None:
        """Names of the environment labels that the method was given; None if it used none."""
        if not self.method_type.needs_environments:
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
        )

    def _read(self, place: RunFolder, config: RunConfig) -> Run:
        return Run(config, place.read_result(), place.read_metrics(), self.load(place))


class _Loop:
    """The state of a run between two epochs, and how it moves on."""

    def __init__(self, trainer: Trainer, method: Method, ood_curves: bool) -> None:
        self.trainer = trainer
        self.method = method
        settings = trainer.settings
        self.optimizer = torch.optim.Adam(
            method.parameter_groups(), weight_decay=settings.weight_decay, fused=True
        )
        curves = list(trainer.fields.nodes) if ood_curves else ["valid"]
        self.history = {
            name: torch.zeros(settings.epochs, dtype=torch.double, device=trainer.device)
            for name in ["loss", *curves]
        }
        self.best = {name: tensor.clone() for name, tensor in method.state_dict().items()}
        self.best_score = torch.tensor(-torch.inf, dtype=torch.double, device=trainer.device)
        self.epoch = 0
        self.epochs_here = 0
        self.seconds = 0.0

    def go(self, place: RunFolder | None, on_progress: Progress | None) -> None:
        """Train until the last epoch or until patience ends."""
        settings, device = self.trainer.settings, self.trainer.device
        batch = self.trainer.fields.batch("train")
        self.trainer.fields.batch("valid")
        begin = saved = time.perf_counter()
        while self.epoch < settings.epochs:
            self._step(batch)
            self._validate()
            self.epoch += 1
            self.epochs_here += 1
            last = self.epoch == settings.epochs
            if device.type == "cpu" or last or self.epoch % EPOCHS_BETWEEN_LOOKS == 0:
                self._look(on_progress)
            if settings.patience and self._out_of_patience(settings.patience):
                break
            if place and not last and time.perf_counter() - saved > CHECKPOINT_SECONDS:
                place.save_checkpoint(self.tensors())
                saved = time.perf_counter()
        self._look(None)
        self.seconds = time.perf_counter() - begin
        if not torch.isfinite(self.best_score):
            raise CanetError(
                f"the validation score was never a number: check that the validation nodes of "
                f"'{self.trainer.task.name}' hold every class, or lower learning_rate "
                f"(now {settings.learning_rate:g})"
            )

    def _step(self, batch: Batch) -> None:
        self.method.train()
        self.history["loss"][self.epoch] = self.method.update(batch, self.optimizer)

    @torch.no_grad()
    def _validate(self) -> None:
        """Score this epoch and keep its weights if they are the best so far."""
        self.method.eval()
        for split in self.history.keys() - {"loss"}:
            self.history[split][self.epoch] = self.trainer.score(self.method, split)
        score = self.history["valid"][self.epoch]
        better = score > self.best_score
        self.best_score = torch.where(better, score, self.best_score)
        for name, tensor in self.method.state_dict().items():
            self.best[name] = torch.where(better, tensor, self.best[name])

    def _look(self, on_progress: Progress | None) -> None:
        """Bring numbers to the host: stop if the loss is not finite, report progress."""
        finite = torch.isfinite(self.history["loss"][: self.epoch])
        if not finite.all():
            epoch = int((~finite).nonzero()[0]) + 1
            raise CanetError(
                f"training stopped: the loss is not finite at epoch {epoch}; lower learning_rate "
                f"(now {self.trainer.settings.learning_rate:g}) or look at the features' scale"
            )
        if on_progress:
            score = float(self.history["valid"][self.epoch - 1])
            on_progress(self.epoch, self.trainer.settings.epochs, score)

    def _out_of_patience(self, patience: int) -> bool:
        best = int(self.history["valid"][: self.epoch].nan_to_num(-1.0).argmax())
        return self.epoch - 1 - best >= patience

    def tensors(self) -> dict[str, Tensor]:
        """Everything that the next epoch depends on."""
        state = {
            **checkpoint.prefixed("method", self.method.state_dict()),
            **checkpoint.prefixed("training", self.method.training_state()),
            **checkpoint.prefixed("best", self.best),
            **checkpoint.prefixed("adam", checkpoint.optimizer_tensors(self.optimizer)),
            **checkpoint.prefixed("history", self.history),
            "best_score": self.best_score,
            "epoch": torch.tensor(self.epoch),
            "rng.cpu": torch.get_rng_state(),
        }
        if self.trainer.device.type == "cuda":
            state["rng.cuda"] = torch.cuda.get_rng_state()
        return state

    def restore(self, saved: dict[str, Tensor]) -> None:
        """Go back to a state that `tensors` gave."""
        device = self.trainer.device
        self.method.load_state_dict(checkpoint.without_prefix("method", saved))
        for name, tensor in self.method.training_state().items():
            tensor.detach().copy_(saved[f"training.{name}"])
        checkpoint.restore_optimizer(self.optimizer, checkpoint.without_prefix("adam", saved))
        for name, tensor in checkpoint.without_prefix("best", saved).items():
            self.best[name] = tensor.to(device)
        for name, tensor in checkpoint.without_prefix("history", saved).items():
            self.history[name] = tensor.to(device)
        self.best_score = saved["best_score"].to(device)
        self.epoch = int(saved["epoch"])
        torch.set_rng_state(saved["rng.cpu"])
        if "rng.cuda" in saved and device.type == "cuda":
            torch.cuda.set_rng_state(saved["rng.cuda"])


@contextmanager
def seeded(seed: int, device: torch.device) -> Iterator[None]:
    """Run a block with torch's generators seeded, and put the caller's state back afterwards."""
    devices = [torch.cuda.current_device()] if device.type == "cuda" else []
    with torch.random.fork_rng(devices=devices):
        torch.manual_seed(seed)
        yield


def pick_device(name: str) -> torch.device:
    """`auto` is a GPU where there is one."""
    if name not in ("auto", "cpu", "cuda"):
        raise CanetError(f"unknown device '{name}': valid are auto, cpu, cuda")
    if name == "cuda" and not torch.cuda.is_available():
        raise CanetError("no CUDA device here: use --device cpu or --device auto")
    if name == "auto":
        name = "cuda" if torch.cuda.is_available() else "cpu"
    return torch.device(name)


def device_name(device: torch.device) -> str:
    if device.type == "cuda":
        return str(torch.cuda.get_device_name(device))
    return f"{platform.machine()} CPU, {torch.get_num_threads()} threads"


def peak_memory_mb(device: torch.device) -> float:
    """Largest memory so far: allocated on the GPU, or resident of this process."""
    if device.type == "cuda":
        return torch.cuda.max_memory_allocated(device) / 2**20
    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit / 2**20


def versions() -> dict[str, str]:
    return {
        "canet": canet.__version__,
        "python": platform.python_version(),
        "torch": torch.__version__,
    }
