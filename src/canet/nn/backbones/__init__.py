"""Backbones: one file each, and their registry."""

from pkgutil import resolve_name

from canet.errors import check_name
from canet.nn.backbones.backbone import Backbone, ResidualModel

BACKBONES: dict[str, Backbone] = {
    backbone.name: backbone
    for backbone in map(
        resolve_name,
        (
            "canet.nn.backbones.gcn:BACKBONE",
            "canet.nn.backbones.gat:BACKBONE",
            "canet.nn.backbones.sage:BACKBONE",
            "canet.nn.backbones.gin:BACKBONE",
            "canet.nn.backbones.transformer:BACKBONE",
            "canet.nn.backbones.mlp:BACKBONE",
            "canet.nn.backbones.decoupled:BACKBONE",
        ),
    )
}


def get_backbone(backbone: str | Backbone) -> Backbone:
    """Return the backbone with a given name. A :class:`Backbone` is returned unchanged."""
    if isinstance(backbone, Backbone):
        return backbone
    return BACKBONES[check_name("backbone", backbone, BACKBONES)]


__all__ = ["BACKBONES", "Backbone", "ResidualModel", "get_backbone"]
