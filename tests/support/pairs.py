"""Which methods are tested with which backbones."""

import pytest

from canet.methods import BACKBONES, METHODS


def mark(name: str, backbone: str) -> pytest.MarkDecorator | tuple[()]:
    """Slow, unless the backbone is gcn or gat, or the method is erm or canet."""
    return () if backbone in ("gcn", "gat") or name in ("erm", "canet") else pytest.mark.slow


PAIRS = [
    pytest.param(name, backbone, marks=mark(name, backbone))
    for name in METHODS
    for backbone in BACKBONES
]
every_pair = pytest.mark.parametrize(("name", "backbone"), PAIRS)
