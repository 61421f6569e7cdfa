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
from canet.report.comparison import CONTROLS, Lead
from canet.report.figures import Style, draw_band, draw_bars, tidy
from canet.report.score import Score, to_percent
from canet.runs import job_folder, run_jobs
from canet.settings import override
from canet.store import RunConfig, RunFolder
from canet.store.summary import OOD, ood_mean
from canet.util.console import print_table
from canet.util.devices import pick_device
from canet.util.files import atomic_path

DATA_SEEDS = (0, 1)
EPOCHS = 200
MAX_JOBS = 4
NOTE = """\
The data has spurious columns: they predict the label in training, but not under shift.
The epoch is selected on validation data, which is in distribution. Auto compares linear
models and trees also on held-out parts of the training data, and averages them.
Test users also occur in training, as in the paper. To test on new users:
    canet train synthetic --protocol disjoint"""


class DemoModel(NamedTuple):
    """A row of the demonstration's table."""

    label: str
    method: str
    features: str
    colour: str


class DemoScores(NamedTuple):
    """The scores of a model for several data seeds; `auto` has no scores per epoch."""

    model: DemoModel
    inside: Score
    shifted: Score
    curves: Sequence[np.ndarray]


MODELS = (
    DemoModel("GCN (ERM)", "erm", "original", METHODS["erm"].colour.light),
    DemoModel("CaNet-GCN", "canet", "original", METHODS["canet"].colour.light),
    DemoModel("Auto", "auto", "original", Auto.colour.light),
    DemoModel(
        "GCN without the spurious columns",
        "erm",
        WITHOUT_SPURIOUS,
        CONTROLS[WITHOUT_SPURIOUS].colour.light,
    ),
)


def run_demo(out: Path, device: str, quiet: bool) -> None:
    """Train, print the table and draw the picture."""
    configs = {model: [_config(model, seed) for seed in DATA_SEEDS] for model in MODELS}
    jobs = 1 if pick_device(device).type == "cuda" else min(MAX_JOBS, os.cpu_count() or 1)
    every = [config for own in configs.values() for config in own]
    if failed := run_jobs(every, out, jobs=jobs, device=device, retry=True, quiet=quiet):
        raise CanetError(f"{failed[0].config.model} failed: {failed[0].lines[-1]}")
    scores = [_read(model, [job_folder(out, c) for c in own]) for model, own in configs.items()]
    picture = out / "demo.png"
    draw_demo(scores, picture)
    if quiet:
        return
    rows = []
    for model, inside, shifted, _ in scores:
        lost = f"{to_percent(inside.mean - shifted.mean):.1f}"
        rows.append([model.label, inside.text, shifted.text, lost])
    title = f"Test accuracy %, mean ± std over {len(DATA_SEEDS)} data seeds"
    print_table(title, ["", "in distribution", "under shift", "lost"], rows)
    print(verdict(scores))
    print(NOTE)
    print(f"Picture: {picture}")


def _config(model: DemoModel, data_seed: int) -> RunConfig:
    method, backbone = model.method, get_backbone_name(model.method)
    is_network = method in METHODS
    changes = {"epochs": EPOCHS} if is_network else {"preset": "fast"}
    settings = asdict(override(task_settings("synthetic", method, backbone), changes))
    how = "paper", data_seed, model.features, False, method, backbone, settings
    return RunConfig("synthetic", *how, seed=0, ood_curves=is_network)


def _read(model: DemoModel, places: Sequence[RunFolder]) -> DemoScores:
    scores = [place.read_result().scores for place in places]
    inside = Score([own["test_id"] for own in scores], digits=1)
    shifted = Score([ood_mean(own) for own in scores], digits=1)
    curves = []
    for history in (place.read_metrics() for place in places):
        ood = [curve for name, curve in history.items() if name.startswith(OOD)]
        curves += [np.mean(ood, axis=0)] if ood else []
    return DemoScores(model, inside, shifted, curves)


def verdict(scores: Sequence[DemoScores]) -> str:
    """Compare the best two under shift, without the control."""
    best, other = sorted(scores[:3], key=lambda one: -one.shifted.mean)[:2]
    first, second = best.model.label, other.model.label
    lead = Lead.of(best.shifted, other.shifted)
    if lead is Lead.TIED:
        return f"Under shift {first} and {second} are tied."
    gap = to_percent(best.shifted.mean - other.shifted.mean)
    return f"Under shift {first} is {gap:.1f} above {second}: {lead}."


def draw_demo(scores: Sequence[DemoScores], path: Path) -> None:
    """Draw the final scores, and the scores under shift during training."""
    figure = Figure(figsize=(10, 4), layout="constrained", dpi=150)
    bars, curves = figure.subplots(1, 2, sharey=True, width_ratios=(1, 1.2))
    values = [(m.label, m.colour, [a.values, b.values]) for m, a, b, _ in scores]
    draw_bars(bars, ["in distribution", "under shift"], values)
    for container in bars.containers:
        bars.bar_label(
            container, fmt="{:.0f}", label_type="center", color="white", fontweight="bold"
        )
    for model, _, shifted, own in scores:
        if own:
            points = np.stack(own).T.tolist()
            epochs = range(1, len(points) + 1)
            draw_band(curves, epochs, points, Style(model.colour), model.label)
        else:
            label = f"{model.label}, at the end"
            curves.axhline(shifted.shown_mean, color=model.colour, linestyle="--", label=label)
    tidy(bars, "Test accuracy at the selected epoch, one dot per data seed", y="accuracy %")
    tidy(curves, "Under shift, during training: mean ± one standard deviation", "epoch")
    curves.legend(frameon=False, loc="lower right")
    with atomic_path(path) as temporary:
        figure.savefig(temporary, format=path.suffix.removeprefix("."))
