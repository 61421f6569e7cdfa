"""The command line. Heavy imports happen inside the commands, so that `--help` is fast."""

from canet.cli import graphs, convert, predictions, compare  # noqa: F401, I001 - in the order of the help
from canet.cli import training, verify, catalogue, search, reproduce  # noqa: F401
from canet.cli.app import app
from canet.cli.main import main

__all__ = ["app", "main"]
