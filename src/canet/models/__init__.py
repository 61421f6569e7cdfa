"""Models that learn from a task and read a graph: networks, linear models, trees, and `auto`."""

from canet.models.auto import Auto
from canet.models.average import Average
from canet.models.base import Fitted, Learner, Training, restore
from canet.models.linear import FittedLinear, Linear
from canet.models.network import FittedNetwork, Network
from canet.models.options import Options
from canet.models.registry import (
    LEARNERS,
    MethodClass,
    all_methods,
    describe_method,
    get_backbone_name,
    get_learner,
    is_network,
)
from canet.models.trainer import Run, Trainer
from canet.models.trees import FittedTrees, Trees
from canet.util.plugins import add_plugins

LEARNERS.update({one.name: one for one in (Auto, Linear, Trees)})
add_plugins("canet.learners", LEARNERS, Learner)

__all__ = [
    "LEARNERS",
    "Auto",
    "Average",
    "Fitted",
    "FittedLinear",
    "FittedNetwork",
    "FittedTrees",
    "Learner",
    "Linear",
    "MethodClass",
    "Network",
    "Options",
    "Run",
    "Trainer",
    "Training",
    "Trees",
    "all_methods",
    "describe_method",
    "get_backbone_name",
    "get_learner",
    "is_network",
    "restore",
]
