"""Text on terminals and in files that know fewer characters than we write."""

from __future__ import annotations

import codecs
import io
import sys

SIGNS = "± +-, × x, · *, – -, — -, − -, … ..., → ->, ≥ >=, ≤ <=, ≈ ~, ∞ inf, √ sqrt, ‖ ||, ’ '"
LETTERS = "α alpha, β beta, η eta, λ lambda, μ mu, π pi, τ tau"
PLAIN = dict(pair.split() for pair in f"{SIGNS}, {LETTERS}".split(", "))
"""What stands for a character that cannot be written; others become their number, as `\\xe9`."""


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
