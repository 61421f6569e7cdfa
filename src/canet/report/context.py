"""What a report knows besides the runs: published scores, defaults, searches."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from canet.report.score import Published
from canet.store import RunConfig


@dataclass(frozen=True)
class ReportContext:
    """Knowledge about runs that is not in their folders; empty by default."""

    published: Callable[[RunConfig, str], Published | None] = lambda config, split: None
    """The published score of such a run on a split."""
    default_settings: Callable[[RunConfig], Mapping[str, Any] | None] = lambda config: None
    """The default settings of such a run."""
    searched: Callable[[RunConfig], bool] = lambda config: False
    """Whether a run has the settings that a search found."""


NO_CONTEXT = ReportContext()
