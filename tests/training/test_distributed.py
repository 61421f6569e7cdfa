"""Several processes that train one model."""

import json
import os
import socket
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import torch

from canet.errors import CanetError, InputError
from canet.training.epochs import average_gradients
from canet.util import distributed
from tests.support.processes import wait_until
from tests.support.tiny import tiny_task
from tests.support.trainers import make

SETTINGS: dict[str, Any] = {"dropout": 0.0, "batch_size": 5, "fanout": "3,2"}
SCRIPT = """
import json, os, signal, sys
from canet.training import epochs, loop
from canet.util import distributed
from tests.support.tiny import tiny_task
from tests.support.trainers import make

folder, settings, stop, different = json.loads(sys.argv[1])
second = 0
if os.environ["RANK"] == "0 and 1":
    second = os.fork()
    os.environ["RANK"] = "0" if second else "1"
loop.CHECKPOINT_SECONDS = -1  # after each epoch
train = epochs.BatchEpochs.__call__

def until_stop(of, method, optimizer, epoch):
    if epoch == stop and distributed.rank() == 1:
        signal.pause()
    return train(of, method, optimizer, epoch)

epochs.BatchEpochs.__call__ = until_stop
task, own = tiny_task(), distributed.rank() * different
if own == "data":
    task.data.y[task.train[0]] = 1 - task.data.y[task.train[0]].clamp(max=1)
settings |= {"hidden": 9} if own == "settings" else {}
run = make(task, "erm", **settings).run(7 if own == "seeds" else 0, folder)
if distributed.rank() == 0:
    print(json.dumps(run.history["loss"]))
if second:
    assert not os.waitpid(second, 0)[1]
"""


