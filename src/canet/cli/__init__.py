"""The command line: thin doors to the package. Heavy imports happen inside the commands."""

from canet.cli import own, training, catalogue, many, pages, bench  # noqa: I001 - in the order of the help
from canet.cli.app import app
from canet.cli.main import main

__all__ = ["app", "bench", "catalogue", "main", "many", "own", "pages", "training"]
