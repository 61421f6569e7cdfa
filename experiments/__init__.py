"""Studies that are not in the paper. They run from a clone and are not in the wheel."""

from canet.paper import Experiment
from experiments.backbones import Backbones
from experiments.interventions import Interventions
from experiments.protocols import Protocols
from experiments.reliance import SpuriousReliance

EXPERIMENTS: dict[str, type[Experiment]] = {
    experiment.name: experiment
    for experiment in (Protocols, Backbones, SpuriousReliance, Interventions)
}

__all__ = ["EXPERIMENTS"]
