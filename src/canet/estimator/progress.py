"""One progress bar for all stages of a fit."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from canet.util.progress import Display, current_display

STAGES = {"reading": 0.05, "checking": 0.05, "training": 0.8, "scoring": 0.09, "saving": 0.01}
"""Stages of a fit and their approximate share of the time on a large graph."""


class FitDisplay(Display):
    """Progress over all stages; `update` shows that of the present stage."""

    def __init__(self, stage: str, quiet: bool) -> None:
        super().__init__(1, quiet=quiet)
        self.stage(stage)

    def stage(self, name: str) -> None:
        """Show that the next one of `STAGES` begins."""
        self._stage, self._first = name, None
        self.update(0)

    def update(
        self, done: int, running: int = 0, failed: int = 0, text: str = "", part: float = 0.0
    ) -> None:
        before = sum(list(STAGES.values())[: list(STAGES).index(self._stage)])
        self._show(before + STAGES[self._stage] * (done + part), self._stage, text)

    def training_callback(
        self, label: str, done: int = 0, running: int = 0, failed: int = 0, unit: str = "epoch"
    ) -> Callable[[int, int, float], None]:
        """Return a callback that shows the progress of training; scoring begins at its end."""
        report = super().training_callback(label, done, running, failed, unit)

        def report_stage(epoch: int, total: int, score: float) -> None:
            report(epoch, total, score)
            if epoch == total:
                self.stage("scoring")

        return report_stage


@contextmanager
def fit_display(stage: str, quiet: bool) -> Iterator[FitDisplay]:
    """Show one bar for all stages of a fit and begin with `stage`.

    Inside another `fit_display`, such as that of a command that calls `fit`, use its bar.
    """
    outer = current_display.get()
    if isinstance(outer, FitDisplay):
        outer.stage(stage)
        yield outer
        return
    display = FitDisplay(stage, quiet)
    token = current_display.set(display)
    try:
        with display:
            yield display
    finally:
        current_display.reset(token)
