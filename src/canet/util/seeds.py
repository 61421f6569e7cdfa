"""Seeds: whole numbers that torch, numpy and run folders accept."""

from __future__ import annotations

import operator
from typing import SupportsIndex

from canet.errors import InputError

MAX_SEED = 2**32 - 1


def checked_seed(seed: SupportsIndex, name: str = "seed") -> int:
    """A seed as a Python integer; integers of numpy and torch are accepted.

    Anything but a whole number from 0 to the largest seed is an error, which calls it `name`.
    """
    try:
        number = -1 if isinstance(seed, bool) else operator.index(seed)
    except TypeError:
        number = -1
    if not 0 <= number <= MAX_SEED:
        raise InputError(f"{name} must be a whole number from 0 to {MAX_SEED:,}")
    return number
