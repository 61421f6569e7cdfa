"""The demonstration: CaNet compared with a plain GCN on several draws of the embedded task."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
from matplotlib.figure import Figure

from canet.data import WITHOUT_SPURIOUS, load_task
from canet.methods import METHODS
from canet.presets import preset
from canet.report.comparison import Lead
from canet.report.figures import Style, draw_band, draw_bars, tidy
from canet.report.score import Score
from canet.store.summary import ood_mean
from canet.training import Run, Trainer
from canet.training.loop import Progress
from canet.util.colour import BLIND
from canet.util.console import print_table
from canet.util.files import atomic_path
from canet.util.progress import Display

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
    features: str
    colour: str


class DemoLine(NamedTuple):
    """One contender over several draws of the data: final scores, and OOD scores per epoch."""

    label: str
    colour: str
    id_score: Score
    ood_score: Score
    ood_curves: np.ndarray


CONTENDERS = (
    Contender("GCN (ERM)", "erm", "original", METHODS["erm"].colour.light),
    Contender("CaNet-GCN", "canet", "original", METHODS["canet"].colour.light),
    Contender("GCN without the spurious columns", "erm", WITHOUT_SPURIOUS, BLIND.light),
)


def run_demo(out: Path, device: str, quiet: bool) -> None:
    """Train, print the table, draw the picture."""
    lines: list[DemoLine] = []
    with Display(len(CONTENDERS) * len(DATA_SEEDS), quiet=quiet) as display:
        for contender in CONTENDERS:
            runs: list[Run] = []
            for seed in DATA_SEEDS:
                done = len(lines) * len(DATA_SEEDS) + len(runs)
                progress = display.of_training(f"{contender.label}, draw {seed + 1}", done)
                runs.append(_train(contender, seed, out, device, progress))
            lines.append(_line(contender, runs))
    picture = out / "demo.png"
    draw_demo(lines, picture)
    if quiet:
        return
    columns = ["", "in distribution", "under shift", "lost"]
    rows = []
    for label, _, inside, shifted, _ in lines:
        rows.append([label, inside.text, shifted.text, f"{inside.mean - shifted.mean:.1f}"])
    title = f"Test accuracy %, mean ± std over {len(DATA_SEEDS)} draws of the embedded data"
    print_table(title, columns, rows)
    print(verdict(lines))
    print(NOTE)
    print(f"Picture: {picture}")


def _train(
    contender: Contender, data_seed: int, out: Path, device: str, on_progress: Progress
) -> Run:
    task = load_task("synthetic", data_seed=data_seed, features=contender.features)
    settings = preset(task.name, contender.method, "gcn")
    trainer = Trainer(task, contender.method, "gcn", settings, device, epochs=EPOCHS)
    return trainer.run(0, out / trainer.config(ood_curves=True).name, True, on_progress)


def _line(contender: Contender, runs: list[Run]) -> DemoLine:
    ood = [name for name in runs[0].history if name.startswith("ood/")]
    curves = [np.mean([run.history[name] for name in ood], axis=0) for run in runs]
    return DemoLine(
        label=contender.label,
        colour=contender.colour,
        id_score=Score([run.result.scores["test_id"] for run in runs], digits=1),
        ood_score=Score([ood_mean(run.result.scores) for run in runs], digits=1),
        ood_curves=np.stack(curves),
    )


def verdict(lines: list[DemoLine]) -> str:
    """How the two that see every column compare under shift, whichever is above."""
    best, other = sorted(lines[:2], key=lambda line: -line.ood_score.mean)
    first, second = best.ood_score, other.ood_score
    lead = Lead.of(first, second)
    if lead is Lead.TIED:
        return f"Under shift {best.label} and {other.label} are tied."
    gap = first.mean - second.mean
    return f"Under shift {best.label} is {gap:.1f} above {other.label}: {lead}."


def draw_demo(lines: Sequence[DemoLine], path: Path) -> None:
    """In distribution next to under shift, and how the latter moves while training."""
    figure = Figure(figsize=(10, 4), layout="constrained", dpi=150)
    bars, curves = figure.subplots(1, 2, sharey=True, width_ratios=(1, 1.2))
    values = [(label, c, [inside.values, shifted.values]) for label, c, inside, shifted, _ in lines]
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
