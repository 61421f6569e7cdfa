"""What holds for every command: help, one line for a mistake, exit codes, tracebacks, signals."""

import errno
import io
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any, get_args, get_origin, get_type_hints

import pytest
import torch

from canet import __version__, cli
from canet.data.task import ShiftTask
from canet.util.signals import SIGNALS
from tests.support.commands import QUICK, Answer, Canet, call_in_new_process, usual_signals

COMMANDS = [command.callback.__name__ for command in cli.app.registered_commands]  # type: ignore


@pytest.mark.parametrize("arguments", [["--help"], []], ids=["asked", "no argument"])
def test_help_lists_the_commands_without_importing_torch(
    arguments: list[str], tmp_path: Path
) -> None:
    code = (
        "import sys; from canet.cli import main; sys.argv[0] = 'canet'\n"
        "try: main()\n"
        "except SystemExit as end: assert not end.code\n"
        "heavy = {'torch', 'torch_geometric', 'numpy', 'scipy', 'matplotlib'} & {*sys.modules}\n"
        "sys.exit(f'imported {heavy}' if heavy else 0)"
    )
    command = [sys.executable, "-c", code, *arguments]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stderr) == (0, "")
    listed = [line.split()[0] for line in done.stdout.splitlines() if line.strip()]
    assert {*COMMANDS} <= {*listed}


