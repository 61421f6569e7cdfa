"""Methods: one file each, what is minimised."""

from canet.errors import unknown_name
from canet.methods.base import Batch, Method, Settings, TrainingView
from canet.methods.canet import CaNetMethod
from canet.methods.coral import CORAL
from canet.methods.dann import DANN
from canet.methods.eerm import EERM
from canet.methods.erm import ERM
from canet.methods.group_dro import GroupDRO
from canet.methods.irm import IRM
from canet.methods.mixup import Mixup
from canet.methods.sr_gnn import SRGNN
from canet.methods.vrex import VREx
from canet.nn import BACKBONES

METHODS: dict[str, type[Method]] = {
    cls.name: cls
    for cls in (
        ERM,
        IRM,
        CORAL,
        DANN,
        GroupDRO,
        Mixup,
        SRGNN,
        EERM,
        VREx,
        CaNetMethod,
    )
}


def get_method(name: str) -> type[Method]:
    """The method class of a name, or an error that lists the names."""
    if name not in METHODS:
        raise unknown_name("method", name, METHODS)
    return METHODS[name]


def check_backbone(name: str) -> None:
    if name not in BACKBONES:
        raise unknown_name("backbone", name, BACKBONES)


__all__ = [
    "BACKBONES",
    "METHODS",
    "Batch",
    "Method",
    "Settings",
    "TrainingView",
    "check_backbone",
    "get_method",
]
