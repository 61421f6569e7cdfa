"""Seeds: whole numbers that torch, numpy and run folders accept."""

from __future__ import annotations

import operator
from typing import SupportsIndex

from canet.errors import InputError

LARGEST_SEED = 2**32 - 1


def checked_seed(seed: SupportsIndex, name: str = "seed") -> int:
    """A seed as a Python integer; integers of numpy and torch are accepted.

    Args:
        seed: What was given.
        name: What a message calls it.

    Raises:
        InputError: Not a whole number from 0 to the largest seed.
    """
    try:
        number = None if isinstance(seed, bool) else operator.index(seed)
    except TypeError:
        number = None
    if number is not None and 0 <= number <= LARGEST_SEED:
        return number
    cause = f"of type '{type(seed).__name__}'" if number is None else "out of bounds"
    raise InputError(f"{name} is {cause}: give a whole number from 0 to {LARGEST_SEED:,}")
