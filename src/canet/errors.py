"""The exceptions for what a user can fix."""

from __future__ import annotations

import re
from collections.abc import Iterable
from difflib import get_close_matches
from itertools import islice
from typing import Any

MAX_LISTED = 5
"""How many names a message lists."""
MAX_NAME_LENGTH = 60
"""Letters of an unknown name that a message shows."""
NEAR = 0.65
"""Least similarity of a suggested name: one wrong letter in three is 0.67."""
CONTROL = re.compile(r"[\x00-\x09\x0b-\x1f\x7f-\x9f\u200e\u200f\u202a-\u202e\u2066-\u2069]")
"""Characters that steer a terminal, except the end of a line."""


class CanetError(Exception):
    """Something the user can fix: one line with the cause and how to fix it.

    The command line prints the line and exits with code 2; `--debug` adds the traceback.
    """


class InputError(CanetError, ValueError):
    """Data that cannot be used as it is: what is wrong, where, and how to fix it.

    Also a `ValueError`, as Python and scikit-learn users expect for bad input.
    """


class ChecksumError(CanetError):
    """A file is not what was written: cut, changed or damaged."""


class MissingFileError(CanetError):
    """A file or a folder is not there."""


class VersionError(CanetError):
    """A file is what was written, but by another version of canet, which this one cannot read."""


class InputWarning(UserWarning):
    """Something in the input may not mean what the user expects."""


def unknown_name(kind: str, name: Any, valid: Iterable[str]) -> CanetError:
    """An error for a `name` that is not `valid`; it suggests the nearest valid one."""
    names, shown = list(valid), " ".join(str(name).split())[:MAX_NAME_LENGTH]
    nearest = get_close_matches(shown, names, n=1, cutoff=NEAR)
    hint = f"did you mean '{nearest[0]}'? " if nearest else ""
    return CanetError(f"unknown {kind} '{shown}': {hint}valid are {', '.join(names)}")


def check_name(kind: str, name: Any, valid: Iterable[str]) -> None:
    """Raise an error unless `name` is one of the `valid` names."""
    names = list(valid)
    if name not in names:
        raise unknown_name(kind, name, names)


def listed(items: Iterable[Any], count: int | None = None) -> str:
    """The first items and how many more there are; `count` is their number, where it is known."""
    texts = [str(item) for item in (items if count is None else islice(items, MAX_LISTED))]
    more = (len(texts) if count is None else count) - MAX_LISTED
    return ", ".join(texts[:MAX_LISTED]) + (f" and {more:,} more" if more > 0 else "")


def plain(text: object) -> str:
    """A text for the screen: what would steer the terminal is a space."""
    return CONTROL.sub(" ", str(text))


def first_line(error: BaseException) -> str:
    """The first line of another package's error, cut to 120 characters."""
    return (str(error).splitlines() or [type(error).__name__])[0][:120]
