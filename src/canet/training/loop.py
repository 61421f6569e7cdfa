"""The training loop of one run: epochs that stay on the device, and looks at what they gave.

An epoch is a training step and the validation score. Nothing in it waits for the device or names
a Python number that changes, so on a GPU it is recorded once, as a CUDA graph, and then replayed:
on a small graph, launching the kernels one by one would cost many times what they do. Each run has
a stream and a random generator of its own, so that several runs can share the GPU.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cache

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
from canet.util.signals import received_signal

CHECKPOINT_SECONDS = 30.0
USUAL_SECONDS = 0.6  # 2 % of that: if writing takes longer, the next checkpoint comes later
EPOCHS_BETWEEN_CHECKS = 20  # on a GPU, where looking at a number waits for the device
EPOCHS_BEFORE_CAPTURE = 3  # they fill caches and the optimiser's state

_compiled: set[str] = set()
"""The methods, as torch writes them, whose kernels this process has compiled."""

Progress = Callable[[int, int, float], None]
Score = Callable[[Method, str], Tensor]


class Loop:
    """The state of a run between two epochs, and how it moves on.

    Args:
        method: The method, on its device, prepared.
        settings: Its settings.
        batch: The training nodes.
        score: Gives the score of a split, a scalar on the device.
        curves: Splits to score at every epoch, `valid` among them.
        lane: On a GPU, which stream to work in; runs at once have different ones.
    """

    def __init__(
        self,
        method: Method,
        settings: Settings,
        batch: Batch,
        score: Score,
        curves: Sequence[str] = ("valid",),
        lane: int = 0,
    ) -> None:
        self.method = method
        self.settings = settings
        self.batch = batch
        self.score = score
        self.curves = curves
        self.device = batch.y.device
        on_gpu = self.device.type == "cuda"
        self.optimizer = torch.optim.Adam(
            method.parameter_groups(),
            weight_decay=settings.weight_decay,
            fused=True,
            capturable=on_gpu,
        )
        self.history = {
            name: torch.zeros(settings.epochs, dtype=torch.double, device=self.device)
            for name in ["loss", *curves]
        }
        # With `ema` the method has the averaged weights between two epochs, and steps begin here.
        self.current = [p.detach().clone() for p in method.parameters()] if settings.ema else []
        self.best = Snapshot(method.state_dict())
        self.best_score = torch.tensor(-torch.inf, dtype=torch.double, device=self.device)
        self.at = torch.zeros(1, dtype=torch.long, device=self.device)
        self.epoch = 0
        self.epochs_here = 0
        self.seconds = 0.0
        self.ended = False
        self._graph: torch.cuda.CUDAGraph | None = None
        if on_gpu:
            self.stream = _stream(self.device, lane)
            self.stream.wait_stream(torch.cuda.current_stream(self.device))
            self._generator = _generator(self.device).clone_state()

    def advance(self) -> None:
        """One epoch; on a GPU it may still be under way when this returns."""
        with self._own_stream():
            if self._graph is None and self._capturable():
                self._graph = self._capture()
            if self._graph is None:
                self._epoch()
            else:
                self._graph.replay()
        self.epoch += 1
        self.epochs_here += 1
        self.ended = self.epoch == self.settings.epochs

    def look(self, on_progress: Progress | None = None) -> None:
        """Bring numbers to the host: stop if the loss is not finite, report progress."""
        with self._own_stream():
            finite = torch.isfinite(self.history["loss"][: self.epoch]).cpu()
            if on_progress:
                score = float(self.history["valid"][self.epoch - 1])
                on_progress(self.epoch, self.settings.epochs, score)
        if not finite.all():
            epoch = int((~finite).nonzero()[0]) + 1
            raise CanetError(
                f"training stopped: the loss is not finite at epoch {epoch}; lower learning_rate "
                f"(now {self.settings.learning_rate:g}) or look at the features' scale"
            )

    def end_without_patience(self) -> None:
        """End the run if its validation score has not risen for `patience` epochs."""
        patience = self.settings.patience
        if patience:
            with self._own_stream():
                curve = self.history["valid"][: self.epoch].cpu()
            best = int(curve.nan_to_num(-1.0).argmax())
            self.ended |= self.epoch - 1 - best >= patience

    def curve(self, name: str) -> list[float]:
        """Loss or score of every epoch so far."""
        values: list[float] = self.history[name][: self.epoch].tolist()
        return values

    def _epoch(self) -> None:
        """Train and score, in place and without waiting for the device."""
        self.method.train()
        loss = self._averaged_step() if self.current else self._step()
        self.method.eval()
        with torch.no_grad():
            values = {name: self.score(self.method, name) for name in self.curves} | {"loss": loss}
            for name, value in values.items():
                self.history[name].index_copy_(0, self.at, value.double().view(1))
            better = values["valid"] > self.best_score
            torch.where(better, values["valid"], self.best_score, out=self.best_score)
            self.best.take(self.method.state_dict(), better)
            self.at += 1

    def _step(self) -> Tensor:
        return self.method.update(self.batch, self.optimizer)

    def _averaged_step(self) -> Tensor:
        """A step from the current weights, which then enter the average with a share of 1 - ema,
        or of 1 / epochs while that is larger: at first all epochs count the same.
        """
        weights = [parameter.detach() for parameter in self.method.parameters()]
        average = [weight.clone() for weight in weights]
        for weight, current in zip(weights, self.current, strict=True):
            weight.copy_(current)
        loss = self._step()
        share = (1 / (self.at[0] + 1)).clamp(min=1 - self.settings.ema)
        for weight, current, mean in zip(weights, self.current, average, strict=True):
            current.copy_(weight)
            torch.lerp(mean, current, share.to(mean), out=weight)
        return loss

    def _capturable(self) -> bool:
        return (
            self.device.type == "cuda"
            and self.method.capturable
            and self.epochs_here >= EPOCHS_BEFORE_CAPTURE
        )

    def _capture(self) -> torch.cuda.CUDAGraph:
        """Record an epoch. Nothing is computed, and no random number is used up."""
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, stream=self.stream):
            self._epoch()
        return graph

    @contextmanager
    def _own_stream(self) -> Iterator[None]:
        """On a GPU, work in this run's stream and draw from its generator."""
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
        """Everything that the next epoch depends on."""
        if self.device.type == "cuda":
            self.stream.synchronize()
        state = {
            **prefixed("method", self.method.state_dict()),
            **prefixed("training", self.method.training_state()),
            **prefixed("current", {str(i): weight for i, weight in enumerate(self.current)}),
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
        """Go back to a state that `tensors` gave; one of another run is refused."""
        self._check(saved)
        self.method.load_state_dict(without_prefix("method", saved))
        for name, tensor in self.method.training_state().items():
            tensor.detach().copy_(saved[f"training.{name}"])
        for name, tensor in without_prefix("current", saved).items():
            self.current[int(name)].copy_(tensor)
        restore_optimizer(self.optimizer, without_prefix("adam", saved))
        for name, tensor in without_prefix("best", saved).items():
            self.best.tensors[name].copy_(tensor)
        for name, tensor in without_prefix("history", saved).items():
            self.history[name] = tensor.to(self.device)
        self.best_score = saved["best_score"].to(self.device)
        self.epoch = int(saved["epoch"])
        self.at.fill_(self.epoch)
        torch.set_rng_state(saved["rng.cpu"])
        if self.device.type == "cuda":
            self.stream.wait_stream(torch.cuda.current_stream(self.device))
            if "rng.cuda" in saved:
                self._generator.set_state(saved["rng.cuda"])

    def _check(self, saved: Mapping[str, Tensor]) -> None:
        """Refuse a state whose names, shapes, types or epoch are not those of this run."""
        own = self.tensors()
        optional = {f"adam.{name}": shape for name, shape in adam_shapes(self.optimizer).items()}
        optional["rng.cuda"] = own["rng.cuda"].shape if "rng.cuda" in own else torch.Size([16])

        def forms(state: Mapping[str, Tensor]) -> dict[str, tuple[torch.Size, torch.dtype]]:
            return {n: (t.shape, t.dtype) for n, t in state.items() if n not in optional}

        fits = forms(saved) == forms(own) and all(
            saved[name].shape == optional[name] for name in optional.keys() & saved.keys()
        )
        if not fits or not 0 < int(saved["epoch"]) < self.settings.epochs:
            raise CanetError("the state is that of another run")
        try:
            torch.Generator().set_state(saved["rng.cpu"])
        except RuntimeError as error:
            raise CanetError("the state has no valid state of a random generator") from error


class Snapshot:
    """A copy of tensors in one piece of memory for each type, so that it is renewed in one go."""

    def __init__(self, state: Mapping[str, Tensor]) -> None:
        self._names: dict[torch.dtype, list[str]] = {}
        for name, tensor in state.items():
            self._names.setdefault(tensor.dtype, []).append(name)
        self._flat = [self._joined(state, names) for names in self._names.values()]
        self.tensors: dict[str, Tensor] = {}
        for flat, names in zip(self._flat, self._names.values(), strict=True):
            pieces = flat.split([state[name].numel() for name in names])
            for name, piece in zip(names, pieces, strict=True):
                self.tensors[name] = piece.view(state[name].shape)

    def take(self, state: Mapping[str, Tensor], condition: Tensor) -> None:
        """Copy the tensors where the condition, a scalar, holds."""
        for flat, names in zip(self._flat, self._names.values(), strict=True):
            torch.where(condition, self._joined(state, names), flat, out=flat)

    @staticmethod
    def _joined(state: Mapping[str, Tensor], names: Sequence[str]) -> Tensor:
        return torch.cat([state[name].reshape(-1) for name in names])


class Checkpoints:
    """Says when a checkpoint is due, so that all of them take under 2 % of a run's time."""

    def __init__(self) -> None:
        self._last = time.perf_counter()
        self._pause = CHECKPOINT_SECONDS

    @property
    def due(self) -> bool:
        passed = time.perf_counter() - self._last
        if passed < 0:  # a clock that jumped back must not put the next one off
            self._last = time.perf_counter()
        return passed > self._pause

    def save(self, loops: Sequence[Loop], places: Sequence[RunFolder | None]) -> None:
        """Write the states of the runs that have not ended."""
        begin = time.perf_counter()
        for loop, place in zip(loops, places, strict=True):
            if place and not loop.ended and loop.epoch:
                place.save_checkpoint(loop.tensors())
        self._last = time.perf_counter()
        self._pause = CHECKPOINT_SECONDS * max(1.0, (self._last - begin) / USUAL_SECONDS)


def set_up_kernels(device: torch.device) -> None:
    """On a GPU, let the compiler of kernels begin with its set-up while the data is prepared."""
    if fused.on_gpu(torch.empty(0, device=device)):
        from canet.nn.kernels.launch import set_up

        set_up(torch.cuda.current_device())


def compile_kernels(loop: Loop) -> None:
    """On a GPU, compile what an epoch of the loop launches, if this process has not yet."""
    kind = repr(loop.method)
    if not fused.on_gpu(loop.batch.y) or not loop.method.capturable or kind in _compiled:
        return
    from canet.nn.kernels.launch import compiled_ahead

    # The run's stream, and not its generator: no random number is used up.
    with torch.cuda.stream(loop.stream), unchanged(loop), compiled_ahead():
        loop.method.train()
        loop.method.loss(loop.method.intervene(loop.batch)).backward()
        loop.method.eval()
        with torch.no_grad():
            loop.score(loop.method, "valid")
    _compiled.add(kind)


@contextmanager
def unchanged(loop: Loop) -> Iterator[None]:
    """Undo what a loss does to the method besides giving gradients, and drop these."""
    state = [*loop.method.buffers(), *loop.method.training_state().values()]
    before = [tensor.clone() for tensor in state]
    try:
        yield
    finally:
        for tensor, value in zip(state, before, strict=True):
            tensor.detach().copy_(value)
        loop.optimizer.zero_grad(set_to_none=True)


def train_loops(
    loops: Sequence[Loop], places: Sequence[RunFolder | None], on_progress: Progress | None
) -> None:
    """Train until each run's last epoch or until its patience ends, the runs side by side.

    After a signal to stop, the runs end between two epochs, with a checkpoint.
    """
    begin, checkpoints = time.perf_counter(), Checkpoints()
    compile_kernels(loops[0])
    running = list(loops)
    while running := [loop for loop in running if not loop.ended]:
        if received_signal() is not None:
            for loop in running:
                loop.look()
            checkpoints.save(loops, places)
            raise KeyboardInterrupt
        for loop in running:
            loop.advance()
        first = running[0]
        if first.device.type == "cpu" or first.ended or first.epoch % EPOCHS_BETWEEN_CHECKS == 0:
            for loop in running:
                loop.look(on_progress if loop is first else None)
        for loop in running:
            loop.end_without_patience()
        if checkpoints.due:
            checkpoints.save(loops, places)
    for loop in loops:
        loop.look()
        if not torch.isfinite(loop.best_score):
            raise CanetError(
                "the validation score was never a number: check that the validation nodes hold "
                f"every class, or lower learning_rate (now {loop.settings.learning_rate:g})"
            )
    for loop in loops:
        loop.seconds = (time.perf_counter() - begin) / len(loops)


@cache
def _stream(device: torch.device, lane: int) -> torch.cuda.Stream:
    """A stream of this process, used again by later runs: libraries keep workspaces for each."""
    return torch.cuda.Stream(device)


def _generator(device: torch.device) -> torch.Generator:
    index = torch.cuda.current_device() if device.index is None else device.index
    generator: torch.Generator = torch.cuda.default_generators[index]
    return generator
