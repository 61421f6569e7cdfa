"""Training methods: one file each."""

from pkgutil import resolve_name

from canet.errors import InputError, check_name
from canet.methods.base import Batch, Method, Settings, TrainingView
from canet.methods.interventions import InterventionSettings
from canet.nn import BACKBONES, Backbone, get_backbone
from canet.util.plugins import add_plugins

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
add_plugins("canet.methods", METHODS, Method)


def get_method(method: str | type[Method]) -> type[Method]:
    """Return the class of a method, given its name. A class is returned unchanged."""
    if isinstance(method, type) and issubclass(method, Method):
        return method
    if str(method).lower() in BACKBONES:
        raise InputError(f"'{method}' is a backbone, not a method: pass it as backbone")
    return METHODS[check_name("method", method, METHODS)]


__all__ = [
    "BACKBONES",
    "METHODS",
    "Backbone",
    "Batch",
    "InterventionSettings",
    "Method",
    "Settings",
    "TrainingView",
    "get_backbone",
    "get_method",
]
