"""What kind of thing something read from JSON is; a file may hold anything."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

ROUNDING = 1e-6
"""That a percentage may lie beyond 0 or 100."""


def is_text(value: Any) -> bool:
    return isinstance(value, str)


def is_number(value: Any) -> bool:
    """Whether it is a number, NaN included; true and false are none."""
    return type(value) in (int, float)


def is_count(value: Any, below: float) -> bool:
    """Whether it is a whole number from 0 to below a bound."""
    return type(value) is int and 0 <= value < below


def are(values: Any, is_sound: Callable[[Any], bool]) -> bool:
    """Whether it is a list, and each of its values sound."""
    return isinstance(values, list) and all(map(is_sound, values))


def is_score(value: Any) -> bool:
    """Whether something read from a file can be a score: a percentage, or NaN if there is none."""
    if type(value) not in (int, float):
        return False
    return value != value or -ROUNDING <= value <= 100 + ROUNDING
