"""Text where fewer characters are known than we write, or where nobody reads."""

from __future__ import annotations

import codecs
import io
import os
import sys

SIGNS = "± +-, × x, · *, – -, — -, − -, … ..., → ->, ≥ >=, ≤ <=, ≈ ~, ∞ inf, √ sqrt, ‖ ||, ’ '"
LETTERS = "α alpha, β beta, η eta, λ lambda, μ mu, π pi, τ tau"
PLAIN = dict(pair.split() for pair in f"{SIGNS}, {LETTERS}".split(", "))
"""What stands for a character that cannot be written; others become their number, as `\\xe9`."""


def open_closed_streams() -> None:
    """Let a command run without standard streams, as some daemons start it: nobody reads them.

    Its processes get them too, and no file of ours comes to lie where a library writes errors.
    """
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            stream = open(os.devnull, mode)  # noqa: SIM115 - as long as the process
            os.set_inheritable(stream.fileno(), True)
            setattr(sys, name, stream)


def write_everywhere() -> None:
    """Let standard output and error write every text: an ASCII terminal ends no command."""
    codecs.register_error("plain", _plainly)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="plain")


def _plainly(error: UnicodeError) -> tuple[str, int]:
    assert isinstance(error, UnicodeEncodeError)
    text = error.object[error.start : error.end]
    return "".join(PLAIN.get(char) or _number(char) for char in text), error.end


def _number(char: str) -> str:
    return char.encode("ascii", "backslashreplace").decode()
