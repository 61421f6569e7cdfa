"""The training loop of one run.

An epoch is a training step and a validation score. It never waits for the device and does not
depend on Python numbers that change. On a GPU, an epoch is therefore captured once as a CUDA graph
and then replayed: on a small graph, launching kernels one by one takes many times longer than
running them. Each run has its own stream and random generator, so several runs can share a GPU.
"""

import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from canet.errors import CanetError
from canet.methods import Batch, Method, Settings
from canet.nn.operations import fused
from canet.store.run_folder import RunFolder
from canet.store.tensors import (
    adam_shapes,
    optimizer_tensors,
    prefixed,
    restore_optimizer,
    without_prefix,
)
from canet.training.prefetch import cached_stream
from canet.training.snapshot import Snapshot
from canet.util import distributed
from canet.util.signals import received_signal

CHECKPOINT_SECONDS = 30.0
CHECKPOINT_COST = 0.6  # seconds, 2 % of that; if writing takes longer, checkpoints are rarer
EPOCHS_BETWEEN_CHECKS = 20  # on a GPU, because copying a number to the CPU waits for the device
EPOCHS_BEFORE_CAPTURE = 3  # they fill caches and create the state of the optimizer

_compiled: set[str] = set()  # the methods, by their `repr`, whose kernels this process has compiled

Callback = Callable[[dict[str, Any]], None]
"""Called after each epoch with `model`, `seed`, `epoch`, `epochs`, `loss` and `valid`."""
Progress = Callable[[int, int, float], None]
Score = Callable[[Method, str], Tensor]
TrainEpoch = Callable[[Method, torch.optim.Optimizer, int], Tensor]
EpochReport = Callable[[int, float, float], None]
"""Called with an epoch from 1 on, its loss and its validation score."""


def progress_text(unit: str, step: int, total: int, score: float) -> str:
    """Return the text of a progress display, such as `epoch 3/10, validation score 81.2 %`."""
    return f"{unit} {step}/{total}, validation score {100 * score:.1f} %"


