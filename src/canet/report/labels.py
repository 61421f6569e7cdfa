"""Labels of methods and backbones in tables and figures."""

from canet.methods import BACKBONES
from canet.models import all_methods

SEARCHED_LABEL = "CaNet, searched"
SEARCHED_NOTE = (
    "CaNet uses its published settings; CaNet, searched uses settings that were searched in the "
    "same way as those of the other methods."
)


def method_label(name: str) -> str:
    """Label of a method; its name if the package does not know it."""
    return all_methods()[name].label if name in all_methods() else name


def backbone_label(name: str) -> str:
    """Label of a backbone; its name if the package does not know it."""
    return BACKBONES[name].label if name in BACKBONES else name
