"""The experiments of the paper, and two of ours: each knows its jobs, tables and figures."""

from canet.experiments.paper.ablation import Ablation
from canet.experiments.paper.backbones import Backbones
from canet.experiments.paper.comparison import Table1, Table2
from canet.experiments.paper.elliptic import Elliptic
from canet.experiments.paper.experiment import Experiment
from canet.experiments.paper.finished import Finished
from canet.experiments.paper.protocols import Protocols
from canet.experiments.paper.scope import Scope
from canet.experiments.paper.sensitivity import Sensitivity
from canet.experiments.paper.weights import Weights

EXPERIMENTS: dict[str, type[Experiment]] = {
    experiment.name: experiment
    for experiment in (
        Table1,
        Table2,
        Elliptic,
        Ablation,
        Sensitivity,
        Weights,
        Protocols,
        Backbones,
    )
}

__all__ = ["EXPERIMENTS", "Experiment", "Finished", "Scope"]