@dataclass(eq=False)
class Loop:
    """The state of a run between two epochs."""

    method: Method  # prepared, on its device
    settings: Settings
    batch: Batch | None  # the training nodes, if they are always the same; None for `train_epoch`
    score: Score  # returns the score of a split, a scalar on the device
    curves: Sequence[str] = ("valid",)  # splits to score at every epoch, including `valid`
    lane: int = 0  # number of the stream on a GPU; runs trained together have different ones
    # Called once for every epoch; on a GPU for several epochs at a time.
    on_epoch: EpochReport | None = None
    # Trains the method with an optimizer in an epoch counted from 0, and returns the mean loss.
    train_epoch: TrainEpoch | None = None

    def __post_init__(self) -> None:
        self.device = self.method.model.phi_out.weight.device
        on_gpu = self.device.type == "cuda"
        self.optimizer = torch.optim.Adam(
            self.method.parameter_groups(),
            weight_decay=self.settings.weight_decay,
            fused=True,
            capturable=on_gpu,
        )
        self.history = {
            name: torch.zeros(self.settings.epochs, dtype=torch.double, device=self.device)
            for name in ["loss", *self.curves]
        }
        self.best = Snapshot(self.method.state_dict())
        self.best_score = torch.tensor(-torch.inf, dtype=torch.double, device=self.device)
        self.at = torch.zeros(1, dtype=torch.long, device=self.device)
        self.epoch = 0
        self.checked = 0  # the epochs whose numbers have been copied to the host
        self.epochs_here = 0
        self.seconds = 0.0
        self.ended = False
        self._graph: torch.cuda.CUDAGraph | None = None
        if on_gpu:
            self.stream = cached_stream(self.device, self.lane)
            self.stream.wait_stream(torch.cuda.current_stream(self.device))
            self._generator = _generator(self.device).clone_state()

    def advance(self) -> None:
        """Train one epoch; on a GPU it may still be running when this returns."""
        has_fixed_shapes = self.batch is not None and self.method.traits.capturable
        is_warm = self.device.type == "cuda" and self.epochs_here >= EPOCHS_BEFORE_CAPTURE
        with self._own_stream():
            if self._graph is None and has_fixed_shapes and is_warm:
                self._graph = torch.cuda.CUDAGraph()
                with torch.cuda.graph(self._graph, stream=self.stream):
                    self._epoch()  # recorded: this computes nothing and draws no random number
            if self._graph is None:
                self._epoch()
            else:
                self._graph.replay()
        self.epoch += 1
        self.epochs_here += 1
        self.ended = self.epoch == self.settings.epochs

    def check(self, on_progress: Progress | None = None) -> None:
        """Copy new numbers to the host: report them, and stop if a loss is not finite.

        The run ends if the validation score has not improved for `patience` epochs.
        """
        names = ("loss", "valid")
        with self._own_stream():
            new = [self.history[name][self.checked : self.epoch].tolist() for name in names]
        for loss, score in zip(*new, strict=True):
            self.checked += 1
            if not math.isfinite(loss):
                raise CanetError(
                    f"training stopped: the loss is not finite at epoch {self.checked}; lower "
                    f"learning_rate (now {self.settings.learning_rate:g}) or rescale the features"
                )
            if self.on_epoch:
                self.on_epoch(self.checked, loss, score)
        if on_progress and new[1]:
            on_progress(self.epoch, self.settings.epochs, new[1][-1])
        if patience := self.settings.patience:
            with self._own_stream():
                curve = self.history["valid"][: self.epoch].cpu()
            best = int(curve.nan_to_num(-1.0).argmax())
            self.ended |= self.epoch - 1 - best >= patience

    def _epoch(self) -> None:
        """Train and score one epoch, in place and without waiting for the device."""
        self.method.train()
        if self.batch is not None:
            loss = self.method.update(self.batch, self.optimizer)
        else:
            assert self.train_epoch is not None
            loss = self.train_epoch(self.method, self.optimizer, self.epoch)
        self.method.eval()
        with torch.no_grad():
            values = {name: self._scored(name) for name in self.curves} | {"loss": loss}
            for name, value in values.items():
                self.history[name].index_copy_(0, self.at, value.double().view(1))
            better = values["valid"] > self.best_score
            torch.where(better, values["valid"], self.best_score, out=self.best_score)
            self.best.take(self.method.state_dict(), better)
            self.at += 1

    def _scored(self, split: str) -> Tensor:
        """Return the score of a split, which the first of several processes computes."""
        if distributed.rank():
            return distributed.broadcast(torch.empty_like(self.best_score))
        return distributed.broadcast(self.score(self.method, split).double())

    @contextmanager
    def _own_stream(self) -> Iterator[None]:
        """On a GPU, use the stream and the random generator of this run."""
        if self.device.type != "cuda":
            yield
            return
        shared = _generator(self.device)
        callers = shared.graphsafe_get_state()
        shared.graphsafe_set_state(self._generator)
        try:
            with torch.cuda.stream(self.stream):
                yield
        finally:
            shared.graphsafe_set_state(callers)

    def tensors(self) -> dict[str, Tensor]:
        """Return everything that the next epoch depends on."""
        if self.device.type == "cuda":
            self.stream.synchronize()
        state = {
            **prefixed("method", self.method.state_dict()),
            **prefixed("training", self.method.training_state()),
            **prefixed("best", self.best.tensors),
            **prefixed("adam", optimizer_tensors(self.optimizer)),
            **prefixed("history", self.history),
            "best_score": self.best_score,
            "epoch": torch.tensor(self.epoch),
            "rng.cpu": torch.get_rng_state(),
        }
        if self.device.type == "cuda":
            state["rng.cuda"] = self._generator.get_state()
        return state

    def restore(self, saved: Mapping[str, Tensor]) -> None:
        """Restore a state that `tensors` returned; the state of another run is an error."""
        self._check(saved)
        self.method.load_state_dict(without_prefix("method", saved))
        for name, tensor in self.method.training_state().items():
            tensor.detach().copy_(saved[f"training.{name}"])
        restore_optimizer(self.optimizer, without_prefix("adam", saved))
        for name, tensor in without_prefix("best", saved).items():
            self.best.tensors[name].copy_(tensor)
        for name, tensor in without_prefix("history", saved).items():
            self.history[name] = tensor.to(self.device)
        self.best_score = saved["best_score"].to(self.device)
        self.epoch = self.checked = int(saved["epoch"])
        self.at.fill_(self.epoch)
        torch.set_rng_state(saved["rng.cpu"])
        if self.device.type == "cuda":
            self.stream.wait_stream(torch.cuda.current_stream(self.device))
            if "rng.cuda" in saved:
                self._generator.set_state(saved["rng.cuda"])

    def _check(self, saved: Mapping[str, Tensor]) -> None:
        """Reject a state whose names, shapes, types or epoch do not fit this run."""
        own = self.tensors()
        optional = {f"adam.{name}": shape for name, shape in adam_shapes(self.optimizer).items()}
        optional["rng.cuda"] = own["rng.cuda"].shape if "rng.cuda" in own else torch.Size([16])

        def forms(state: Mapping[str, Tensor]) -> dict[str, tuple[torch.Size, torch.dtype]]:
            return {n: (t.shape, t.dtype) for n, t in state.items() if n not in optional}

        fits = forms(saved) == forms(own) and all(
            saved[name].shape == optional[name] for name in optional.keys() & saved.keys()
        )
        if not fits or not 0 < int(saved["epoch"]) < self.settings.epochs:
            raise CanetError("the checkpoint belongs to another run")


