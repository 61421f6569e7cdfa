"""A colour in figures and reports."""

from typing import NamedTuple


class Colour(NamedTuple):
    """Hexadecimal codes for a light and a dark background, suitable for colour-blind readers."""

    light: str
    dark: str
