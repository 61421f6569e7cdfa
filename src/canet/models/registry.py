"""All methods and learners by name, and the learner that trains with a method and a backbone."""

from canet.errors import InputError, check_name
from canet.methods import BACKBONES, METHODS, Backbone, Method, get_backbone
from canet.methods.base import ModelSettings
from canet.models.base import Learner
from canet.models.network import Network
from canet.models.options import Options

LEARNERS: dict[str, type[Learner]] = {}
"""Learners that are not a network with a method; `canet.models` and other packages add them."""
MethodClass = type[Method] | type[Learner]


def all_methods() -> dict[str, MethodClass]:
    """Return all learners and methods by name."""
    return {**LEARNERS, **METHODS}


def describe_method(method: str | MethodClass) -> MethodClass:
    """Return the class with name, label and settings of a method or learner."""
    if isinstance(method, type) and issubclass(method, Method | Learner):
        return method
    if not isinstance(method, str):
        raise InputError(
            f"method is {str(method)[:60]}: pass a name, such as 'linear' or 'trees', or write a "
            "learner (https://canet-dev.github.io/canet/research/add-a-learner.html)"
        )
    if method.lower() in BACKBONES:
        raise InputError(f"'{method}' is a backbone, not a method: pass it as backbone")
    known = all_methods()
    return known[check_name("method", method, known)]


def is_network(method: str | MethodClass) -> bool:
    """Whether a method trains a network, with a backbone and in epochs."""
    return issubclass(describe_method(method), Method)


def get_backbone_name(method: str | MethodClass, backbone: str | Backbone | None = None) -> str:
    """Return the name of a backbone, by default gcn; without a backbone, the name of the method."""
    kind = describe_method(method)
    if is_network(kind):
        return get_backbone(backbone or "gcn").name
    if backbone not in (None, kind.name):
        raise InputError(
            f"method '{kind.name}' takes no backbone: leave out backbone (--backbone), or choose "
            "another method"
        )
    return kind.name


def get_learner(
    method: str | MethodClass,
    backbone: str | Backbone | None = None,
    settings: ModelSettings | None = None,
    options: Options | None = None,
) -> Learner:
    """Return the learner of a method and a backbone, by default gcn."""
    kind = describe_method(method)
    name = get_backbone_name(method, backbone)
    if issubclass(kind, Learner):
        return kind(settings, options)
    return Network(kind, backbone or name, settings, options)
