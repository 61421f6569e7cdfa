"""What tables and figures call methods and backbones."""

from __future__ import annotations

from canet.methods import BACKBONES, EVERY_METHOD

SEARCHED_LABEL = "CaNet, searched"
SEARCHED_NOTE = (
    "CaNet has its published settings; CaNet, searched those of a search like its competitors'."
)


def method_label(name: str) -> str:
    """A method as tables call it; one that is not in the package has its own name."""
    return EVERY_METHOD[name].label if name in EVERY_METHOD else name


def backbone_label(name: str) -> str:
    """A backbone as tables call it, likewise."""
    return BACKBONES[name].label if name in BACKBONES else name
