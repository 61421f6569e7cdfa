"""The command line. Heavy imports happen inside the commands, so that `--help` is fast."""

from canet.cli import (  # noqa: F401 - each registers its commands
    catalogue,
    compare,
    convert,
    graphs,
    predictions,
    reproduce,
    search,
    training,
    verify,
)
from canet.cli.app import app
from canet.cli.main import main

__all__ = ["app", "main"]
