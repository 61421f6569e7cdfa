"""The command line: thin doors to the package. Heavy imports happen inside the commands."""

import sys

from canet.util.signals import Interrupted, State, heeded, requested

with heeded():  # until `main` does
    try:
        from canet.cli import graphs, training, verify, catalogue, search, reproduce, pages  # noqa: F401, I001 - in the order of the help
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

__all__ = ["app", "main"]
