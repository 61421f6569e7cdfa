"""The parts of a task on which models are compared: validation nodes, and simulated shifts."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from statistics import mean

import numpy as np
import torch
from scipy.special import softmax
from torch import Tensor
from torch.nn import functional as F

from canet.data.task import MAX_SCORED, ShiftTask, sample_nodes
from canet.models.base import Fitted
from canet.models.shifts import HELD_OUT, simulate_shifts
from canet.models.tabular import node_weights
from canet.store.result import Candidate
from canet.store.summary import OOD

TEMPERATURE = 0.2  # difference in likelihood for which a model has e times the weight of another
MIN_WEIGHT = 0.02
NUM_HELD_OUT = 2
MAX_MEMBERS = 8
VALID = "valid"
Logits = Mapping[str, Tensor]
"""Part → logits $[n, C]$ of its nodes, by a model that was trained without them."""


class Parts:
    """The validation nodes of a task, and parts of its training data that are held out.

    Args:
        task: The task.
        class_weight: Weights $[C]$ of the classes in the likelihood; None: equal weights.
        sampled: Whether models are compared on at most 10,000 nodes of each part.

    Attributes:
        tasks: Part → task to train on before its nodes are predicted: the given one for the
            validation nodes, else one without the held-out part.
        numbers: Part → its number, from 0.
    """

    def __init__(
        self, task: ShiftTask, class_weight: Tensor | None = None, sampled: bool = False
    ) -> None:
        self.class_weight = class_weight
        self.tasks: dict[str, ShiftTask] = {VALID: task}
        for name, one in simulate_shifts(task):
            sets = one.train, one.test_ood[HELD_OUT]
            if all(node_weights(one, nodes, class_weight).any() for nodes in sets):
                name += " (2)" * (name in self.tasks)  # an environment is named like a group
                self.tasks[name] = one
        if sampled:
            self.tasks = {part: _sampled(one) for part, one in self.tasks.items()}
        self.numbers = {part: i for i, part in enumerate(self.tasks)}

    def keep_hardest(self, logits: Logits) -> None:
        """Keep two of the held-out parts: those with the lowest likelihood, if it is known."""
        held_out = [part for part in list(self.tasks)[1:] if part in logits or not logits]
        if logits:
            held_out.sort(key=lambda part: self._likelihood(part, logits))
        kept = {VALID, *held_out[:NUM_HELD_OUT]}
        self.tasks = {part: task for part, task in self.tasks.items() if part in kept}

    def predict(self, part: str, fitted: Fitted) -> Tensor:
        """Return the logits $[n, C]$ that a model has for the nodes of a part."""
        logits, fitted.predicted = fitted.predicted or fitted.logits(self.tasks[part]), None
        return logits[_split(part)]

    def likelihood(self, logits: Logits) -> float:
        """Return the mean log-likelihood per node, over the parts; each part counts once."""
        return mean(self._likelihood(part, logits) for part in self.tasks)

    def _likelihood(self, part: str, logits: Logits) -> float:
        task, nodes = self.tasks[part], self.nodes(part)
        weight = node_weights(task, nodes, self.class_weight).double()
        weight = weight if weight.any() else torch.ones_like(weight)
        lost = F.cross_entropy(logits[part].double(), task.y[nodes], reduction="none")
        return -float(weight @ lost / weight.sum())

    def candidate(
        self, name: str, logits: Logits, weight: float = 0.0, seconds: float = 0.0, note: str = ""
    ) -> Candidate:
        """Return the scores of a model, for the table of all models."""
        scores = {
            part: float(task.scorer(logits[part], task.y[self.nodes(part)]))
            for part, task in self.tasks.items()
        }
        valid = scores.pop(VALID)
        return Candidate(name, valid, scores, self.likelihood(logits), weight, seconds, note)

    def largest_class(self) -> dict[str, Tensor]:
        """Return logits that give every node the largest class of the training nodes."""
        task = self.tasks[VALID]
        share = F.one_hot(task.y[task.train], task.num_classes).double().mean(dim=0)
        row = (1 + share).log()
        return {part: row.expand(self.nodes(part).numel(), -1) for part in self.tasks}

    def nodes(self, part: str) -> Tensor:
        """Return the nodes of a part."""
        return self.tasks[part].splits()[_split(part)]


def weights_of(likelihoods: Sequence[float]) -> list[float]:
    """Return weights in proportion to exp(likelihood / 0.2).

    Models with less than 2 % get no weight, and at most eight get one.
    """
    weights = softmax(np.array(likelihoods) / TEMPERATURE)
    last = np.sort(weights)[::-1][:MAX_MEMBERS][-1]
    weights[(weights < last) | (weights < MIN_WEIGHT)] = 0.0
    found: list[float] = (weights / weights.sum()).tolist()
    return found


def _sampled(task: ShiftTask) -> ShiftTask:
    """Return a task with at most 10,000 nodes in each split that is not for training."""
    valid, tests = sample_nodes(task.valid, MAX_SCORED), dict[str, Tensor]()
    if HELD_OUT in task.test_ood:
        tests = {HELD_OUT: sample_nodes(task.test_ood[HELD_OUT], MAX_SCORED)}
    none = valid[:0]
    return replace(task, valid=valid, test_id=none, test_ood=tests, left_out={}, checked=True)


def _split(part: str) -> str:
    return VALID if part == VALID else f"{OOD}{HELD_OUT}"
