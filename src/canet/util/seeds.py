"""Validation of random seeds."""

from typing import SupportsIndex

from canet.errors import check_integer

MAX_SEED = 2**32 - 1


def checked_seed(seed: SupportsIndex, name: str = "seed") -> int:
    """Return a seed as a Python integer; numpy and torch integers are accepted."""
    return check_integer(name, seed, 0, MAX_SEED)
