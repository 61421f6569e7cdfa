"""Run the command line."""

from __future__ import annotations

import sys
import warnings
from contextlib import suppress
from typing import Any

import typer

from canet.cli.app import app
from canet.cli.terminal import open_closed_streams, write_everywhere
from canet.errors import CanetError
from canet.util.memory import keep_freed_memory
from canet.util.signals import NOTHING_LOST, Interrupted, State, heeded, requested

ParserError: Any = typer.BadParameter.__mro__[2]  # the common base of the parser's complaints
INTERRUPTED = 130
NO_MEMORY = (
    "out of memory",
    "not enough memory",
    "allocate memory",
    "Storage size calculation overflowed",
)
"""torch's words for it: it raises a `RuntimeError`."""


def main(commands: typer.Typer = app, name: str = "canet") -> None:
    """Run a command line; whatever a user can cause ends in one line and exit code 2.

    A signal that says to stop ends in one line, too, and in the exit code that shells give it.
    """
    with heeded():
        try:
            keep_freed_memory()
            open_closed_streams()
            write_everywhere()
            warnings.showwarning = _warn
            code = _run(commands, name)
            State.ending = True
        except BaseException as error:
            State.ending = True
            number = requested()
            if number is None:
                raise
            # An import that is interrupted may fail with an error of its own.
            told = error if isinstance(error, Interrupted) else Interrupted(number)
            code = _complain(str(told), told.exit_code)
    sys.exit(code or 0)


def _run(commands: typer.Typer, name: str) -> Any:
    """The exit code of the command."""
    arguments = sys.argv[1:] or (["--help"] if commands is app else [])
    try:
        code = commands(arguments, prog_name=name, standalone_mode=False)
        if code == INTERRUPTED:  # how some versions of the parser tell of Ctrl-C
            raise KeyboardInterrupt
    except CanetError as error:
        return _complain(str(error))
    except ParserError as error:
        return _complain(error.format_message())
    except (typer.Abort, KeyboardInterrupt):
        return _complain(NOTHING_LOST, INTERRUPTED)
    except OSError as error:
        return _complain(f"cannot read or write ({error}): check the folder, its rights and space")
    except (RuntimeError, MemoryError) as error:
        if isinstance(error, RuntimeError) and not any(sign in str(error) for sign in NO_MEMORY):
            raise
        return _complain(
            "not enough memory: lower hidden or num_layers, or choose another --device"
        )
    return code


def _warn(message: Warning | str, *_: Any, **__: Any) -> None:
    """A warning in one line, without the place in our code that gave it."""
    print(f"canet: warning: {' '.join(str(message).split())}", file=sys.stderr)


def _complain(message: str, code: int = 2) -> int:
    with suppress(OSError):  # a terminal that hung up reads nothing
        print(f"canet: {' '.join(message.split())}", file=sys.stderr)
    return code
