"""Figures, drawn with matplotlib and written atomically."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
from matplotlib.figure import Figure

from canet.files import atomic_path

COLOURS = ("#b5533c", "#1f6f8b", "#8a8a8a")


class Line(NamedTuple):
    """One contestant over several draws of the data: final scores, and OOD scores per epoch."""

    label: str
    id_scores: list[float]
    ood_scores: list[float]
    ood_curves: np.ndarray


def draw_demo(lines: Sequence[Line], path: Path) -> None:
    """In distribution beside under shift, and how the latter moves while training."""
    figure = Figure(figsize=(10, 4), layout="constrained", dpi=150)
    bars, curves = figure.subplots(1, 2, sharey=True, width_ratios=(1, 1.2))
    places = np.arange(2)
    for i, (line, colour) in enumerate(zip(lines, COLOURS, strict=True)):
        both = np.array([line.id_scores, line.ood_scores])
        shift = (i - (len(lines) - 1) / 2) * 0.28
        bars.bar(places + shift, both.mean(axis=1), 0.25, color=colour, alpha=0.85)
        bars.plot(places + shift, both, "o", color="black", markersize=3, alpha=0.6)
        for x, value in zip(places + shift, both.mean(axis=1), strict=True):
            bars.annotate(f"{value:.0f}", (x, 3), color="white", ha="center", fontweight="bold")
        epochs = np.arange(1, line.ood_curves.shape[1] + 1)
        centre, spread = line.ood_curves.mean(axis=0), line.ood_curves.std(axis=0)
        curves.plot(epochs, centre, color=colour, label=line.label)
        curves.fill_between(epochs, centre - spread, centre + spread, color=colour, alpha=0.15)
    bars.set_xticks(places, ["in distribution", "under shift"])
    bars.set_ylabel("accuracy %")
    bars.set_ylim(0, 100)
    bars.set_title("Test accuracy at the selected epoch", loc="left")
    curves.set_xlabel("epoch")
    curves.set_title("Under shift, while training", loc="left")
    curves.legend(frameon=False, loc="lower right")
    for axes in (bars, curves):
        axes.spines[["top", "right"]].set_visible(False)
        axes.grid(axis="y", alpha=0.25)
        axes.set_axisbelow(True)
    with atomic_path(path) as temporary:
        figure.savefig(temporary, format=path.suffix.removeprefix("."))
