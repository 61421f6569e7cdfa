"""Methods: one file each, what is minimised."""

from pkgutil import resolve_name

from canet.errors import check_name
from canet.methods.auto import Auto, AutoSettings
from canet.methods.base import Batch, Method, Settings, TrainingView
from canet.methods.interventions import InterventionSettings
from canet.nn import BACKBONES

METHODS: dict[str, type[Method]] = {
    cls.name: cls
    for cls in map(
        resolve_name,
        (
            "canet.methods.erm:ERM",
            "canet.methods.irm:IRM",
            "canet.methods.coral:CORAL",
            "canet.methods.dann:DANN",
            "canet.methods.group_dro:GroupDRO",
            "canet.methods.mixup:Mixup",
            "canet.methods.sr_gnn:SRGNN",
            "canet.methods.eerm:EERM",
            "canet.methods.vrex:VREx",
            "canet.methods.canet:CaNetMethod",
        ),
    )
}


EVERY_METHOD: dict[str, type[Method] | type[Auto]] = {Auto.name: Auto, **METHODS}
"""Also `auto`, which is trained by `canet.choice.AutoTrainer`."""


def get_method(name: str) -> type[Method]:
    """The method class of a name, or an error that lists the names."""
    check_name("method", name, METHODS)
    return METHODS[name]


def describe_method(name: str) -> type[Method] | type[Auto]:
    """What a method, or `auto`, is called and set by."""
    check_name("method", name, EVERY_METHOD)
    return EVERY_METHOD[name]


def check_backbone(name: str) -> None:
    check_name("backbone", name, BACKBONES)


__all__ = [
    "BACKBONES",
    "EVERY_METHOD",
    "METHODS",
    "Auto",
    "AutoSettings",
    "Batch",
    "InterventionSettings",
    "Method",
    "Settings",
    "TrainingView",
    "check_backbone",
    "describe_method",
    "get_method",
]
