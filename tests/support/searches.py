"""Searches of CaNet that tests put in place of the package's."""

from collections.abc import Callable
from copy import deepcopy
from typing import Any

import pytest

from canet import defaults

SearchCaNet = Callable[..., None]


@pytest.fixture
def search_canet(monkeypatch: pytest.MonkeyPatch) -> SearchCaNet:
    """Takes CaNet's searches out of the package's; called, puts one back with what it found."""
    content = deepcopy(defaults._searched())
    tasks: dict[str, dict[str, dict[str, Any]]] = content["tasks"]
    for backbones in tasks.values():
        for methods in backbones.values():
            methods.pop("canet", None)
    monkeypatch.setattr(defaults, "_searched", lambda: content)

    def search(task: str, backbone: str = "gcn", **settings: object) -> None:
        tasks[task][backbone]["canet"] = {"settings": settings, "features": "original"}

    return search
