"""One progress bar for all stages of a fit."""

from collections.abc import Iterator
from contextlib import contextmanager

from canet.training.loop import Progress, progress_text
from canet.util.progress import Display, current_display

STAGES = {"reading": 0.05, "checking": 0.05, "training": 0.8, "scoring": 0.09, "saving": 0.01}
"""Stages of a fit and their approximate share of the time on a large graph."""


class FitDisplay(Display):
    """Progress over all stages; `update` shows that of the present stage."""

    _later = (STAGES["scoring"] + STAGES["saving"]) / STAGES["training"]

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

    def training_callback(self, label: str, unit: str = "epoch") -> Progress:
        """Return a callback that shows the progress of training; scoring begins at its end."""

        def report(step: int, total: int, score: float) -> None:
            text = f"{label}: {progress_text(unit, step, total, score)}"
            self.update(0, text=text, part=step / total)
            if step == total:
                self.stage("scoring")

        return report


@contextmanager
def fit_display(stage: str, quiet: bool) -> Iterator[FitDisplay]:
    """Show one bar for all stages of a fit; inside another `fit_display`, use its bar."""
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
