"""Run the command line."""

from __future__ import annotations

import errno
import os
import signal
import sys
import traceback
import warnings
from typing import Any

import typer

from canet.cli.app import DEBUG, app
from canet.errors import CanetError, printable
from canet.util.memory import keep_freed_memory
from canet.util.signals import INTERRUPTED, ignore_signals, interrupt_on_signals, received_signal

ParserError: Any = typer.BadParameter.__mro__[2]  # the common base of the parser's errors
KEYBOARD_INTERRUPT = 130  # what typer returns for it
NO_MEMORY = (
    "out of memory",
    "not enough memory",
    "allocate memory",
    "Storage size calculation overflowed",
    "failed to map segment",
)
"""How torch's `RuntimeError` and the `ImportError` of a library say it."""


def main(commands: typer.Typer = app, name: str = "canet") -> None:
    """Run a command line.

    A user's mistake ends in one line and exit code 2, a signal in one line and exit code 128 plus
    its number. Any other exception is a bug and keeps its traceback.
    """
    interrupt_on_signals()
    keep_freed_memory()
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="replace")  # a terminal may not know the character ±
    warnings.showwarning = _warn
    sys.exit(_run(commands, name) or 0)


def _run(commands: typer.Typer, name: str) -> Any:
    """The exit code of the command."""
    arguments = sys.argv[1:] or (["--help"] if commands is app else [])
    try:
        code = commands(arguments, prog_name=name, standalone_mode=False)
    except (KeyboardInterrupt, typer.Abort):
        code = KEYBOARD_INTERRUPT
    except Exception as error:
        message = _message(error)
        if received_signal() is None and message is None:
            raise
        if received_signal() is None:
            return _fail(str(message))
        code = KEYBOARD_INTERRUPT  # an import that a signal interrupts may raise its own error
    if code == KEYBOARD_INTERRUPT:
        ignore_signals()
        return _fail(INTERRUPTED, 128 + (received_signal() or signal.SIGINT))
    return code


def _message(error: Exception) -> str | None:
    """What the user can do about an error; None for a bug."""
    if isinstance(error, CanetError):
        return str(error)
    if isinstance(error, ParserError):
        return str(error.format_message())
    if isinstance(error, OSError) and error.errno in (errno.EMFILE, errno.ENFILE):
        return "too many open files: raise their limit (ulimit -n), or lower --jobs"
    if isinstance(error, OSError):
        return f"cannot read or write ({error}): check the folder, its rights and space"
    out_of_memory = any(sign in str(error) for sign in NO_MEMORY)
    if isinstance(error, MemoryError) or (
        isinstance(error, RuntimeError | ImportError) and out_of_memory
    ):
        return (
            "not enough memory: free some, lower hidden or num_layers, or choose another --device"
        )
    return None


def _warn(message: Warning | str, *_: Any, **__: Any) -> None:
    """A warning in one line, without the line of code that gave it."""
    print(f"canet: warning: {' '.join(printable(message).split())}", file=sys.stderr)


def _fail(message: str, code: int = 2) -> int:
    """Print one line, after the traceback if the user asked for it; gives the exit code."""
    if sys.exc_info()[0] and os.environ.get(DEBUG, "0") not in ("", "0"):
        traceback.print_exc()
    print(f"canet: {' '.join(printable(message).split())}", file=sys.stderr)
    return code
