"""The experiments of the paper: jobs, tables and figures of each."""

from canet.paper.ablation import Ablation
from canet.paper.elliptic import Elliptic
from canet.paper.experiment import Experiment
from canet.paper.finished_runs import FinishedRuns
from canet.paper.published_tables import Table1, Table2
from canet.paper.scope import Scope
from canet.paper.sensitivity import Sensitivity
from canet.paper.weights import Weights

EXPERIMENTS: dict[str, type[Experiment]] = {
    experiment.name: experiment
    for experiment in (Table1, Table2, Elliptic, Ablation, Sensitivity, Weights)
}

__all__ = ["EXPERIMENTS", "Experiment", "FinishedRuns", "Scope"]
