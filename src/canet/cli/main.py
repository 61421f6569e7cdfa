"""Run the command line."""

from __future__ import annotations

import sys
import warnings
from typing import Any

import typer

from canet.cli.app import app
from canet.errors import CanetError
from canet.memory import keep_freed_memory

ParserError: Any = typer.BadParameter.__mro__[2]  # the common base of the parser's complaints
INTERRUPTED = 130
NO_MEMORY = ("out of memory", "allocate memory", "Storage size calculation overflowed")  # torch's


def main() -> None:
    """Run the command line; whatever a user can cause ends in one line and exit code 2."""
    keep_freed_memory()
    warnings.showwarning = _warn
    try:
        code = app(sys.argv[1:] or ["--help"], prog_name="canet", standalone_mode=False)
        if code == INTERRUPTED:  # how some versions of the parser tell of Ctrl-C
            raise KeyboardInterrupt
    except CanetError as error:
        code = _complain(str(error))
    except ParserError as error:
        code = _complain(error.format_message())
    except (typer.Abort, KeyboardInterrupt):
        code = _complain("interrupted; the same command goes on where it stopped", INTERRUPTED)
    except OSError as error:
        code = _complain(f"cannot read or write ({error}): check the folder, its rights and space")
    except RuntimeError as error:
        if not any(sign in str(error) for sign in NO_MEMORY):
            raise
        code = _complain(
            "not enough memory: lower hidden or num_layers, or choose another --device"
        )
    sys.exit(code or 0)


def _warn(message: Warning | str, *_: Any, **__: Any) -> None:
    """A warning in one line, without the place in our code that gave it."""
    print(f"canet: warning: {' '.join(str(message).split())}", file=sys.stderr)


def _complain(message: str, code: int = 2) -> int:
    print(f"canet: {' '.join(message.split())}", file=sys.stderr)
    return code
