"""The experiments of the paper, and four of ours: each knows its jobs, tables and figures."""

from canet.paper.ablation import Ablation
from canet.paper.backbones import Backbones
from canet.paper.comparison import Table1, Table2
from canet.paper.diagnosis import Diagnoses
from canet.paper.elliptic import Elliptic
from canet.paper.experiment import Experiment
from canet.paper.finished import Finished
from canet.paper.interventions import Interventions
from canet.paper.protocols import Protocols
from canet.paper.scope import Scope
from canet.paper.sensitivity import Sensitivity
from canet.paper.weights import Weights

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
        Diagnoses,
        Interventions,
    )
}

__all__ = ["EXPERIMENTS", "Experiment", "Finished", "Scope"]
