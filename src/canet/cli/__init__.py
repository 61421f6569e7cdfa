"""The command line: thin doors to the package. Heavy imports happen inside the commands."""

import sys

from canet.interruption import NOTHING_LOST

try:
    from canet.cli import own, training, verify, catalogue, many, pages, bench  # noqa: I001 - in the order of the help
    from canet.cli.app import app
    from canet.cli.main import main
except KeyboardInterrupt:  # from here on `main` heeds it
    print(f"canet: {NOTHING_LOST}", file=sys.stderr)
    sys.exit(130)

__all__ = ["app", "bench", "catalogue", "main", "many", "own", "pages", "training", "verify"]
