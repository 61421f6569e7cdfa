"""The exceptions for everything a user can cause."""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches
from itertools import islice
from typing import Any

MOST_LISTED = 5
"""Names that a message lists."""
LONGEST_NAME = 60
"""Letters of an unknown name that a message shows."""
NEAR = 0.65
"""How alike a name is to what was meant, at least: one wrong letter in three is 0.67."""


class CanetError(Exception):
    """A mistake the user can mend: one line with the cause and the mend.

    The command line prints it without a traceback and exits with code 2.
    """


class InputError(CanetError, ValueError):
    """Data that cannot be used as it is: names the cause, the place and the mend.

    A `ValueError` too, as Python and scikit-learn users expect of bad input.
    """


class InputWarning(UserWarning):
    """Something in the input that was read otherwise than its owner may expect."""


def unknown_name(kind: str, name: Any, valid: Iterable[str]) -> CanetError:
    """An error for a misspelt `name`, or what is none, with the `valid` ones, the nearest first."""
    names, shown = list(valid), " ".join(str(name).split())[:LONGEST_NAME]
    nearest = get_close_matches(shown, names, n=1, cutoff=NEAR)
    hint = f"did you mean '{nearest[0]}'? " if nearest else ""
    return CanetError(f"unknown {kind} '{shown}': {hint}valid are {', '.join(names)}")


def check_name(kind: str, name: Any, valid: Iterable[str]) -> None:
    """Refuse what is none of the `valid` names, whatever it is."""
    names = list(valid)
    if name not in names:
        raise unknown_name(kind, name, names)


def listed(items: Iterable[Any], count: int | None = None) -> str:
    """The first of some items and how many more there are; `count` where they are too many."""
    texts = [str(item) for item in (items if count is None else islice(items, MOST_LISTED))]
    more = (len(texts) if count is None else count) - MOST_LISTED
    return ", ".join(texts[:MOST_LISTED]) + (f" and {more:,} more" if more > 0 else "")


def first_line(error: Exception) -> str:
    """What an error of another package says, in a line that is not too long."""
    return (str(error).splitlines() or [type(error).__name__])[0][:120]
