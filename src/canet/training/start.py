"""How a run starts: its initial weights or checkpoint, and whether it trains in batches."""

from collections.abc import Mapping
from pathlib import Path

from safetensors.torch import load, save
from torch import Tensor

from canet.data.task import ShiftTask
from canet.errors import CanetError, InputError, warn_user
from canet.methods import Method, Settings
from canet.nn.sampling import parse_fanout
from canet.store.run_folder import RunFolder, read_checkpoint
from canet.training.loop import Loop
from canet.util import distributed


def fanout_of(settings: Settings, task: ShiftTask) -> tuple[int, ...] | None:
    """Return the numbers of neighbours to draw in each layer; None to train without batches."""
    fanout = parse_fanout(settings.fanout, settings.num_layers)
    draws = any(count > 0 for count in fanout)
    stays_on_disk = settings.in_batches and task.data.is_on_disk
    is_divided = 0 < settings.batch_size < task.train.numel() or distributed.world_size() > 1
    return fanout if draws or stays_on_disk or is_divided else None


def load_initial(method: Method, weights: Mapping[str, Tensor]) -> None:
    """Load the weights of an earlier model into a new method."""
    try:
        method.load_state_dict(dict(weights))
    except RuntimeError as error:
        raise InputError(
            "the earlier model has other settings or another number of features or environments: "
            "continue it with the same ones, or fit without warm_start"
        ) from error


def share_state(loop: Loop) -> None:
    """Give all processes the state of the first one, if that has resumed a run."""
    if distributed.world_size() == 1:
        return
    content = save(loop.tensors()) if distributed.rank() == 0 and loop.epoch else b""
    content = distributed.broadcast_object(content, loop.device)
    if content and distributed.rank():
        loop.restore(load(content))


def resume(loop: Loop, run_folder: RunFolder) -> None:
    """Restore the newest usable checkpoint, with a warning about those that cannot be used."""
    rejected: list[Path] = []
    for path in run_folder.checkpoints:
        try:
            loop.restore(read_checkpoint(path))
        except CanetError:
            rejected.append(path)
        else:
            break
    if rejected:
        names = " and ".join(f"'{path}'" for path in rejected)
        how = f"resumes after epoch {loop.epoch}" if loop.epoch else "starts over"
        warn_user(f"cannot use {names} (checksum mismatch, or of another run), so the run {how}")
