"""Run `canet` as a user does, and look at what it answered."""

import io
import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import chdir, contextmanager, redirect_stderr, redirect_stdout
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import typer

from canet import cli
from canet.util import signals
from canet.util.locks import LOCK
from canet.util.signals import SIGNALS

NUM_USERS = 300
QUICK = ("--epochs", "3", "--device", "cpu")
typer.main.get_command = cache(typer.main.get_command)  # a process builds the commands once


class Answer(NamedTuple):
    """What a command answered."""

    code: int
    out: str
    err: str

    @property
    def content(self) -> Any:
        """The one JSON object that a successful command printed."""
        assert (self.code, self.err) == (0, "")
        return json.loads(self.out)

    @property
    def complaint(self) -> str:
        """The one line of a command that a user's mistake ended."""
        assert (self.code, self.out) == (2, "")
        assert self.err.startswith("canet: ")
        assert self.err.count("\n") == 1
        return self.err.removeprefix("canet: ").strip()


Canet = Callable[..., Answer]


@contextmanager
def usual_signals() -> Iterator[None]:
    """A block in which signals have Python's handlers; afterwards all is as before."""
    before = {number: signal.getsignal(number) for number in SIGNALS}
    for number in SIGNALS:
        usual = signal.default_int_handler if number == signal.SIGINT else signal.SIG_DFL
        signal.signal(number, usual)
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
        signals._State.received = None


def call(folder: Path, *arguments: object) -> Answer:
    """Run `canet ARGUMENTS` within a folder."""
    with pytest.MonkeyPatch.context() as patch, chdir(folder), usual_signals():
        patch.setattr(sys, "argv", ["canet", *map(str, arguments)])
        patch.setenv("CANET_DEBUG", os.environ.get("CANET_DEBUG", "0"))  # and put it back
        out, err = io.StringIO(), io.StringIO()
        with redirect_stdout(out), redirect_stderr(err), pytest.raises(SystemExit) as ended:
            cli.main()
    return Answer(int(ended.value.code or 0), out.getvalue(), err.getvalue())


def call_in_new_process(folder: Path, *arguments: object, **environment: str) -> Answer:
    """Run `canet ARGUMENTS` within a folder, in a process of its own."""
    code = "from canet.cli import main; main()"
    if {"synthetic", "evaluate"} & {*map(str, arguments)}:
        few = f"from canet.data.benchmarks import synthetic; synthetic.NUM_USERS = {NUM_USERS}"
        code = f"{few}; {code}"
    done = subprocess.run(
        [sys.executable, "-c", code, *map(str, arguments)],
        cwd=folder,
        env=os.environ | {"OMP_NUM_THREADS": "1"} | environment,
        capture_output=True,
        text=True,
        timeout=120,
    )
    return Answer(done.returncode, done.stdout, done.stderr)


def files_of(folder: Path) -> dict[str, tuple[int, bytes]]:
    """Every file below a folder except locks, and when it was written."""
    return {
        str(path.relative_to(folder)): (path.stat().st_mtime_ns, path.read_bytes())
        for path in folder.rglob("*")
        if path.is_file() and path.name != LOCK
    }
