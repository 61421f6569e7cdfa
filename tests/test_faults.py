"""Faults: flipped bits, truncated files, full disks, and stopped or killed processes."""

import errno
import os
import random
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from canet.data.benchmarks import synthetic
from canet.errors import CanetError, ChecksumError
from canet.models import Network, Options, Trainer
from canet.runs import run_jobs
from canet.store import RunFolder, find_runs, unpack_archive, write_archive
from canet.store.model_folder import read_model, write_model
from canet.store.run_folder import CONFIG, MARKER, METRICS, RESULT, WEIGHTS, read_checkpoint
from canet.training import loop
from canet.util.locks import LOCK
from tests.support.commands import QUICK, call
from tests.support.finished import make_config, write_run
from tests.support.jobs import outcome, tiny_job
from tests.support.model_folders import FILE, tensors
from tests.support.tiny import QUICK as SETTINGS
from tests.support.tiny import tiny_task
from tests.support.user_tables import write_users

NUM_FLIPS, NUM_TRUNCATIONS = 100, 20  # per file


@pytest.fixture(autouse=True)
def few_users(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(synthetic, "NUM_USERS", 300)


# Flipped bits and truncated files


def faults(path: Path) -> Iterator[str]:
    """Apply one fault after the other to a file, and restore it at the end."""
    raw, chance = path.read_bytes(), random.Random(path.name)
    for _ in range(NUM_FLIPS):
        changed = bytearray(raw)
        bit = chance.randrange(8 * len(raw))
        changed[bit // 8] ^= 1 << bit % 8
        path.write_bytes(changed)
        yield f"bit {bit} flipped"
    lengths = [chance.randrange(len(raw)) for _ in range(NUM_TRUNCATIONS - 2)]
    for length in [0, len(raw) - 1, *lengths]:
        path.write_bytes(raw[:length])
        yield f"truncated to {length} bytes"
    path.write_bytes(raw)


def assert_all_found(path: Path, read: Callable[[], object]) -> None:
    """Assert that every fault of a file is a checksum mismatch that names its folder."""
    undetected = []
    for fault in faults(path):
        try:
            read()
        except ChecksumError as error:
            if str(path.parent) in str(error):
                continue
        undetected.append(fault)
    assert undetected == []
    read()


def read_all(folder: RunFolder) -> None:
    folder.read_config()
    folder.read_metrics()
    folder.read_result()
    folder.read_tensors(WEIGHTS)


@pytest.mark.parametrize("name", [CONFIG, METRICS, RESULT, WEIGHTS, MARKER])
def test_every_fault_in_a_file_of_a_finished_run_is_found(name: str, tmp_path: Path) -> None:
    Trainer(tiny_task(), "erm", "gcn", SETTINGS, "cpu", epochs=3).run(folder=tmp_path / "run")
    folder = RunFolder(tmp_path / "run")
    assert_all_found(folder.path / name, lambda: read_all(folder))


@pytest.mark.parametrize("name", ["model.json", "weights", "reference"])
def test_every_fault_in_a_file_of_a_saved_model_is_found(name: str, tmp_path: Path) -> None:
    write_model(tmp_path / "model", FILE, tensors(1), "card")
    (path,) = (tmp_path / "model").glob(f"{name}*")
    assert_all_found(path, lambda: read_model(tmp_path / "model"))


def test_every_fault_in_a_checkpoint_is_found(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path / "run")
    folder.begin(make_config())
    folder.save_checkpoint({"epoch": torch.tensor(3), "x": torch.randn(50)})
    (path,) = folder.checkpoints
    assert_all_found(path, lambda: read_checkpoint(path))


def test_every_fault_in_an_archive_is_found(tmp_path: Path) -> None:
    write_run(tmp_path / "runs", make_config(), {"ood/a": 50.0})
    archive = tmp_path / "runs.tar.xz"
    write_archive(find_runs(tmp_path / "runs"), archive)
    assert_all_found(archive, lambda: unpack_archive(archive, tmp_path / "again"))


# Full disks


TRAIN = ("train", "synthetic", "--method", "erm", *QUICK, "--out", "kept", "--quiet")


def outcome_of(folder: Path) -> dict[str, Any]:
    """The outcome of the only run in a folder."""
    return outcome(*find_runs(folder))


def test_a_disk_that_is_full_at_any_write_loses_no_result(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(loop, "CHECKPOINT_SECONDS", 0.0)
    (tmp_path / "whole").mkdir()
    call(tmp_path / "whole", *TRAIN)
    write, full_at, written = Path.write_bytes, 0, 0

    def fill(path: Path, content: bytes) -> int:
        nonlocal written
        written += 1
        if written == full_at:
            write(path, content[: len(content) // 2])
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return write(path, content)

    full = 0
    for full_at in range(1, 100):
        written, folder = 0, tmp_path / str(full_at)
        folder.mkdir()
        with monkeypatch.context() as patch:
            patch.setattr(Path, "write_bytes", fill)
            answer = call(folder, *TRAIN)
        if answer.code == 0:
            break
        full += 1
        assert "No space left on device" in answer.complaint
        assert not list(folder.rglob(".*.tmp"))
        assert call(folder, *TRAIN).code == 0
        assert outcome_of(folder) == outcome_of(tmp_path / "whole")
    assert full == 7  # config, two checkpoints, weights, metrics, result, record


def test_a_full_disk_is_not_recorded_as_a_failed_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fill(*_: Any) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patch:
        patch.setattr(Path, "write_bytes", fill)
        with pytest.raises(CanetError, match="No space left on device"):
            run_jobs([tiny_job()], tmp_path, device="cpu", quiet=True)
    assert run_jobs([tiny_job()], tmp_path, device="cpu", quiet=True) == []
    assert find_runs(tmp_path)


@pytest.mark.parametrize("full", ["model", ".checkpoints", "kept"])
def test_a_disk_that_is_full_when_a_folder_is_made_is_reported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, full: str
) -> None:
    mkdir = os.mkdir

    def fill(path: Path, *options: Any) -> None:
        if Path(path).name == full:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(path))
        mkdir(path, *options)

    write_users(tmp_path / "graph", 30, 0)
    monkeypatch.setattr(os, "mkdir", fill)
    fit = ("fit", "graph", "--label", "topic", *QUICK, "--out", "model")
    answer = call(tmp_path, *(TRAIN if full == "kept" else fit))
    assert "No space left on device" in answer.complaint
    assert not (tmp_path / "model").exists()
    if full == "model":
        with pytest.raises(CanetError, match="No space left on device"):
            write_model(tmp_path / "model", FILE, tensors(1), "card")


# Other data


def test_other_data_under_the_same_name_is_rejected_by_every_command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    search = ("search", "synthetic", *QUICK, "--trials", 1, "--out", "searched", "--quiet")
    assert call(tmp_path, *TRAIN).code == call(tmp_path, *search).code == 0
    monkeypatch.setattr(synthetic, "NUM_USERS", 301)
    for command in (TRAIN, ("evaluate", "kept"), (*search, "--trials", 2)):
        assert "other data" in call(tmp_path, *command).complaint


# Clocks


def test_slow_checkpoints_are_written_less_often(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 1000.0
    monkeypatch.setattr(loop.time, "perf_counter", lambda: now)

    class Slow(RunFolder):
        def save_checkpoint(self, tensors: Any) -> None:
            nonlocal now
            now += 6

    run = Network("erm", "gcn", SETTINGS, Options("cpu"))._loop(tiny_task(), 0, False, 0, None)
    run.epoch = 1
    checkpoints, taken = loop.Checkpoints(), 0.0
    for _ in range(10_000):
        now += 1.0
        if checkpoints.due:
            checkpoints.save([run], [Slow(Path())])
            taken += 6
    assert 0.01 < taken / now < 0.02


# Signals


def interrupt_at(epoch: int, number: int, monkeypatch: pytest.MonkeyPatch) -> None:
    advance = loop.Loop.advance

    def interrupted(self: loop.Loop) -> None:
        advance(self)
        if self.epoch == epoch:
            os.kill(os.getpid(), number)

    monkeypatch.setattr(loop.Loop, "advance", interrupted)


@pytest.mark.parametrize("name", ["SIGINT", "SIGTERM", "SIGHUP"])
def test_a_run_stopped_by_a_signal_resumes_after_the_same_epoch(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for folder in ("whole", "stopped"):
        (tmp_path / folder).mkdir()
    assert call(tmp_path / "whole", *TRAIN).code == 0
    number = signal.Signals[name]
    with monkeypatch.context() as patch:
        interrupt_at(2, number, patch)
        answer = call(tmp_path / "stopped", *TRAIN)
    assert (answer.code, answer.err.count("\n")) == (128 + number, 1)
    seen: list[int] = []
    advance = loop.Loop.advance
    monkeypatch.setattr(loop.Loop, "advance", lambda s: (seen.append(s.epoch), advance(s)))
    assert call(tmp_path / "stopped", *TRAIN).code == 0
    assert seen == [2]
    assert outcome_of(tmp_path / "stopped") == outcome_of(tmp_path / "whole")


def test_a_run_stopped_in_its_last_epoch_is_finished_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    interrupt_at(3, signal.SIGTERM, monkeypatch)
    answer = call(tmp_path, *TRAIN)
    assert (answer.code, answer.err.count("\n")) == (143, 1)
    assert outcome_of(tmp_path)


# Killed processes

KILLER = """
import os, random, signal, sys, time
from pathlib import Path
import torch
from tests.support.tiny import QUICK, tiny_task
from canet.store import RunFolder
from canet.models import Trainer
from canet.training import loop

torch.set_num_threads(1)
loop.CHECKPOINT_SECONDS = 0.0
folder, epochs, most = Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])
trainer = Trainer(tiny_task(), "canet", "gcn", None, "cpu", epochs)
trainer.learner._loop(trainer.task, 0, False, 0, None)  # import everything before the forks

def train(path):
    pid = os.fork()
    if not pid:
        trainer.run(folder=path)
        os._exit(0)
    return pid

chance, kills, killed = random.Random(7), 0, RunFolder(folder / "killed")
while not killed.finished:
    before, pid, ended = killed.checkpoints, train(killed.path), (0, 0)
    while killed.checkpoints == before and not killed.finished and not ended[0]:
        time.sleep(0.0005)
        ended = os.waitpid(pid, os.WNOHANG)
    if kills < most and not ended[0]:
        time.sleep(chance.uniform(0.0, 0.01))
        os.kill(pid, signal.SIGKILL)
    code = os.waitstatus_to_exitcode((ended if ended[0] else os.waitpid(pid, 0))[1])
    assert code in (0, -signal.SIGKILL), code
    kills += code != 0
pids = [train(folder / "shared") for _ in range(3)]
print(kills, *(os.waitpid(pid, 0)[1] for pid in pids))
"""


@pytest.mark.slow
def test_a_run_killed_dozens_of_times_and_three_processes_in_one_folder_have_identical_results(
    tmp_path: Path,
) -> None:
    epochs, most = 120, 36
    environment = {"PYTHONPATH": os.pathsep.join(sys.path), "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        [sys.executable, "-c", KILLER, str(tmp_path), str(epochs), str(most)],
        env=os.environ | environment | {"CUDA_VISIBLE_DEVICES": ""},  # forks cannot use a GPU
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    assert [*map(int, done.stdout.split())] == [most, 0, 0, 0]
    whole = Trainer(tiny_task(), "canet", "gcn", None, "cpu", epochs).run(folder=tmp_path / "whole")
    for name in ("killed", "shared"):
        folder = RunFolder(tmp_path / name)
        read_all(folder)
        assert folder.read_metrics() == whole.history
        assert (folder.path / WEIGHTS).read_bytes() == (tmp_path / "whole" / WEIGHTS).read_bytes()
        names = {path.name for path in folder.path.iterdir() if not path.name.endswith(".tmp")}
        assert names == {CONFIG, METRICS, RESULT, WEIGHTS, MARKER, LOCK}
