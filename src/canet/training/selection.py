"""The selection rule: the epoch of a finished run whose scores are reported."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import ClassVar

import numpy as np

History = Mapping[str, Sequence[float]]


class BestValidation:
    """The first epoch with the best validation score. This is the rule of the paper."""

    name: ClassVar[str] = "best validation"

    @staticmethod
    def epoch(history: History) -> int:
        return int(np.nanargmax(history["valid"]))
