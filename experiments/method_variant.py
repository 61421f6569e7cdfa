"""A method in a comparison of a study."""

from __future__ import annotations

from typing import Any, NamedTuple

from canet.data import CENTRED_PER_GRAPH, WITHOUT_SPURIOUS


class MethodVariant(NamedTuple):
    """A method with given features and changed settings."""

    label: str
    method: str
    features: str | None = None
    changes: dict[str, Any] = {}  # noqa: RUF012 (a named tuple's default, never written to)


ERM_WITHOUT_SPURIOUS = MethodVariant("ERM, without the spurious columns", "erm", WITHOUT_SPURIOUS)
ERM_CENTRED_PER_GRAPH = MethodVariant("ERM, centred per graph", "erm", CENTRED_PER_GRAPH)
