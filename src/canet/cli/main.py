"""The entry point of the command line, and its error messages."""

import errno
import logging
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
from canet.util.signals import ignore_signals, interrupt_on_signals, received_signal

KEYBOARD_INTERRUPT = 130  # what typer returns for it
RESUMABLE = {"demo", "fit", "compare", "train", "search", "reproduce"}
"""Commands that keep finished work when they are interrupted."""
NO_MEMORY = (
    "out of memory",
    "not enough memory",
    "allocate memory",
    "Storage size calculation overflowed",
    "failed to map segment",
)
"""Messages of torch's `RuntimeError` and of a library's `ImportError` without memory."""


def main(commands: typer.Typer = app, name: str = "canet") -> None:
    """Run a command line.

    A user error prints one line and exits with code 2; a signal with 128 plus its number. Any other
    exception is a bug and shows its traceback.
    """
    interrupt_on_signals()
    keep_freed_memory()
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="replace")  # the terminal may not be able to show ±
    warnings.showwarning = _warn
    logging.basicConfig(format="canet: %(message)s", level=logging.WARNING)
    sys.exit(_run(commands, name) or 0)


def _run(commands: typer.Typer, name: str) -> Any:
    """Run the command and return its exit code."""
    arguments = sys.argv[1:] or (["--help"] if commands is app else [])
    try:
        code = commands(arguments, prog_name=name, standalone_mode=False)
    except (KeyboardInterrupt, typer.Abort):
        code = KEYBOARD_INTERRUPT
    except Exception as error:
        if received_signal() is None:  # else an interrupted import may have raised the error
            if (message := _message(error)) is None:
                raise
            return _fail(message)
        code = KEYBOARD_INTERRUPT
    if code == KEYBOARD_INTERRUPT:
        ignore_signals()
        message = "interrupted"
        command = next((word for word in arguments if not word.startswith("-")), "")
        if commands is not app or command in RESUMABLE:
            message += ": finished work is kept; run the same command again to resume"
        return _fail(message, 128 + (received_signal() or signal.SIGINT))
    return code


def _message(error: Exception) -> str | None:
    """Return the message for a user error; None for a bug."""
    if isinstance(error, CanetError):
        return str(error)
    if hasattr(error, "format_message"):  # an error of typer's parser
        message = str(error.format_message())
        is_train = getattr(getattr(error, "ctx", None), "info_name", None) == "train"
        if is_train and getattr(error, "option_name", None) == "--label":
            message = "canet train has no --label: train on your graph with canet fit"
        return message
    if isinstance(error, OSError) and error.errno in (errno.EMFILE, errno.ENFILE):
        return "too many open files: raise the limit with `ulimit -n`, or use fewer --jobs"
    if isinstance(error, OSError):
        return f"cannot read or write a file ({error}): check path, permissions and free space"
    out_of_memory = any(sign in str(error) for sign in NO_MEMORY)
    if isinstance(error, MemoryError) or (
        isinstance(error, RuntimeError | ImportError) and out_of_memory
    ):
        return "not enough memory: free some, lower hidden or num_layers, or use another --device"
    return None


def _warn(message: Warning | str, *_: object, **__: object) -> None:
    """Print a warning in one line, without the line of code."""
    print(f"canet: warning: {' '.join(printable(message).split())}", file=sys.stderr)


def _fail(message: str, code: int = 2) -> int:
    """Print one line, after the traceback if the user wants it, and return the exit code."""
    if sys.exc_info()[0] and os.environ.get(DEBUG, "0") not in ("", "0"):
        traceback.print_exc()
    print(f"canet: {' '.join(printable(message).split())}", file=sys.stderr)
    return code
