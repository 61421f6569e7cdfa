"""Validation of random seeds."""

import operator
from typing import SupportsIndex

from canet.errors import InputError

MAX_SEED = 2**32 - 1


def checked_seed(seed: SupportsIndex, name: str = "seed") -> int:
    """Return a seed as a Python integer; numpy and torch integers are accepted."""
    try:
        number = -1 if isinstance(seed, bool) else operator.index(seed)
    except TypeError:
        number = -1
    if not 0 <= number <= MAX_SEED:
        raise InputError(f"{name} must be an integer from 0 to {MAX_SEED:,}")
    return number
