"""Colours of methods and backbones in figures and reports."""

from __future__ import annotations

from typing import NamedTuple


class Colour(NamedTuple):
    """Hexadecimal codes for a light and a dark background, suitable for colour-blind readers."""

    light: str
    dark: str


WITHOUT_SPURIOUS_COLOUR = Colour("#5f6b70", "#7d8b92")
"""Colour of models trained without the spurious columns."""
CENTRED_PER_GRAPH_COLOUR = Colour("#a9b4b8", "#4d585d")
"""Colour of models whose features are centred per graph."""
