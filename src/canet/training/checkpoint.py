"""A run is a folder that can be trusted.

config.json             task, method, settings and seeds
metrics.json            loss and scores of every epoch
weights.safetensors     parameters at the selected epoch
result.json             scores, selection rule, timing, versions
done                    empty marker, written last
checkpoint.safetensors  everything needed to go on; only while the run is unfinished
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from canet.errors import CanetError
from canet.files import atomic_path, read_json, write_json

CONFIG, METRICS, RESULT = "config.json", "metrics.json", "result.json"
WEIGHTS, CHECKPOINT, MARKER = "weights.safetensors", "checkpoint.safetensors", "done"


@dataclass(frozen=True)
class RunConfig:
    """What a run is, completely: the same config gives the same run."""

    task: str
    protocol: str
    data_seed: int
    features: str
    inductive: bool
    method: str
    backbone: str
    settings: dict[str, Any]
    seed: int
    ood_curves: bool = False
    generator: str = "shared"

    @property
    def name(self) -> str:
        """A folder name for the runs that differ from this one in their seed alone."""
        parts = asdict(self) | {"seed": None}
        if self.generator == "shared":
            del parts["generator"]  # runs are older than the choice
        content = json.dumps(parts, sort_keys=True)
        digest = hashlib.sha256(content.encode()).hexdigest()
        return f"{self.task}-{self.method}-{self.backbone}-{digest[:8]}"


class RunFolder:
    """Reads and writes one run's files."""

    def __init__(self, path: Path) -> None:
        self.path = path

    @property
    def finished(self) -> bool:
        return (self.path / MARKER).exists()

    @property
    def has_metrics(self) -> bool:
        """Whether its curves are here; most runs of an archive have none."""
        return (self.path / METRICS).exists()

    def begin(self, config: RunConfig) -> None:
        """Claim the folder for a run, or check that what lies there is the same run."""
        if (self.path / CONFIG).exists():
            if self.read_config() != config:
                raise CanetError(
                    f"'{self.path}' holds a run with other settings: choose another folder"
                )
            return
        try:
            write_json(self.path / CONFIG, asdict(config))
        except OSError as error:
            raise CanetError(
                f"cannot write to '{self.path}' ({error.strerror}): choose another folder"
            ) from None

    def finish(
        self, weights: Mapping[str, Tensor], metrics: Mapping[str, Any], result: Mapping[str, Any]
    ) -> None:
        write_tensors(self.path / WEIGHTS, weights)
        write_json(self.path / METRICS, metrics)
        write_json(self.path / RESULT, result)
        (self.path / MARKER).touch()
        (self.path / CHECKPOINT).unlink(missing_ok=True)

    def read_config(self) -> RunConfig:
        try:
            return RunConfig(**self._json(CONFIG))
        except TypeError:
            raise _damaged(self.path / CONFIG) from None

    def read_result(self) -> dict[str, Any]:
        result: dict[str, Any] = self._json(RESULT)
        return result

    def read_metrics(self) -> dict[str, list[float]]:
        metrics: dict[str, list[float]] = self._json(METRICS)
        return metrics

    def load_weights(self, module: nn.Module) -> None:
        """Load the selected epoch's parameters into `module`."""
        path = self.path / WEIGHTS
        try:
            module.load_state_dict(read_tensors(path))
        except RuntimeError:
            raise CanetError(
                f"'{path}' does not fit the model: load it with the run's own method and settings"
            ) from None

    def save_checkpoint(self, tensors: Mapping[str, Tensor]) -> None:
        write_tensors(self.path / CHECKPOINT, tensors)

    def read_checkpoint(self) -> dict[str, Tensor] | None:
        """The last checkpoint, or None where there is none that can be read."""
        try:
            return read_tensors(self.path / CHECKPOINT)
        except CanetError:
            return None

    def _json(self, name: str) -> Any:
        path = self.path / name
        try:
            return read_json(path)
        except FileNotFoundError:
            raise CanetError(f"'{self.path}' is not a finished run: it has no {name}") from None
        except ValueError:
            raise _damaged(path) from None


def find_runs(path: Path) -> list[RunFolder]:
    """The finished runs at or below `path`, in order of their names."""
    markers = sorted(marker for marker in path.rglob(MARKER) if marker.is_file())
    if not markers:
        raise CanetError(f"no finished run at '{path}': give the folder that --out named")
    return [RunFolder(marker.parent) for marker in markers]


def write_tensors(path: Path, tensors: Mapping[str, Tensor]) -> None:
    """Write tensors as safetensors, atomically."""
    content = {name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}
    with atomic_path(path) as temporary:
        save_file(content, temporary)


def read_tensors(path: Path) -> dict[str, Tensor]:
    try:
        tensors: dict[str, Tensor] = load_file(path)
    except FileNotFoundError:
        raise CanetError(f"'{path}' is missing: the run is not finished") from None
    except SafetensorError:
        raise _damaged(path) from None
    return tensors


def _damaged(path: Path) -> CanetError:
    return CanetError(f"'{path}' is damaged: delete '{path.parent}' and train the run again")


def prefixed(prefix: str, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    return {f"{prefix}.{name}": tensor for name, tensor in tensors.items()}


def without_prefix(prefix: str, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    start = f"{prefix}."
    return {n.removeprefix(start): t for n, t in tensors.items() if n.startswith(start)}


def optimizer_tensors(optimizer: torch.optim.Optimizer) -> dict[str, Tensor]:
    """The optimiser's state as named tensors."""
    state = optimizer.state_dict()["state"]
    return {f"{i}.{name}": tensor for i, slot in state.items() for name, tensor in slot.items()}


def restore_optimizer(optimizer: torch.optim.Optimizer, tensors: Mapping[str, Tensor]) -> None:
    content = optimizer.state_dict()
    for key, tensor in tensors.items():
        index, _, name = key.partition(".")
        content["state"].setdefault(int(index), {})[name] = tensor
    optimizer.load_state_dict(content)
