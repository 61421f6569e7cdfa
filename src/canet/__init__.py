"""Graph neural networks that keep working after the world has shifted."""

from importlib.metadata import version

__version__ = version("canet")
