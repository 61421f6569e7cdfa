"""Portfolios: fixed lists of candidates, the most useful first, which a time limit cuts short."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from canet.methods import Settings, get_method
from canet.settings import override


@dataclass(frozen=True)
class Candidate:
    """A method and a backbone with settings other than the method's defaults."""

    method: str
    backbone: str
    settings: Mapping[str, Any] = field(default_factory=dict)

    @property
    def name(self) -> str:
        """Such as `erm-sage norm=layer`."""
        values = (f"{name}={value}" for name, value in self.settings.items())
        return " ".join([f"{self.method}-{self.backbone}", *values])

    def all_settings(self, changes: Mapping[str, Any]) -> Settings:
        """All settings, with `changes` of all candidates where this one says nothing else."""
        default = get_method(self.method).settings_type()
        return override(default, {**changes, **self.settings})
