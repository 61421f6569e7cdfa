"""Backbones: one file each, and their registry."""

from pkgutil import resolve_name

from canet.errors import check_name
from canet.nn.backbones.backbone import Backbone, ResidualModel

NAMES = ("gcn", "gat", "sage", "gin", "transformer", "mlp", "decoupled")
BACKBONES: dict[str, Backbone] = {
    name: resolve_name(f"canet.nn.backbones.{name}:BACKBONE") for name in NAMES
}


def get_backbone(backbone: str | Backbone) -> Backbone:
    """Return the backbone with a given name. A :class:`Backbone` is returned unchanged."""
    if isinstance(backbone, Backbone):
        return backbone
    return BACKBONES[check_name("backbone", backbone, BACKBONES)]


__all__ = ["BACKBONES", "Backbone", "ResidualModel", "get_backbone"]
