"""Selection rules: which epoch of a finished run its result is taken from."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import ClassVar

import numpy as np

from canet.errors import CanetError

History = Mapping[str, Sequence[float]]


class BestValidation:
    """The epoch with the best validation score, the first of equals: the paper's rule."""

    name: ClassVar[str] = "best validation"

    @staticmethod
    def epoch(history: History) -> int:
        return int(np.nanargmax(history["valid"]))


class LastEpoch:
    """The last epoch, with no selection at all."""

    name: ClassVar[str] = "last epoch"

    @staticmethod
    def epoch(history: History) -> int:
        return len(history["valid"]) - 1


class Oracle:
    """The epoch with the best mean OOD score: it looks at test data, so it is no result."""

    name: ClassVar[str] = "oracle (looks at test data)"

    @staticmethod
    def epoch(history: History) -> int:
        curves = [curve for name, curve in history.items() if name.startswith("ood/")]
        if not curves:
            raise CanetError(
                f"selection '{Oracle.name}' needs OOD scores of every epoch: train with OOD curves"
            )
        mean = np.mean(curves, axis=0)
        if np.isnan(mean).all():
            raise CanetError(
                f"selection '{Oracle.name}' found no epoch where every OOD set has a score: "
                f"check that each holds every class"
            )
        return int(np.nanargmax(mean))


SELECTION_RULES = (BestValidation, LastEpoch, Oracle)