class Checkpoints:
    """Decides when a checkpoint is due, so that writing takes under 2 % of the time of a run."""

    def __init__(self) -> None:
        self._last = time.perf_counter()
        self._pause = CHECKPOINT_SECONDS

    @property
    def due(self) -> bool:
        return time.perf_counter() - self._last > self._pause

    def save(self, loops: Sequence[Loop], folders: Sequence[RunFolder | None]) -> None:
        """Write a checkpoint of every run that has not ended."""
        begin = time.perf_counter()
        for loop, folder in zip(loops, folders, strict=True):
            if folder and not loop.ended and loop.epoch:
                folder.save_checkpoint(loop.tensors())
        self._last = time.perf_counter()
        self._pause = CHECKPOINT_SECONDS * max(1.0, (self._last - begin) / CHECKPOINT_COST)


def set_up_kernels(device: torch.device) -> None:
    """On a GPU, start the set-up of the kernel compiler while the data is being prepared."""
    if fused.on_gpu(torch.empty(0, device=device)):
        from canet.nn.kernels.launch import set_up

        set_up(torch.cuda.current_device())


def compile_kernels(loop: Loop) -> None:
    """On a GPU, compile the kernels of an epoch, unless this process already has."""
    kind, batch = repr(loop.method), loop.batch
    if batch is None or not fused.on_gpu(batch.y) or not loop.method.traits.capturable:
        return
    if kind in _compiled:
        return
    from canet.nn.kernels.launch import compiled_ahead

    # Outside `_own_stream`, so that the random generator of the run does not advance.
    with torch.cuda.stream(loop.stream), unchanged(loop), compiled_ahead():
        loop.method.train()
        loop.method.loss(loop.method.intervene(batch)).backward()
        loop.method.eval()
        with torch.no_grad():
            loop.score(loop.method, "valid")
    _compiled.add(kind)


@contextmanager
def unchanged(loop: Loop) -> Iterator[None]:
    """Restore buffers and training state, and drop the gradients, on exit."""
    state = [*loop.method.buffers(), *loop.method.training_state().values()]
    before = [tensor.clone() for tensor in state]
    try:
        yield
    finally:
        for tensor, value in zip(state, before, strict=True):
            tensor.detach().copy_(value)
        loop.optimizer.zero_grad(set_to_none=True)


def train_loops(
    loops: Sequence[Loop], folders: Sequence[RunFolder | None], on_progress: Progress | None
) -> None:
    """Train several runs side by side, each to its last epoch or until early stopping.

    After a signal to stop, training ends between two epochs with a checkpoint.
    """
    begin, checkpoints = time.perf_counter(), Checkpoints()
    compile_kernels(loops[0])
    running = list(loops)
    while running := [loop for loop in running if not loop.ended]:
        if received_signal() is not None:
            for loop in running:
                loop.check()
            checkpoints.save(loops, folders)
            raise KeyboardInterrupt
        for loop in running:
            loop.advance()
        first = running[0]
        if first.device.type == "cpu" or first.ended or first.epoch % EPOCHS_BETWEEN_CHECKS == 0:
            for loop in running:
                loop.check(on_progress if loop is first else None)
        if checkpoints.due:
            checkpoints.save(loops, folders)
    for loop in loops:
        loop.check()
        if not torch.isfinite(loop.best_score):
            raise CanetError(
                "the validation score was never a number: check that every class has validation "
                f"nodes, or lower learning_rate (now {loop.settings.learning_rate:g})"
            )
    for loop in loops:
        loop.seconds = (time.perf_counter() - begin) / len(loops)


def _generator(device: torch.device) -> torch.Generator:
    index = torch.cuda.current_device() if device.index is None else device.index
    generator: torch.Generator = torch.cuda.default_generators[index]
    return generator
