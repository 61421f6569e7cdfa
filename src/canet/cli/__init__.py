"""The command line: thin doors to the package. Heavy imports happen inside the commands."""

import sys

from canet.interruption import Interrupted, State, heeded, requested

with heeded():  # until `main` does
    try:
        from canet.cli import own, training, verify, catalogue, many, pages, bench  # noqa: I001 - in the order of the help
        from canet.cli.app import app
        from canet.cli.main import main
    except BaseException:
        State.ending = True
        number = requested()
        if number is None:
            raise
        told = Interrupted(number)
        print(f"canet: {told}", file=sys.stderr)
        sys.exit(told.exit_code)

__all__ = ["app", "bench", "catalogue", "main", "many", "own", "pages", "training", "verify"]
