"""A method in a comparison, as our studies vary it."""

from __future__ import annotations

from typing import Any, NamedTuple

from canet.data import CENTRED_PER_GRAPH, WITHOUT_SPURIOUS


class Contender(NamedTuple):
    """A method in one form: with other features, or with changed settings."""

    label: str
    method: str
    features: str | None = None
    changes: dict[str, Any] = {}  # noqa: RUF012 (a named tuple's default, never written to)


ERM_BLIND = Contender("ERM, blind", "erm", WITHOUT_SPURIOUS)
ERM_CENTRED = Contender("ERM, centred", "erm", CENTRED_PER_GRAPH)
