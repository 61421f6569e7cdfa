"""Selection rules: the epoch of a finished run whose scores are reported."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import ClassVar

import numpy as np

from canet.errors import CanetError
from canet.models.network import SELECTION

History = Mapping[str, Sequence[float]]


class BestValidation:
    """The first epoch with the best validation score. This is the rule of the paper."""

    name: ClassVar[str] = SELECTION

    @staticmethod
    def epoch(history: History) -> int:
        return int(np.nanargmax(history["valid"]))


class LastEpoch:
    """The last epoch, without selection."""

    name: ClassVar[str] = "last epoch"

    @staticmethod
    def epoch(history: History) -> int:
        return len(history["valid"]) - 1


class Oracle:
    """The epoch with the best mean OOD score. It uses test data, so it is not a valid result."""

    name: ClassVar[str] = "oracle (looks at test data)"

    @staticmethod
    def epoch(history: History) -> int:
        curves = [curve for name, curve in history.items() if name.startswith("ood/")]
        if not curves:
            raise CanetError(
                f"selection '{Oracle.name}' requires OOD scores of every epoch: train with "
                "ood_curves=True (--ood-curves)"
            )
        mean = np.mean(curves, axis=0)
        if np.isnan(mean).all():
            raise CanetError(
                f"selection '{Oracle.name}' found no epoch with a score for every OOD set: check "
                "that every OOD set contains all classes"
            )
        return int(np.nanargmax(mean))


SELECTION_RULES = (BestValidation, LastEpoch, Oracle)
