"""Graph neural networks under distribution shift: CaNet, its competitors and their benchmark."""

import warnings
from importlib import import_module
from importlib.metadata import version
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from canet.data import ShiftTask, load_task
    from canet.methods import BACKBONES, METHODS
    from canet.presets import preset
    from canet.training import Trainer

__version__ = version("canet")
__all__ = ["BACKBONES", "METHODS", "ShiftTask", "Trainer", "load_task", "preset"]

# torch says so of every sparse CSR tensor; the products used here are tested against dense ones.
warnings.filterwarnings("ignore", message="Sparse CSR tensor support is in beta state")
warnings.filterwarnings("ignore", message="Sparse invariant checks are implicitly disabled")

_HOMES = {
    "BACKBONES": "canet.methods",
    "METHODS": "canet.methods",
    "ShiftTask": "canet.data",
    "Trainer": "canet.training",
    "load_task": "canet.data",
    "preset": "canet.presets",
}


def __getattr__(name: str) -> Any:
    """What people use, imported when it is asked for: torch takes seconds."""
    if name not in _HOMES:
        raise AttributeError(f"module 'canet' has no attribute '{name}'")
    return getattr(import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
