"""`canet demo`: a plain GCN, CaNet and `auto` on the embedded task."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import NamedTuple

import numpy as np
from matplotlib.figure import Figure

from canet.data import WITHOUT_SPURIOUS
from canet.defaults import task_settings
from canet.errors import CanetError
from canet.methods import METHODS
from canet.models import Auto, get_backbone_name
from canet.report.comparison import Lead
from canet.report.figures import Style, draw_band, draw_bars, tidy
from canet.report.score import Score, percent
from canet.runs import job_folder, run_jobs
from canet.settings import override
from canet.store import RunConfig, RunFolder
from canet.store.summary import OOD, ood_mean
from canet.util.colour import WITHOUT_SPURIOUS_COLOUR
from canet.util.console import print_table
from canet.util.devices import pick_device
from canet.util.files import atomic_path

DATA_SEEDS = (0, 1)
EPOCHS, AUTO_EPOCHS = 200, 30
MAX_JOBS = 4
NOTE = """\
The data has spurious columns: they predict the label in training, but not under shift.
The epoch is selected on validation data, which is in distribution. Auto also rates three
models on held-out parts of the training data, and averages the best two.
Test users also occur in training, as in the paper. To test on new users:
    canet train synthetic --protocol disjoint"""


class Contender(NamedTuple):
    """A row of the demonstration's table."""

    label: str
    method: str
    features: str
    colour: str


class DemoLine(NamedTuple):
    """The scores of a contender for several data seeds; `auto` has no scores per epoch."""

    label: str
    colour: str
    id_score: Score
    ood_score: Score
    ood_curves: Sequence[np.ndarray]


CONTENDERS = (
    Contender("GCN (ERM)", "erm", "original", METHODS["erm"].colour.light),
    Contender("CaNet-GCN", "canet", "original", METHODS["canet"].colour.light),
    Contender("Auto", "auto", "original", Auto.colour.light),
    Contender(
        "GCN without the spurious columns", "erm", WITHOUT_SPURIOUS, WITHOUT_SPURIOUS_COLOUR.light
    ),
)


def run_demo(out: Path, device: str, quiet: bool) -> None:
    """Train, print the table and draw the picture."""
    configs = {one: [_config(one, seed) for seed in DATA_SEEDS] for one in CONTENDERS}
    jobs = 1 if pick_device(device).type == "cuda" else min(MAX_JOBS, os.cpu_count() or 1)
    every = [config for own in configs.values() for config in own]
    if failed := run_jobs(every, out, jobs=jobs, device=device, retry=True, quiet=quiet):
        raise CanetError(f"{failed[0].config.model} failed: {failed[0].lines[-1]}")
    places = {one: [job_folder(out, config) for config in own] for one, own in configs.items()}
    lines = [_line(contender, own) for contender, own in places.items()]
    picture = out / "demo.png"
    draw_demo(lines, picture)
    if quiet:
        return
    columns = ["", "in distribution", "under shift", "lost"]
    rows = []
    for label, _, inside, shifted, _ in lines:
        lost = f"{percent(inside.mean - shifted.mean):.1f}"
        rows.append([label, inside.text, shifted.text, lost])
    title = f"Test accuracy %, mean ± std over {len(DATA_SEEDS)} data seeds"
    print_table(title, columns, rows)
    print(verdict(lines))
    print(NOTE)
    print(f"Picture: {picture}")


def _config(contender: Contender, data_seed: int) -> RunConfig:
    _, method, features, _ = contender
    backbone = get_backbone_name(method)
    settings = task_settings("synthetic", method, backbone)
    is_network = method in METHODS
    changes = {"epochs": EPOCHS} if is_network else {"preset": "fast", "epochs": AUTO_EPOCHS}
    how = "paper", data_seed, features, False, method, backbone
    chosen = asdict(override(settings, changes))
    return RunConfig("synthetic", *how, chosen, 0, ood_curves=is_network)


def _line(contender: Contender, places: Sequence[RunFolder]) -> DemoLine:
    scores = [place.read_result().scores for place in places]
    curves = []
    for history in (place.read_metrics() for place in places):
        ood = [curve for name, curve in history.items() if name.startswith(OOD)]
        curves += [np.mean(ood, axis=0)] if ood else []
    return DemoLine(
        label=contender.label,
        colour=contender.colour,
        id_score=Score([own["test_id"] for own in scores], digits=1),
        ood_score=Score([ood_mean(own) for own in scores], digits=1),
        ood_curves=curves,
    )


def verdict(lines: list[DemoLine]) -> str:
    """Compare the best two under shift, without the control."""
    best, other = sorted(lines[:3], key=lambda line: -line.ood_score.mean)[:2]
    first, second = best.ood_score, other.ood_score
    lead = Lead.of(first, second)
    if lead is Lead.TIED:
        return f"Under shift {best.label} and {other.label} are tied."
    gap = percent(first.mean - second.mean)
    return f"Under shift {best.label} is {gap:.1f} above {other.label}: {lead}."


def draw_demo(lines: Sequence[DemoLine], path: Path) -> None:
    """Draw the final scores, and the scores under shift during training."""
    figure = Figure(figsize=(10, 4), layout="constrained", dpi=150)
    bars, curves = figure.subplots(1, 2, sharey=True, width_ratios=(1, 1.2))
    values = [(label, c, [inside.values, shifted.values]) for label, c, inside, shifted, _ in lines]
    draw_bars(bars, ["in distribution", "under shift"], values)
    for container in bars.containers:
        bars.bar_label(
            container, fmt="{:.0f}", label_type="center", color="white", fontweight="bold"
        )
    for line in lines:
        if not line.ood_curves:
            dashed = {"color": line.colour, "linestyle": "--", "label": f"{line.label}, at the end"}
            curves.axhline(line.ood_score.shown_mean, **dashed)
            continue
        epochs = range(1, len(line.ood_curves[0]) + 1)
        points = np.stack(line.ood_curves).T.tolist()
        draw_band(curves, epochs, points, Style(line.colour), line.label)
    tidy(bars, "Test accuracy at the selected epoch, one dot per data seed", y="accuracy %")
    tidy(curves, "Under shift, during training: mean ± one standard deviation", "epoch")
    curves.legend(frameon=False, loc="lower right")
    with atomic_path(path) as temporary:
        figure.savefig(temporary, format=path.suffix.removeprefix("."))
