"""The colour that a method or backbone has in every figure and page."""

from __future__ import annotations

from typing import NamedTuple


class Colour(NamedTuple):
    """Hexadecimal codes for a light and a dark background, safe for colour-blind readers."""

    light: str
    dark: str


BLIND = Colour("#5f6b70", "#7d8b92")
"""A model trained without the spurious columns."""
CENTRED = Colour("#a9b4b8", "#4d585d")
"""A model whose features are centred per graph."""
