"""The version of this package, as pip knows it."""

from importlib.metadata import version

__version__ = version("canet")
