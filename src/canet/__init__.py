"""Graph neural networks under distribution shift: CaNet, its competitors and their benchmark."""

import logging
import warnings
from importlib import import_module
from typing import TYPE_CHECKING, Any

from canet._version import __version__
from canet.errors import (
    CanetError,
    ChecksumError,
    InputError,
    InputWarning,
    MissingFileError,
    VersionError,
)

if TYPE_CHECKING:
    from canet.data import load_task
    from canet.data.graph_files import inspect_graph, read_graph
    from canet.data.graph_store import GraphStore, GraphStoreWriter
    from canet.data.task import ShiftTask
    from canet.defaults import task_settings
    from canet.diagnosis import diagnose
    from canet.estimator import NodeClassifier, OnGraph, load
    from canet.methods import BACKBONES, METHODS
    from canet.models import Trainer

__all__ = [
    "BACKBONES",
    "METHODS",
    "CanetError",
    "ChecksumError",
    "GraphStore",
    "GraphStoreWriter",
    "InputError",
    "InputWarning",
    "MissingFileError",
    "NodeClassifier",
    "OnGraph",
    "ShiftTask",
    "Trainer",
    "VersionError",
    "__version__",
    "diagnose",
    "inspect_graph",
    "load",
    "load_task",
    "read_graph",
    "task_settings",
]

# torch warns for every sparse CSR tensor; our sparse products are tested against dense ones.
warnings.filterwarnings("ignore", message="Sparse CSR tensor support is in beta state")
warnings.filterwarnings("ignore", message="`torch.jit.script` is")  # torch_geometric calls it
warnings.filterwarnings("ignore", message="Sparse invariant checks are implicitly disabled")

logging.getLogger("canet").addHandler(logging.NullHandler())

_HOMES = {
    "data": ("load_task",),
    "data.graph_files": ("inspect_graph", "read_graph"),
    "data.graph_store": ("GraphStore", "GraphStoreWriter"),
    "data.task": ("ShiftTask",),
    "defaults": ("task_settings",),
    "diagnosis": ("diagnose",),
    "estimator": ("NodeClassifier", "OnGraph", "load"),
    "methods": ("BACKBONES", "METHODS"),
    "models": ("Trainer",),
}
"""Module → its public names, which are imported on first use."""

_MODULES = ("methods", "models", "nn")


def __getattr__(name: str) -> Any:
    """Import a public name on first use: importing torch takes seconds."""
    if name in _MODULES:
        return import_module(f"canet.{name}")
    for home, names in _HOMES.items():
        if name in names:
            return getattr(import_module(f"canet.{home}"), name)
    raise AttributeError(f"module 'canet' has no attribute '{name}'")


def __dir__() -> list[str]:
    return sorted([*__all__, *_MODULES])
