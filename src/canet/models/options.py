"""How to train, apart from the settings of a method."""

import math
import time
from collections.abc import Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from canet.errors import CanetError, InputError
from canet.training import Callback
from canet.util.jobs import Pool


class OutOfTime(CanetError):
    """A training did not end before its deadline."""


@dataclass(frozen=True)
class Options:
    """How to train, in addition to the settings of a method.

    Args:
        device: `auto`, or a device of torch.
        class_weight: Weights $[C]$ of the classes in the supervised loss; None: equal weights.
        threads: CPU threads. They are part of a run: its last bits depend on them.
        callbacks: Functions that are called after each epoch with a dict of `model`, `seed`,
            `epoch`, `epochs`, `loss` and `valid`. On a GPU they are called every 20 epochs, for
            each of these.
        pool: Processes or machines that train, if several models are compared; None: this process.
        begin: Time (`time.time()`) from which a time limit counts; None: the start of the choice.
        deadline: Time after which a training raises `OutOfTime`.
        name: Name of the training for callbacks and logs; empty: that of its method and backbone.
        keep_on_interrupt: Whether Ctrl-C ends a comparison of models and keeps the finished ones.
    """

    device: str | torch.device = "auto"
    class_weight: Tensor | None = None
    threads: int = 1
    callbacks: Sequence[Callback] = ()
    pool: Pool | None = field(default=None, compare=False)
    begin: float | None = field(default=None, compare=False)
    deadline: float = field(default=math.inf, compare=False)
    name: str = field(default="", compare=False)
    keep_on_interrupt: bool = field(default=False, compare=False)

    def __post_init__(self) -> None:
        if self.threads < 1:
            raise InputError(f"threads is {self.threads}, but must be 1 or more")

    def check_time(self, needed: float = 0.0) -> None:
        """Raise `OutOfTime` if the deadline is over, or before `needed` more seconds are."""
        if time.time() + needed > self.deadline:
            raise OutOfTime("the time limit was reached")
