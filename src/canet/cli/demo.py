"""`canet demo`: a plain GCN, CaNet and `auto` on the embedded task."""

import os
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import numpy as np
from matplotlib.figure import Figure

from canet.cli.options import TaskOptions
from canet.data import WITHOUT_SPURIOUS
from canet.defaults import task_settings
from canet.errors import CanetError
from canet.methods import METHODS
from canet.models import get_backbone_name
from canet.report.comparison import Contender, Lead
from canet.report.curves import read_curves
from canet.report.figures import Style, draw_band, draw_bars, tidy
from canet.report.score import Score, to_percent
from canet.runs import job_folder, run_jobs
from canet.settings import override
from canet.store import RunConfig, RunFolder
from canet.store.summary import OOD_MEAN, read_run
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
    features: str = "original"


class DemoScores(NamedTuple):
    """The scores of a model for several data seeds; `auto` has no scores per epoch."""

    label: str
    colour: str
    inside: Score
    shifted: Score
    curves: Sequence[np.ndarray]


MODELS = (
    DemoModel("GCN (ERM)", "erm"),
    DemoModel("CaNet-GCN", "canet"),
    DemoModel("Auto", "auto"),
    DemoModel("GCN without the spurious columns", "erm", WITHOUT_SPURIOUS),
)


def run_demo(out: Path, device: str, quiet: bool) -> None:
    """Train, print the table and draw the picture."""
    configs = {model: [_config(model, seed) for seed in DATA_SEEDS] for model in MODELS}
    jobs = 1 if pick_device(device).type == "cuda" else min(MAX_JOBS, os.cpu_count() or 1)
    every = [config for own in configs.values() for config in own]
    if failed := run_jobs(every, out, jobs=jobs, device=device, retry=True, quiet=quiet):
        raise CanetError(f"{failed[0].config.model} failed: {failed[0].lines[-1]}")
    scores = [_read(m.label, [job_folder(out, c) for c in own]) for m, own in configs.items()]
    picture = out / "demo.png"
    draw_demo(scores, picture)
    if quiet:
        return
    rows = []
    for label, _, inside, shifted, _ in scores:
        lost = f"{to_percent(inside.mean - shifted.mean):.1f}"
        rows.append([label, inside.text, shifted.text, lost])
    title = f"Test accuracy %, mean ± std over {len(DATA_SEEDS)} data seeds"
    print_table(title, ["", "in distribution", "under shift", "lost"], rows)
    print(verdict(scores))
    print(NOTE)
    print(f"Picture: {picture}")


def _config(model: DemoModel, data_seed: int) -> RunConfig:
    is_network, backbone = model.method in METHODS, get_backbone_name(model.method)
    changes = {"epochs": EPOCHS} if is_network else {"preset": "fast"}
    settings = override(task_settings("synthetic", model.method, backbone), changes)
    variant = TaskOptions(data_seed=data_seed, features=model.features)
    config = variant.config("synthetic", model.method, backbone, settings)
    return replace(config, ood_curves=is_network)


def _read(label: str, places: Sequence[RunFolder]) -> DemoScores:
    runs = [read_run(place) for place in places]
    model = Contender(runs[0].config, {run.config.data_seed: {0: run} for run in runs})
    inside, shifted = (replace(model.score(split), digits=1) for split in ("test_id", OOD_MEAN))
    return DemoScores(label, model.colour.light, inside, shifted, read_curves(model)["under shift"])


def verdict(scores: Sequence[DemoScores]) -> str:
    """Compare the best two under shift, without the control."""
    best, other = sorted(scores[:3], key=lambda one: -one.shifted.mean)[:2]
    lead = Lead.of(best.shifted, other.shifted)
    if lead is Lead.TIED:
        return f"Under shift {best.label} and {other.label} are tied."
    gap = to_percent(best.shifted.mean - other.shifted.mean)
    return f"Under shift {best.label} is {gap:.1f} above {other.label}: {lead}."


def draw_demo(scores: Sequence[DemoScores], path: Path) -> None:
    """Draw the final scores, and the scores under shift during training."""
    figure = Figure(figsize=(10, 4), layout="constrained", dpi=150)
    bars, curves = figure.subplots(1, 2, sharey=True, width_ratios=(1, 1.2))
    values = [(one.label, one.colour, [one.inside.values, one.shifted.values]) for one in scores]
    draw_bars(bars, ["in distribution", "under shift"], values)
    for container in bars.containers:
        bars.bar_label(
            container, fmt="{:.0f}", label_type="center", color="white", fontweight="bold"
        )
    for label, colour, _, shifted, own in scores:
        if own:
            points = np.stack(own).T.tolist()
            draw_band(curves, range(1, len(points) + 1), points, Style(colour), label)
        else:
            end = f"{label}, at the end"
            curves.axhline(shifted.shown_mean, color=colour, linestyle="--", label=end)
    tidy(bars, "Test accuracy at the selected epoch, one dot per data seed", y="accuracy %")
    tidy(curves, "Under shift, during training: mean ± one standard deviation", "epoch")
    curves.legend(frameon=False, loc="lower right")
    with atomic_path(path) as temporary:
        figure.savefig(temporary, format=path.suffix.removeprefix("."))
