"""The demonstration: CaNet compared with a plain GCN on several draws of the embedded task."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from statistics import mean, stdev
from typing import NamedTuple

import numpy as np
from matplotlib.figure import Figure

from canet.data import load_task
from canet.data.benchmarks.spurious import without_spurious_columns
from canet.data.task import ShiftTask
from canet.methods import METHODS
from canet.presets import preset
from canet.report.comparison import Lead
from canet.report.figures import Style, draw_band, draw_bars, tidy
from canet.report.score import Score
from canet.training import Run, Trainer
from canet.util.colour import BLIND
from canet.util.console import Reporter, print_table
from canet.util.files import atomic_path

DATA_SEEDS = (0, 1, 2)
EPOCHS = 200
NOTE = """\
Epoch selected on validation data, which is in distribution. Protocol of the paper: users
under shift have copies in the training domains. For users never seen before:
    canet train synthetic --protocol disjoint"""


class Contender(NamedTuple):
    """A row of the demonstration's table."""

    label: str
    method: str
    sees_spurious: bool

    @property
    def colour(self) -> str:
        """Its method's, as in every figure."""
        return (METHODS[self.method].colour if self.sees_spurious else BLIND).light


class DemoLine(NamedTuple):
    """One contender over several draws of the data: final scores, and OOD scores per epoch."""

    label: str
    colour: str
    id_scores: list[float]
    ood_scores: list[float]
    ood_curves: np.ndarray


CONTENDERS = (
    Contender("GCN (ERM)", "erm", True),
    Contender("CaNet-GCN", "canet", True),
    Contender("GCN without the spurious columns", "erm", False),
)


def run_demo(out: Path, device: str, quiet: bool) -> None:
    """Train, print the table, draw the picture."""
    tasks = [load_task("synthetic", data_seed=seed) for seed in DATA_SEEDS]
    lines: list[DemoLine] = []
    with Reporter(len(CONTENDERS) * len(tasks), quiet).showing() as reporter:
        for contender in CONTENDERS:
            runs = [_train(contender, task, out, device, reporter) for task in tasks]
            lines.append(_line(contender, runs))
    picture = out / "demo.png"
    draw_demo(lines, picture)
    if quiet:
        return
    columns = ["", "in distribution", "under shift", "lost"]
    rows = []
    for line in lines:
        lost = mean(line.id_scores) - mean(line.ood_scores)
        rows.append([line.label, _spread(line.id_scores), _spread(line.ood_scores), f"{lost:.1f}"])
    title = f"Test accuracy %, mean ± std over {len(tasks)} draws of the embedded data"
    print_table(title, columns, rows)
    print(verdict(lines))
    print(NOTE)
    print(f"Picture: {picture}")


def _train(
    contender: Contender, task: ShiftTask, out: Path, device: str, reporter: Reporter
) -> Run:
    seen = task if contender.sees_spurious else without_spurious_columns(task)
    settings = preset(task.name, contender.method, "gcn")
    trainer = Trainer(seen, contender.method, "gcn", settings, device, epochs=EPOCHS)
    label = f"{contender.label}, draw {task.data_seed + 1}"
    config = trainer.config(ood_curves=True)
    return trainer.run(0, out / config.name, True, reporter.next_run(label))


def _line(contender: Contender, runs: list[Run]) -> DemoLine:
    ood = [name for name in runs[0].history if name.startswith("ood/")]
    curves = [np.mean([run.history[name] for name in ood], axis=0) for run in runs]
    return DemoLine(
        label=contender.label,
        colour=contender.colour,
        id_scores=[run.result.scores["test_id"] for run in runs],
        ood_scores=[mean(run.result.scores[name] for name in ood) for run in runs],
        ood_curves=np.stack(curves),
    )


def verdict(lines: list[DemoLine]) -> str:
    """How the two that see every column compare under shift, whichever is above."""
    scores = {line.label: Score(line.ood_scores, digits=1) for line in lines[:2]}
    (best, first), (other, second) = sorted(scores.items(), key=lambda pair: -pair[1].mean)
    lead = Lead.of(first, second)
    if lead is Lead.TIED:
        return f"Under shift {best} and {other} are tied."
    return f"Under shift {best} is {first.mean - second.mean:.1f} above {other}: {lead}."


def _spread(scores: list[float]) -> str:
    return f"{mean(scores):.1f} ± {stdev(scores):.1f}"


def draw_demo(lines: Sequence[DemoLine], path: Path) -> None:
    """In distribution next to under shift, and how the latter moves while training."""
    figure = Figure(figsize=(10, 4), layout="constrained", dpi=150)
    bars, curves = figure.subplots(1, 2, sharey=True, width_ratios=(1, 1.2))
    values = [(line.label, line.colour, [line.id_scores, line.ood_scores]) for line in lines]
    draw_bars(bars, ["in distribution", "under shift"], values)
    for container in bars.containers:
        bars.bar_label(
            container, fmt="{:.0f}", label_type="center", color="white", fontweight="bold"
        )
    for line in lines:
        epochs = range(1, line.ood_curves.shape[1] + 1)
        draw_band(curves, epochs, line.ood_curves.T.tolist(), Style(line.colour), line.label)
    tidy(bars, "Test accuracy at the selected epoch, a dot for each draw", y="accuracy %")
    tidy(curves, "Under shift, while training: mean ± one standard deviation", "epoch")
    curves.legend(frameon=False, loc="lower right")
    with atomic_path(path) as temporary:
        figure.savefig(temporary, format=path.suffix.removeprefix("."))
