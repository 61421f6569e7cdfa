"""Training methods: one file each."""

from pkgutil import resolve_name

from canet.errors import InputError, check_name
from canet.methods.base import Batch, Method, Settings, TrainingView
from canet.methods.interventions import InterventionSettings
from canet.methods.traits import Traits
from canet.nn import BACKBONES, Backbone, get_backbone
from canet.util.plugins import add_plugins

CLASSES = (
    *("erm:ERM", "irm:IRM", "coral:CORAL", "dann:DANN", "group_dro:GroupDRO", "mixup:Mixup"),
    *("sr_gnn:SRGNN", "eerm:EERM", "vrex:VREx", "canet:CaNetMethod"),
)
METHODS: dict[str, type[Method]] = {
    cls.name: cls for cls in (resolve_name(f"canet.methods.{path}") for path in CLASSES)
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
    "Traits",
    "get_backbone",
    "get_method",
]
