"""The colour that a method or backbone has in every figure and page."""

from __future__ import annotations

from typing import NamedTuple


class Colour(NamedTuple):
    """Hexadecimal codes on a light and on a dark background, told apart by colour-blind readers."""

    light: str
    dark: str


BLIND = Colour("#5f6b70", "#7d8b92")
"""That of a model which never sees the misleading columns: no method of its own."""
CENTRED = Colour("#a9b4b8", "#4d585d")
"""That of a model for which every domain's columns are centred, likewise."""