def start(
    folder: Path,
    stop: int | None = None,
    different: str = "",
    ranks: Sequence[str] = ("0", "1"),
    **settings: Any,
) -> list[Any]:
    """Start two processes; the second waits in epoch `stop` until it is killed.

    What is named `different` is other in the second process. The rank `0 and 1` starts one process
    that becomes two after its imports.
    """
    port = str(free_port())
    rest = {"WORLD_SIZE": "2", "MASTER_ADDR": "localhost", "MASTER_PORT": port}
    arguments = json.dumps([str(folder), SETTINGS | settings, stop, different])
    return [
        subprocess.Popen(
            [sys.executable, "-c", SCRIPT, arguments],
            env=os.environ | rest | {"RANK": rank, "OMP_NUM_THREADS": "1"},
            cwd=Path(__file__).parents[2],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for rank in ranks
    ]


def free_port() -> int:
    with socket.socket() as found:
        found.bind(("localhost", 0))
        return int(found.getsockname()[1])


def finished(processes: list[Any]) -> list[float]:
    """Return the losses that the first process prints."""
    found = [process.communicate(timeout=120) for process in processes]
    assert {process.returncode for process in processes} == {0}, found
    assert not any(output for output, _ in found[1:])
    losses: list[float] = json.loads(found[0][0])
    return losses


def test_two_processes_have_the_losses_of_one(tmp_path: Path) -> None:
    assert tiny_task().train.numel() % SETTINGS["batch_size"] == 1  # one process has no node of it
    losses = finished(start(tmp_path, ranks=["0 and 1"], epochs=6))
    alone = make(tiny_task(), "erm", epochs=6, **SETTINGS).run()
    assert losses == pytest.approx(alone.history["loss"], abs=1e-5)
    assert [path.name for path in tmp_path.iterdir()].count("config.json") == 1


@pytest.mark.slow
@pytest.mark.parametrize("different", ["data", "settings", "seeds"])
def test_processes_that_train_something_else_are_refused(different: str, tmp_path: Path) -> None:
    for process in start(tmp_path, different=different, epochs=6):
        _, error = process.communicate(timeout=120)
        assert process.returncode
        assert f"1 of 2 processes of this run have other {different}" in error
    assert not list(tmp_path.iterdir())


@pytest.mark.slow
def test_a_killed_process_ends_the_other_which_resumes(tmp_path: Path) -> None:
    first, second = start(tmp_path, stop=3, epochs=6)
    wait_until(lambda: list(tmp_path.glob("checkpoint*")) or first.poll() is not None)
    second.kill()
    second.communicate()
    _, error = first.communicate(timeout=60)
    assert "the connection to another process of this run was lost" in error
    assert finished(start(tmp_path, epochs=6)) == finished(start(tmp_path / "whole", epochs=6))


def test_what_differs_from_the_first_process_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    first = {"settings": "a", "data": "b"}
    monkeypatch.setattr(distributed, "world_size", lambda: 2)
    monkeypatch.setattr(distributed, "broadcast_object", lambda value, device: first)
    monkeypatch.setattr(distributed, "add_up", lambda values: values)
    distributed.check_same({"settings": "a", "data": "b"}, torch.device("cpu"))
    with pytest.raises(CanetError, match="1 of 2 processes of this run have other data"):
        distributed.check_same({"settings": "a", "data": "c"}, torch.device("cpu"))


def test_numbers_of_a_slurm_step(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("RANK", "WORLD_SIZE"):
        monkeypatch.delenv(name, raising=False)
    assert (distributed.rank(), distributed.world_size()) == (0, 1)
    monkeypatch.setenv("SLURM_PROCID", "0")  # a batch script, not a step of it
    monkeypatch.setenv("SLURM_NTASKS", "4")
    assert distributed.world_size() == 1
    monkeypatch.setenv("SLURM_PROCID", "3")
    monkeypatch.setenv("SLURM_STEP_NUM_TASKS", "4")
    assert (distributed.rank(), distributed.world_size()) == (3, 4)
    monkeypatch.setenv("SLURM_PROCID", "x")
    with pytest.raises(InputError, match="SLURM_PROCID"):
        distributed.rank()


@pytest.mark.parametrize(
    ("variables", "expected"),
    [
        ({}, 8),
        ({"LOCAL_WORLD_SIZE": "4"}, 4),
        ({"SLURM_STEP_TASKS_PER_NODE": "2(x4)"}, 2),
        ({"SLURM_STEP_TASKS_PER_NODE": "2(x1),3(x2)"}, 3),
    ],
)
def test_processes_of_this_machine_are_counted(
    variables: dict[str, str], expected: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("LOCAL_WORLD_SIZE", "SLURM_STEP_TASKS_PER_NODE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(distributed, "world_size", lambda: 8)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    assert distributed.processes_here() == expected
    monkeypatch.setattr(distributed, "world_size", lambda: 1)
    assert distributed.processes_here() == 1


@pytest.mark.parametrize(
    ("hosts", "first"),
    [
        ("alone", "alone"),
        ("a.site,b.site", "a.site"),
        ("gpu[03-05,9],login", "gpu03"),
        ("gpu[7,9]-ib,login", "gpu7-ib"),
    ],
)
def test_the_first_machine_of_a_slurm_step_connects_the_processes(hosts: str, first: str) -> None:
    assert distributed.first_host(hosts) == first


def test_a_method_that_needs_all_training_nodes_is_rejected(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(distributed, "world_size", lambda: 2)
    monkeypatch.setattr(distributed, "join", lambda device: None)
    with pytest.raises(InputError, match="start a single process"):
        make(tiny_task(), "mixup")


def test_gradients_are_weighted_by_nodes(monkeypatch: pytest.MonkeyPatch) -> None:
    """The other process has three nodes, and the gradient one in each entry."""
    used, unused = torch.zeros(2, requires_grad=True), torch.zeros(3, requires_grad=True)
    used.grad = torch.tensor([5.0, -3.0])
    other = torch.tensor([3.0, 3.0, 0.0, 0.0, 0.0, 1.0, 0.0, 3.0])
    monkeypatch.setattr(distributed, "add_up", lambda values: values + other)
    average_gradients([used, unused], num_nodes=1)
    assert used.grad is not None
    assert used.grad.tolist() == [2.0, 0.0]
    assert unused.grad is None
