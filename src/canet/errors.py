"""Exceptions and warnings for problems that the user can fix."""

import operator
import re
import sys
import warnings
from collections.abc import Iterable
from difflib import get_close_matches
from itertools import islice
from typing import Any

MAX_LISTED = 5  # number of names that a message lists
MAX_NAME_LENGTH = 60  # characters of an unknown name that a message shows
MIN_SIMILARITY = 0.65
"""Smallest similarity of a suggested name; one wrong letter of three gives 0.67."""
CONTROL_CHARACTERS = re.compile(
    r"[\x00-\x1f\x7f-\x9f\xad\u061c\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\U000e0000-\U000e007f]"
)
"""Characters that control a terminal, break lines, change their direction or have no width."""
OTHER_NAMES = {
    "lr": "learning_rate",
    "seed": "random_state",
    "gpu": "cuda",
    "auc": "roc_auc",
    "auroc": "roc_auc",
    "f1": "macro_f1",
    "ap": "average_precision",
    "pr_auc": "average_precision",
    "auprc": "average_precision",
}
"""Names that other packages use → names of this package."""


class CanetError(Exception):
    """A problem that the user can fix: its message states the cause and the fix in one line.

    The command line prints the message and exits with code 2; `--debug` adds the traceback.
    """

    def __str__(self) -> str:
        return printable(super().__str__())


class InputError(CanetError, ValueError):
    """Invalid input data or an invalid name: what is wrong, where, and how to fix it.

    It is also a `ValueError`, as users of Python and scikit-learn expect for invalid input.
    """


class ChecksumError(CanetError):
    """A file has another checksum than when it was written, or is incomplete."""


class MissingFileError(CanetError):
    """A file or a folder does not exist."""


class VersionError(CanetError):
    """A file was written by another version of canet and this version cannot read it."""


class InputWarning(UserWarning):
    """The input is valid, but may not mean what the user expects."""


def warn_user(text: str) -> None:
    """Warn at the line of the user's code that called this package."""
    level, frame = 2, sys._getframe(1)
    while frame.f_back and frame.f_globals.get("__name__", "").split(".")[0] == "canet":
        level, frame = level + 1, frame.f_back
    warnings.warn(printable(text), InputWarning, stacklevel=level)


def unknown_name(kind: str, name: object, valid: Iterable[str]) -> InputError:
    """Return an error for a `name` that is not `valid`; it suggests the most similar valid name."""
    names, shown = list(valid), " ".join(str(name).split())[:MAX_NAME_LENGTH]
    lower = shown.lower().replace("-", "_")
    nearest = get_close_matches(lower, names, n=1, cutoff=MIN_SIMILARITY)
    if (other := OTHER_NAMES.get(lower)) in names:
        nearest = [str(other)]
    hint = f"did you mean '{nearest[0]}'? " if nearest else ""
    return InputError(f"unknown {kind} '{shown}': {hint}valid names are {', '.join(names)}")


def check_name(kind: str, name: object, valid: Iterable[str]) -> str:
    """Return the valid name that equals `name`, except for capital letters, or raise an error."""
    names = list(valid)
    found = name if name in names else str(name).lower()
    if found not in names:
        raise unknown_name(kind, name, names)
    return str(found)


def check_integer(name: str, value: Any, low: int, high: int | None = None) -> int:
    """Return an integer from `low` to `high` as one of Python, or raise an error with its name."""
    try:
        number = low - 1 if isinstance(value, bool) else operator.index(value)
    except TypeError:
        number = low - 1
    if number < low or (high is not None and number > high):
        limits = f"of at least {low:,}" if high is None else f"from {low:,} to {high:,}"
        raise InputError(f"{name} is {repr(value)[:60]}: pass an integer {limits}")
    return number


def listed(items: Iterable[Any], count: int | None = None) -> str:
    """Return the first items as text and the number of the others: `a, b, c, d, e and 3 more`.

    With their `count`, only the first items of a generator are generated.
    """
    texts = [str(item) for item in (items if count is None else islice(items, MAX_LISTED))]
    more = (len(texts) if count is None else count) - MAX_LISTED
    return ", ".join(texts[:MAX_LISTED]) + (f" and {more:,} more" if more > 0 else "")


def printable(text: object, keep_lines: bool = False) -> str:
    """Return a text with spaces in place of control characters, which user data may contain.

    Whatever is shown passes this function; a text of several lines with `keep_lines`.
    """
    lines = str(text).split("\n") if keep_lines else [str(text)]
    return "\n".join(CONTROL_CHARACTERS.sub(" ", line) for line in lines)


def first_line(error: BaseException) -> str:
    """Return the first line of an error of another package, cut to 120 characters."""
    return (str(error).splitlines() or [type(error).__name__])[0][:120]
