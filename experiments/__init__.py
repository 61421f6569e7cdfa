"""Studies that are not in the paper. They run from a clone and are not in the wheel."""

from canet.paper import Experiment
from experiments.backbones import Backbones
from experiments.diagnosis import Diagnoses
from experiments.interventions import Interventions
from experiments.protocols import Protocols

EXPERIMENTS: dict[str, type[Experiment]] = {
    experiment.name: experiment for experiment in (Protocols, Backbones, Diagnoses, Interventions)
}

__all__ = ["EXPERIMENTS"]
