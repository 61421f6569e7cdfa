"""Faults that happen: bits flip, files are cut, disks are full, clocks jump, processes are killed.

The counts of what was done and what was found are properties of the tests, which
`pytest --junitxml=FILE -o junit_family=xunit1` writes to a file.
"""

from __future__ import annotations

import errno
import os
import random
import resource
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from typing import Any

import pytest
import torch

from canet.data import load_task
from canet.data.benchmarks import synthetic
from canet.errors import CanetError
from canet.presets import preset
from canet.runs import run_jobs
from canet.store import RunFolder, find_runs
from canet.store.model_folder import read_model, write_model
from canet.store.record import MARKER
from canet.store.run_folder import CONFIG, METRICS, RESULT, WEIGHTS
from canet.store.states import read_state
from canet.training import Run, Trainer, loop
from canet.util.signals import NOTHING_LOST
from tests.cli.test_cli import QUICK, Answer, call
from tests.finished import write_run
from tests.runs.jobs import tiny_job
from tests.training.tiny import QUICK as SETTINGS
from tests.training.tiny import tiny_task

FLIPS, CUTS = 100, 20  # in each kind of file
Record = Callable[[str, object], None]


@pytest.fixture(autouse=True)
def few_users(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(synthetic, "NUM_USERS", 300)


def trained(folder: Path) -> RunFolder:
    Trainer(tiny_task(), "erm", "gcn", SETTINGS, "cpu", epochs=3).run(folder=folder)
    return RunFolder(folder)


def faults(path: Path) -> Iterator[str]:
    """Give a file one fault after the other, and at the end its content back."""
    raw, chance = path.read_bytes(), random.Random(path.name)
    for _ in range(FLIPS):
        changed = bytearray(raw)
        place = chance.randrange(8 * len(raw))
        changed[place // 8] ^= 1 << place % 8
        path.write_bytes(changed)
        yield f"bit {place} flipped"
    for length in [0, len(raw) - 1, *(chance.randrange(len(raw)) for _ in range(CUTS - 2))]:
        path.write_bytes(raw[:length])
        yield f"cut to {length} bytes"
    path.write_bytes(raw)


def count_found(path: Path, read: Callable[[], object], record: Record) -> None:
    """Every fault of a file is refused with a line that names its folder."""
    told: list[str] = []
    unseen: list[str] = []
    for fault in faults(path):
        try:
            read()
        except CanetError as error:
            told.append(str(error))
        else:
            unseen.append(fault)
    read()
    record(f"faults made in {path.name}", len(told) + len(unseen))
    record(f"faults found in {path.name}", len(told))
    assert unseen == []
    assert len(told) == FLIPS + CUTS
    assert all("\n" not in line and str(path.parent) in line for line in told)


# Flips and cuts


def read_all(place: RunFolder) -> None:
    place.read_config()
    place.read_data()
    place.read_metrics()
    place.read_result()
    place.read_tensors(WEIGHTS)


@pytest.mark.parametrize("name", [CONFIG, METRICS, RESULT, WEIGHTS, MARKER])
def test_every_fault_in_a_file_of_a_finished_run_is_found(
    name: str, tmp_path: Path, record_property: Record
) -> None:
    place = trained(tmp_path / "run")
    count_found(place.path / name, lambda: read_all(place), record_property)


@pytest.mark.parametrize("name", ["model.json", "weights", "reference"])
def test_every_fault_in_a_file_of_a_saved_model_is_found(
    name: str, tmp_path: Path, record_property: Record
) -> None:
    tensors = {"weights": {"a": torch.randn(4, 5)}, "reference": {"b": torch.arange(9)}}
    write_model(tmp_path / "model", {"score": 0.1 + 0.2, "classes": ["α"]}, tensors)
    (path,) = (tmp_path / "model").glob(f"{name}*")
    count_found(path, lambda: read_model(tmp_path / "model"), record_property)


def test_every_fault_in_a_checkpoint_is_found(tmp_path: Path, record_property: Record) -> None:
    place = RunFolder(tmp_path / "run")
    place.path.mkdir()
    place.save_checkpoint({"epoch": torch.tensor(3), "x": torch.randn(50)})
    (path,) = place.checkpoints
    count_found(path, lambda: read_state(path), record_property)


# Full disks


TRAIN = ("train", "synthetic", "--method", "erm", *QUICK, "--out", "kept", "--quiet")


def one_line(answer: Answer, text: str) -> None:
    assert (answer.code, answer.out) == (2, "")
    assert answer.err.count("\n") == 1
    assert text in answer.err


def outcome(folder: Path) -> tuple[bytes, bytes, dict[str, float]]:
    (place,) = find_runs(folder)
    read_all(place)
    weights, metrics = ((place.path / name).read_bytes() for name in (WEIGHTS, METRICS))
    return weights, metrics, place.read_result()["scores"]


def test_a_disk_that_is_full_at_any_write_loses_nothing(
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
        one_line(answer, "(No space left on device)")
        assert not list(folder.rglob(".*.tmp"))
        assert call(folder, *TRAIN) == Answer(0, "", "")
        assert outcome(folder) == outcome(tmp_path / "whole")
    assert full == 7  # config, two checkpoints, weights, metrics, result, marker


def test_a_file_that_may_not_grow_so_large_is_one_line(tmp_path: Path) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, hard))
    try:
        answer = call(tmp_path, *TRAIN)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    one_line(answer, "weights.safetensors' (File too large): make room there")
    assert [path.name for path in tmp_path.glob("kept/*/seed-0/*")] == [CONFIG]
    assert call(tmp_path, *TRAIN) == Answer(0, "", "")
    outcome(tmp_path)


def test_a_small_disk_that_is_full_is_one_line_and_the_run_goes_on_when_there_is_room(
    tmp_path: Path,
) -> None:
    disk = tmp_path / "disk"
    disk.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", str(disk)]
    try:
        subprocess.run(mount, check=True, capture_output=True)
    except (OSError, subprocess.CalledProcessError):
        pytest.skip("no file system may be mounted here")
    try:
        one_line(call(disk, *TRAIN), "weights.safetensors' (No space left on device): make room")
        assert not list(disk.rglob(".*.tmp"))
        subprocess.run(["mount", "-o", "remount,size=8m", str(disk)], check=True)
        assert call(disk, *TRAIN) == Answer(0, "", "")
        outcome(disk)
    finally:
        subprocess.run(["umount", str(disk)], check=True)


def test_a_read_only_disk_is_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(path: Path, *_: Any, **__: Any) -> None:
        raise OSError(errno.EROFS, os.strerror(errno.EROFS), str(path))

    monkeypatch.setattr(Path, "mkdir", refuse)
    one_line(call(tmp_path, *TRAIN), "(Read-only file system)")


def test_a_full_disk_is_no_failure_of_a_job(
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


# Other data


def test_other_data_under_the_same_name_is_refused_by_every_command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    search = ("search", "synthetic", *QUICK, "--trials", 1, "--out", "searched", "--quiet")
    assert call(tmp_path, *TRAIN).code == call(tmp_path, *search).code == 0
    monkeypatch.setattr(synthetic, "NUM_USERS", 301)
    told = "seed-0' holds a run on other data (another graph)"
    one_line(call(tmp_path, *TRAIN), told)
    one_line(call(tmp_path, "evaluate", "kept"), told)
    one_line(call(tmp_path, *search), "were made on other data")
    one_line(call(tmp_path, *search, "--trials", 2), "were made on other data")


def test_finished_jobs_on_other_data_are_refused_and_told_where_that_cannot_be_seen(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    job = tiny_job()
    run_jobs([job], tmp_path, device="cpu")
    older = write_run(tmp_path, tiny_job(1), {"ood/a": 50.0})
    capsys.readouterr()
    assert run_jobs([job, tiny_job(1)], tmp_path, device="cpu") == []
    told = "1 finished runs do not record what data they were trained on"
    assert told in capsys.readouterr().err
    monkeypatch.setattr("canet.runs.data.data_now", lambda *_: None)
    assert run_jobs([job], tmp_path, device="cpu") == []
    assert "1 finished runs were trained on data that is not here" in capsys.readouterr().err
    monkeypatch.undo()
    monkeypatch.setattr(synthetic, "NUM_USERS", 301)
    with pytest.raises(CanetError, match="holds a run on other data"):
        run_jobs([job], tmp_path, device="cpu")
    assert older.finished


# Clocks


class Clock:
    """A clock that a test sets."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


def test_a_clock_that_jumps_back_does_not_put_checkpoints_off(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    clock = Clock()
    monkeypatch.setattr(loop.time, "perf_counter", clock)
    checkpoints = loop.Checkpoints()
    clock.now += 31
    assert checkpoints.due
    checkpoints.save([], [])
    clock.now -= 1e6
    assert not checkpoints.due
    clock.now += 31
    assert checkpoints.due


def test_checkpoints_that_take_long_are_made_less_often(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock()
    monkeypatch.setattr(loop.time, "perf_counter", clock)

    class Slow(RunFolder):
        def save_checkpoint(self, tensors: Any) -> None:
            clock.now += 6

    run = Trainer(tiny_task(), "erm", "gcn", SETTINGS, "cpu")._loop(0, None, False, 0)
    run.epoch = 1
    checkpoints = loop.Checkpoints()
    taken = 0.0
    for _ in range(10_000):
        clock.now += 1.0
        if checkpoints.due:
            checkpoints.save([run], [Slow(Path())])
            taken += 6
    assert 0.01 < taken / clock.now < 0.02


def test_what_a_checkpoint_takes_is_told(tmp_path: Path, record_property: Record) -> None:
    """No bound on the time, which is the machine's: `-s` shows it."""
    task = load_task("synthetic")
    of = Trainer(task, "canet", "gcn", preset("synthetic", "canet", "gcn"), "cpu")
    run, place, times = of._loop(0, None, False, 0), RunFolder(tmp_path / "run"), []
    run.advance()
    place.path.mkdir()
    for _ in range(5):
        begin = time.perf_counter()
        place.save_checkpoint(run.tensors())
        times.append(time.perf_counter() - begin)
    size, seconds = place.checkpoints[0].stat().st_size / 1e6, median(times)
    text = (
        f"{size:.1f} MB, {1000 * seconds:.0f} ms, {seconds / loop.CHECKPOINT_SECONDS:.2%} of 30 s"
    )
    print(text)
    record_property("a checkpoint takes", text)
    assert size > 0.1


def test_a_run_ends_in_the_same_bits_whatever_its_clock_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def train(folder: Path) -> Run:
        return Trainer(tiny_task(), "erm", "gcn", SETTINGS, "cpu").run(folder=folder)

    whole = train(tmp_path / "whole")
    chance = random.Random(3)
    for name in ("time", "monotonic", "perf_counter"):
        monkeypatch.setattr(loop.time, name, lambda: chance.uniform(-1e9, 1e9))
    jumping = train(tmp_path / "jumping")
    assert jumping.history == whole.history
    assert (tmp_path / "jumping" / WEIGHTS).read_bytes() == (
        tmp_path / "whole" / WEIGHTS
    ).read_bytes()


# Signals


def interrupt_at(epoch: int, number: int, monkeypatch: pytest.MonkeyPatch) -> None:
    advance = loop.Loop.advance

    def interrupted(self: loop.Loop) -> None:
        advance(self)
        if self.epoch == epoch:
            os.kill(os.getpid(), number)

    monkeypatch.setattr(loop.Loop, "advance", interrupted)


@pytest.mark.parametrize("name", ["SIGINT", "SIGTERM", "SIGHUP"])
def test_a_run_that_is_told_to_stop_goes_on_after_the_same_epoch(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for folder in ("whole", "stopped"):
        (tmp_path / folder).mkdir()
    assert call(tmp_path / "whole", *TRAIN).code == 0
    number = signal.Signals[name]
    with monkeypatch.context() as patch:
        interrupt_at(2, number, patch)
        answer = call(tmp_path / "stopped", *TRAIN)
    told = "canet: interrupted after epoch 2 of 3; the same command goes on from there\n"
    assert answer == Answer(128 + number, "", told)
    seen: list[int] = []
    advance = loop.Loop.advance
    monkeypatch.setattr(loop.Loop, "advance", lambda s: (seen.append(s.epoch), advance(s)))
    assert call(tmp_path / "stopped", *TRAIN) == Answer(0, "", "")
    assert seen == [2]
    assert outcome(tmp_path / "stopped") == outcome(tmp_path / "whole")


def test_a_run_that_is_told_to_stop_in_its_last_epoch_is_finished_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    interrupt_at(3, signal.SIGTERM, monkeypatch)
    assert call(tmp_path, *TRAIN) == Answer(143, "", f"canet: {NOTHING_LOST}\n")
    outcome(tmp_path)


def test_a_run_without_a_folder_says_that_it_was_not_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    interrupt_at(2, signal.SIGINT, monkeypatch)
    search = ("search", "synthetic", *QUICK, "--trials", 1, "--out", "s", "--quiet")
    answer = call(tmp_path, *search)
    assert answer.code == 130
    assert "the run under way was not kept, and the same command begins it anew" in answer.err
    assert answer.err.count("\n") == 1


@pytest.mark.parametrize("raised", [None, ImportError, SystemError], ids=str)
def test_a_signal_while_data_is_loaded_is_one_line_whatever_comes_of_it(
    raised: type[Exception] | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(*_: Any) -> None:
        try:
            os.kill(os.getpid(), signal.SIGINT)
        except BaseException:
            if raised is None:
                raise
        raise (raised or AssertionError)("torn")

    monkeypatch.setattr("canet.runs.evaluate.load_task", interrupted)
    assert call(tmp_path, *TRAIN) == Answer(130, "", f"canet: {NOTHING_LOST}\n")


@pytest.mark.parametrize("name", ["SIGINT", "SIGTERM", "SIGHUP"])
def test_further_signals_while_the_end_is_told_change_nothing(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    number = signal.Signals[name]
    module = sys.modules["canet.cli.main"]
    complain = module._complain

    def interrupted(*_: Any) -> None:
        os.kill(os.getpid(), number)

    def complain_among_signals(message: str, code: int) -> int:
        interrupted()
        complain(message, code)
        interrupted()
        return code

    monkeypatch.setattr("canet.runs.evaluate.load_task", interrupted)
    monkeypatch.setattr(module, "_complain", complain_among_signals)
    assert call(tmp_path, *TRAIN) == Answer(128 + number, "", f"canet: {NOTHING_LOST}\n")


def environment() -> dict[str, str]:
    return os.environ | {"PYTHONPATH": os.pathsep.join(sys.path), "OMP_NUM_THREADS": "1"}


@contextmanager
def starting(folder: Path) -> Iterator[subprocess.Popen[str]]:
    """A command that begins to train, in a process of its own whose own imports are done."""
    code = "from canet.cli import main; print('ready', flush=True); main()"
    command = [sys.executable, "-c", code, "train", "synthetic", "--epochs", "100000"]
    with subprocess.Popen(
        [*command, "--out", str(folder)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environment(),
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        yield process


def assert_told(process: subprocess.Popen[str], number: int) -> None:
    _, told = process.communicate(timeout=60)
    assert process.returncode == 128 + number
    assert told.startswith("canet: interrupted")
    assert told.count("\n") == 1


@pytest.mark.slow
def test_ctrl_c_at_random_times_of_the_start_is_one_line(tmp_path: Path) -> None:
    chance = random.Random(1)
    for _ in range(3):
        with starting(tmp_path / "kept") as process:
            time.sleep(chance.uniform(0.0, 2.0))
            process.send_signal(signal.SIGINT)
            assert_told(process, signal.SIGINT)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["SIGINT", "SIGTERM", "SIGHUP"])
def test_a_pair_of_signals_at_random_times_of_the_start_is_one_line(
    name: str, tmp_path: Path
) -> None:
    number, chance = signal.Signals[name], random.Random(name)
    for _ in range(2):
        with starting(tmp_path / "kept") as process:
            time.sleep(chance.uniform(0.2, 1.5))
            process.send_signal(number)
            time.sleep(chance.uniform(0.0, 0.003))
            process.send_signal(number)
            assert_told(process, number)


# Kills

ZYGOTE = """
import os, random, signal, sys, time
from pathlib import Path
import torch
from tests.training.tiny import QUICK, tiny_task
from canet.store import RunFolder
from canet.training import Trainer, loop

torch.set_num_threads(1)
loop.CHECKPOINT_SECONDS = 0.0
folder, epochs, most = Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])
trainer = Trainer(tiny_task(), "canet", "gcn", None, "cpu", epochs)
trainer._loop(0, None, False, 0)  # imports what a run needs, once for all

def train(path):
    pid = os.fork()
    if not pid:
        trainer.run(folder=path)
        os._exit(0)
    return pid

chance, kills, place = random.Random(7), 0, RunFolder(folder / "killed")
while not place.finished:
    before, pid, ended = place.checkpoints, train(place.path), (0, 0)
    while place.checkpoints == before and not place.finished and not ended[0]:
        time.sleep(0.0005)
        ended = os.waitpid(pid, os.WNOHANG)
    if kills < most and not ended[0]:
        time.sleep(chance.uniform(0.0, 0.01))
        os.kill(pid, signal.SIGKILL)
    code = os.waitstatus_to_exitcode((ended if ended[0] else os.waitpid(pid, 0))[1])
    assert code in (0, -signal.SIGKILL), code  # it ends by itself, or is killed
    kills += code != 0
pids = [train(folder / "shared") for _ in range(3)]
print(kills, *(os.waitpid(pid, 0)[1] for pid in pids))
"""


def kill_often(tmp_path: Path, epochs: int, most: int, record: Record) -> int:
    """Train with kills at random moments, then three processes in one folder; number of kills."""
    command = [sys.executable, "-c", ZYGOTE, str(tmp_path), str(epochs), str(most)]
    done = subprocess.run(
        command,
        env=environment() | {"CUDA_VISIBLE_DEVICES": ""},  # no fork may touch a GPU
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    kills, *codes = map(int, done.stdout.split())
    assert codes == [0, 0, 0]
    whole = Trainer(tiny_task(), "canet", "gcn", None, "cpu", epochs).run(folder=tmp_path / "whole")
    for name in ("killed", "shared"):
        place = RunFolder(tmp_path / name)
        read_all(place)
        assert place.read_metrics() == whole.history
        assert (place.path / WEIGHTS).read_bytes() == (tmp_path / "whole" / WEIGHTS).read_bytes()
        names = {path.name for path in place.path.iterdir() if not path.name.endswith(".tmp")}
        assert names == {CONFIG, METRICS, RESULT, WEIGHTS, MARKER}
    record("kills survived", kills)
    return kills


def test_a_run_killed_at_random_moments_and_three_processes_in_a_folder_end_in_the_same_bits(
    tmp_path: Path, record_property: Record
) -> None:
    assert kill_often(tmp_path, 12, 4, record_property) == 4


@pytest.mark.slow
def test_a_run_killed_dozens_of_times_ends_in_the_same_bits(
    tmp_path: Path, record_property: Record
) -> None:
    assert kill_often(tmp_path, 120, 36, record_property) == 36
