"""Several processes that train one model, started by torchrun, srun or Ray Train.

The number of processes and the number of this one come from a process group that exists, as under
Ray Train, or from the environment variables that torchrun and srun set.
"""

import atexit
import os
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import timedelta
from typing import TypeVar

import torch
from torch import Tensor
from torch import distributed as dist

from canet.errors import CanetError, InputError

T = TypeVar("T")
VARIABLES = (
    ("RANK", "WORLD_SIZE", "LOCAL_RANK"),
    ("SLURM_PROCID", "SLURM_STEP_NUM_TASKS", "SLURM_LOCALID"),
)
"""Number of this process, number of processes, and number on this machine: torchrun and srun."""
FIRST_PORT, NUM_PORTS = 20_000, 20_000  # under srun, the port follows from the number of the job
WAIT = timedelta(hours=2)
"""Time that a process waits for the others, such as for the first one to score a large graph. A
process that ends is noticed at once."""


def rank() -> int:
    """Return the number of this process; 0 if it is the only one."""
    return dist.get_rank() if _is_joined() else _numbers()[0]


def world_size() -> int:
    """Return the number of processes; 1 if there is no other."""
    return dist.get_world_size() if _is_joined() else _numbers()[1]


def processes_here() -> int:
    """Return the number of processes on this machine, or on all of them if it is not known."""
    text = os.environ.get("LOCAL_WORLD_SIZE") or os.environ.get("SLURM_STEP_TASKS_PER_NODE", "")
    counts = re.findall(r"(?:^|,)(\d+)", text)  # srun writes it as 4(x2),3
    return max(map(int, counts)) if counts and world_size() > 1 else world_size()


def own_device(device: torch.device) -> torch.device:
    """Return the GPU of this process, if several processes use the GPUs of a machine."""
    if world_size() == 1 or device.type != "cuda" or device.index is not None:
        return device
    return torch.device("cuda", _numbers()[2] % torch.cuda.device_count())


def _is_joined() -> bool:
    return dist.is_available() and dist.is_initialized()


def _numbers() -> tuple[int, int, int]:
    for names in VARIABLES:
        if all(name in os.environ for name in names[:2]):
            try:
                own, count, local = (int(os.environ.get(name, 0)) for name in names)
            except ValueError as error:
                raise InputError(
                    f"the environment variables {', '.join(names)} must be integers"
                ) from error
            return own, count, local
    return 0, 1, 0


def join(device: torch.device) -> None:
    """Connect the processes, if there are several and they are not connected yet."""
    if world_size() == 1 or _is_joined():
        return
    if device.type == "cuda":
        torch.cuda.set_device(device)
    if "MASTER_ADDR" not in os.environ and "SLURM_STEP_NODELIST" in os.environ:
        os.environ["MASTER_ADDR"] = first_host(os.environ["SLURM_STEP_NODELIST"])
        port = FIRST_PORT + int(os.environ.get("SLURM_JOB_ID", 0)) % NUM_PORTS
        os.environ.setdefault("MASTER_PORT", str(port))
    with others():
        dist.init_process_group(
            "nccl" if device.type == "cuda" else "gloo",
            rank=rank(),
            world_size=world_size(),
            timeout=WAIT,
        )
    atexit.register(dist.destroy_process_group)


def first_host(hosts: str) -> str:
    """Return the first machine of a list of Slurm: `gpu[03-05,9],login` → `gpu03`."""
    found = re.match(r"([^,\[]*)(?:\[(\w+)[^\]]*\]([^,]*))?", hosts)
    return "".join(part or "" for part in found.groups()) if found else hosts


@contextmanager
def others() -> Iterator[None]:
    """Explain the error if another process has ended."""
    try:
        yield
    except (RuntimeError, ValueError) as error:
        raise CanetError(
            "the connection to another process of this run was lost, probably because it has "
            "ended: read its messages, then start the same command again to resume from the last "
            "checkpoint"
        ) from error


def broadcast(values: Tensor) -> Tensor:
    """Return the values of the first process."""
    if world_size() > 1:
        with others():
            dist.broadcast(values, 0)
    return values


def broadcast_object(value: T, device: torch.device) -> T:
    """Return the number, the bytes or another object of the first process."""
    values = [value]
    if world_size() > 1:
        with others():
            dist.broadcast_object_list(values, 0, device=device)
    return values[0]


def check_same(parts: Mapping[str, str], device: torch.device) -> None:
    """Raise an error in all processes unless each has the same text for each name."""
    if world_size() == 1:
        return
    first = broadcast_object(dict(parts), device)
    differs = [text != first[name] for name, text in parts.items()]
    counts = add_up(torch.tensor(differs, dtype=torch.double, device=device)).tolist()
    for name, count in zip(parts, counts, strict=True):
        if count:
            raise CanetError(
                f"{count:.0f} of {world_size()} processes of this run have other {name} than the "
                "first one: start all of them with the same command and the same data"
            )


def add_up(values: Tensor) -> Tensor:
    """Return the sum of the values of all processes."""
    if world_size() > 1:
        with others():
            dist.all_reduce(values)
    return values