def test_no_summary_of_the_help_is_cut_or_wrapped(
    canet: Canet, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    _, _, commands = canet("--help").out.partition("Your graph:")
    lines = [line for line in commands.splitlines() if line.startswith("  ")]
    assert len(lines) == len(COMMANDS)
    assert all(line.endswith(".") and "..." not in line for line in lines)


def test_the_help_of_fit_starts_with_the_common_options(canet: Canet) -> None:
    answer = canet("fit", "--help").out
    common, _, others = answer.partition("Common options:")[2].partition("Other options:")
    assert len(re.findall(r"^  (?:-o, )?--", common, re.MULTILINE)) == 10
    assert "--label" in common
    assert "--seed" in others


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_explains_its_options(command: str, canet: Canet) -> None:
    answer = canet(command, "--help")
    assert (answer.code, answer.err) == (0, "")
    assert f"Usage: canet {command} " in answer.out


def test_version_is_printed(canet: Canet) -> None:
    assert canet("--version") == Answer(0, f"canet {__version__}\n", "")


# A user's mistake

MISTAKES = {
    "trian synthetic": "train",
    "train synthetic --epoch 3": "--epochs",
    "train": "task",
    "train synthetic cora": "cora",
    "train graph --label kind": "canet fit",
    "train graph.npz": "canet fit",
    "train synthetic --ray local": "'local'",
    "train syntetic": "'synthetic'",
    "train synthetic --method canett": "'canet'",
    "train synthetic --backbone gan": "'gin'",
    "train synthetic --protocol papr": "'paper'",
    "train twitch --protocol disjoint": "'disjoint'",
    "train arxiv --features structure": "'structural'",
    "train cora --features structural": "'structural'",
    "train synthetic --set taau=2": "'tau'",
    "train synthetic --method erm --set tau=2": "'tau'",
    "train synthetic --set tau=hot": "'tau'",
    "train synthetic --set dropout=1": "'dropout'",
    "train synthetic --set estimator=x": "node, graph",
    "train synthetic --set tau": "key=value",
    "train synthetic --set epochs=0": "'epochs'",
    "train synthetic --set hidden=1000000000000": "16,384",
    "train synthetic --device gpu": "'cuda'",
    "train synthetic --device cuda": "cuda",
    "demo --device cuda": "cuda",
    "train cora --data-root nowhere": "'nowhere'",
    "train synthetic --data-root nowhere": "'nowhere'",
    "datasets --data-root nowhere": "'nowhere'",
    "evaluate . --data-root nowhere": "'nowhere'",
    "datasets coro": "'cora'",
    "methods vrx": "'vrex'",
    "evaluate .": "'.'",
    "evaluate nowhere": "'nowhere'",
    "evaluate": "run",
    f"train synthetic --out {'x' * 300}": "too long",
}


@pytest.mark.parametrize(("line", "name"), MISTAKES.items(), ids=list(MISTAKES))
def test_a_mistake_is_one_line_found_before_data_is_loaded_and_nothing_is_written(
    line: str,
    name: str,
    canet: Canet,
    work: Path,
    fresh_cache: Path,
    offline: list[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert name.lower() in canet(*line.split()).complaint.lower()
    assert list(work.iterdir()) == []
    assert not fresh_cache.exists()
    assert offline == []


def number_options() -> Iterator[tuple[str, str, Any]]:
    """Command, option and what is declared of it, for every option that takes a number."""
    for registered in cli.app.registered_commands:
        assert registered.callback is not None
        hints = get_type_hints(registered.callback, include_extras=True)
        for name, hint in hints.items():
            kind, *declared = get_args(hint) if get_origin(hint) is Annotated else (hint,)
            if declared and {int, float} & {kind, *get_args(kind)}:
                yield registered.callback.__name__, f"--{name.replace('_', '-')}", declared[0]


NEEDED = {
    "fit": ["graph", "--out", "model"],
    "diagnose": ["model", "graph"],
    "train": ["synthetic"],
    "search": ["synthetic"],
    "reproduce": ["table1", "--out", "out"],
}


@pytest.mark.parametrize(
    ("command", "option", "declared"),
    [pytest.param(*found, id=f"{found[0]} {found[1]}") for found in number_options()],
)
def test_every_number_has_bounds(
    command: str, option: str, declared: Any, canet: Canet, work: Path
) -> None:
    assert declared.min is not None
    assert declared.max is not None
    for value in ("100000000000000000000000", "-1", "nan", "inf", "", "many"):
        assert canet(command, *NEEDED.get(command, []), f"{option}={value}").complaint
    assert list(work.iterdir()) == []


@pytest.mark.parametrize("task", ["cora", "twitch", "arxiv", "elliptic"])
def test_files_that_cannot_be_downloaded_are_one_line_and_leave_nothing(
    task: str, canet: Canet, work: Path, fresh_cache: Path, offline: list[str]
) -> None:
    complaint = canet("train", task).complaint
    assert offline[0] in complaint
    assert "CANET_DATA_ROOT" in complaint
    assert list(work.iterdir()) == []
    assert not [path for path in fresh_cache.rglob("*") if path.is_file() and path.stat().st_size]


def test_damaged_data_is_one_line(
    canet: Canet, work: Path, small_root: Path, offline: list[str]
) -> None:
    (small_root / "arxiv/raw/edge.csv.gz").write_bytes(b"not an archive")
    assert "edge.csv.gz" in canet("train", "arxiv", "--data-root", small_root).complaint
    assert list(work.iterdir()) == []


def test_a_file_in_place_of_a_folder_is_one_line_and_kept(canet: Canet, work: Path) -> None:
    (work / "file").write_text("mine")
    for command in (("train", "synthetic", *QUICK), ("demo",)):
        assert "'file" in canet(*command, "--out", "file").complaint
    assert (work / "file").read_text() == "mine"


# Tracebacks


def test_a_mistake_in_a_new_process_has_a_traceback_only_in_debug_mode(work: Path) -> None:
    assert "'cora'" in call_in_new_process(work, "datasets", "coro").complaint
    by_option = call_in_new_process(work, "--debug", "datasets", "coro")
    by_variable = call_in_new_process(work, "datasets", "coro", CANET_DEBUG="1")
    for answer in (by_option, by_variable):
        assert (answer.code, answer.out) == (2, "")
        assert "Traceback" in answer.err
        assert "check_name" in answer.err
        assert answer.err.splitlines()[-1].startswith("canet: ")


def fail_in_loading(monkeypatch: pytest.MonkeyPatch, error: BaseException) -> None:
    def fail(*_: object, **__: object) -> None:
        raise error

    monkeypatch.setattr(ShiftTask, "__post_init__", fail)


@pytest.mark.parametrize(
    "error",
    [
        MemoryError(),
        RuntimeError("DefaultCPUAllocator: can't allocate memory"),
        RuntimeError("CUDA out of memory. Tried to"),
        ImportError("libtorch_cpu.so: failed to map segment from shared object"),
        RuntimeError("[enforce fail] Storage size calculation overflowed with sizes=[1]"),
    ],
    ids=str,
)
def test_not_enough_memory_is_one_line(
    error: Exception, canet: Canet, monkeypatch: pytest.MonkeyPatch
) -> None:
    fail_in_loading(monkeypatch, error)
    assert "memory" in canet("train", "synthetic", *QUICK).complaint


def test_too_many_open_files_are_one_line(canet: Canet, monkeypatch: pytest.MonkeyPatch) -> None:
    fail_in_loading(monkeypatch, OSError(errno.EMFILE, "Too many open files"))
    assert "ulimit" in canet("train", "synthetic", *QUICK).complaint


def test_a_bug_keeps_its_traceback(canet: Canet, monkeypatch: pytest.MonkeyPatch) -> None:
    fail_in_loading(monkeypatch, RuntimeError("a bug"))
    with pytest.raises(RuntimeError, match="a bug"):
        canet("train", "synthetic", *QUICK)


# Signals


@pytest.mark.parametrize("number", SIGNALS)
@pytest.mark.parametrize("raised", [None, ImportError], ids=["raised", "in an import"])
def test_a_signal_is_one_line_and_its_exit_code(
    number: int, raised: type[Exception] | None, canet: Canet, monkeypatch: pytest.MonkeyPatch
) -> None:
    def load(*_: object) -> None:
        try:
            os.kill(os.getpid(), number)
        except KeyboardInterrupt:
            raise (raised or KeyboardInterrupt) from None

    monkeypatch.setattr(ShiftTask, "__post_init__", load)
    answer = canet("train", "synthetic", *QUICK)
    assert (answer.code, answer.out) == (128 + number, "")
    assert answer.err.startswith("canet: interrupted: finished work is kept")
    assert answer.err.count("\n") == 1


@pytest.mark.parametrize("command", ["diagnose fit graph", "--debug predict fit graph --out p.csv"])
def test_only_commands_that_keep_work_say_so(
    command: str, canet: Canet, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupt(*_: object) -> None:
        os.kill(os.getpid(), SIGNALS[-1])

    monkeypatch.setattr("canet.cli.predictions._open", interrupt)
    monkeypatch.setenv("CANET_DEBUG", "0")
    err = canet(*command.split()).err
    assert err.splitlines()[-1] == "canet: interrupted"


# Terminals


def test_a_terminal_that_knows_only_ascii_ends_no_command(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", ["canet", "methods", "canet"])
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(io.BytesIO(), "ascii"))
    with usual_signals(), pytest.raises(SystemExit) as ended:
        cli.main()
    assert not ended.value.code
    sys.stdout.seek(0)
    assert "?" in sys.stdout.read()


def test_names_that_steer_a_terminal_do_not_reach_it(canet: Canet, work: Path) -> None:
    (work / "graph").mkdir()
    (work / "graph/nodes.csv").write_text("id,\x1b[31mage,kind\n1,5,\x1b]0;title\x07\n2,6,b\n")
    (work / "graph/edges.csv").write_text("source,target\n1,2\n")
    answer = canet("inspect", "graph", "--label", "kind")
    assert answer.code == 0
    assert "age" in answer.out
    for text in (answer.out, canet("datasets", "\x1b[31mcora").complaint):
        assert not {"\x1b", "\x07"} & {*text}


@pytest.mark.parametrize("command", ["report", "archive"])
def test_a_folder_in_place_of_a_file_is_one_line(command: str, canet: Canet) -> None:
    assert "'.'" in canet(command, "runs", "-o", ".").complaint


def test_a_user_without_home_folder_is_one_line(
    canet: Canet, monkeypatch: pytest.MonkeyPatch
) -> None:
    def home() -> Path:
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.setattr(Path, "home", home)
    monkeypatch.delenv("CANET_CACHE")
    assert "CANET_CACHE" in canet("datasets", "cora").complaint


def test_the_module_is_the_command() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "canet", "fit", "-h"], capture_output=True, text=True, check=True
    )
    assert done.stdout.startswith("Usage: canet fit")
    assert all(len(line) <= 80 for line in done.stdout.splitlines())
