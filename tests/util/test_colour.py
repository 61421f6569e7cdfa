"""A method has one colour wherever it is drawn: that which stands with it."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from matplotlib.colors import to_hex
from matplotlib.container import BarContainer
from matplotlib.figure import Figure

from benchmarks.pictures import draw_growth, draw_ratios
from benchmarks.results import Results
from canet.cli.demonstration import CONTENDERS, DemoLine, draw_demo
from canet.methods import BACKBONES, METHODS
from canet.paper.ablation import Ablation
from canet.paper.elliptic import Elliptic
from canet.paper.experiment import Experiment
from canet.paper.scope import Scope
from canet.paper.sensitivity import Sensitivity
from canet.util.colour import BLIND
from experiments.backbones import Backbones
from experiments.diagnosis import Diagnoses
from experiments.interventions import Interventions
from experiments.protocols import Protocols
from tests.paper.made_up import write_runs

ROOT = Path(__file__).parents[2]
RESULTS = ROOT / "results" / "performance"
OF_METHODS = {method.label: method.colour.light for method in METHODS.values()}
OF_BACKBONES = {backbone.label: backbone.colour.light for backbone in BACKBONES.values()}


@pytest.fixture
def drawn(monkeypatch: pytest.MonkeyPatch) -> list[Figure]:
    """The figures that are saved, which nobody needs to see."""
    figures: list[Figure] = []

    def remember(self: Figure, target: Path, **_: Any) -> None:
        target.touch()
        if self not in figures:
            figures.append(self)

    monkeypatch.setattr(Figure, "savefig", remember)
    return figures


def colours(figures: list[Figure]) -> dict[str, set[str]]:
    """The colours of all that has a label."""
    found: dict[str, set[str]] = {}
    for figure in figures:
        for axes in figure.axes:
            for handle, label in zip(*axes.get_legend_handles_labels(), strict=True):
                is_bars = isinstance(handle, BarContainer)
                colour = handle.patches[0].get_facecolor() if is_bars else handle.get_color()
                found.setdefault(label, set()).add(to_hex(colour))
    return found


@pytest.mark.parametrize(
    "kind", [Elliptic, Protocols, Diagnoses, Ablation, Sensitivity, Interventions]
)
def test_an_experiment_draws_methods_in_their_colours(
    kind: type[Experiment], drawn: list[Figure], fresh_cache: Path, tmp_path: Path
) -> None:
    experiment = kind(Scope(quick=True))
    experiment.draw(write_runs(experiment, tmp_path / "runs"), tmp_path / "figures")
    found = colours(drawn)
    assert drawn
    for label in found.keys() & OF_METHODS.keys():
        assert found[label] == {OF_METHODS[label]}
    if kind.methods:
        assert found["CaNet"] == {OF_METHODS["CaNet"]}


def test_backbones_are_drawn_in_theirs(
    drawn: list[Figure], fresh_cache: Path, tmp_path: Path
) -> None:
    experiment = Backbones(Scope(quick=True))
    experiment.draw(write_runs(experiment, tmp_path / "runs"), tmp_path / "figures")
    found = colours(drawn)
    assert found == {label: {OF_BACKBONES[label]} for label in found}
    assert len(found) == 5


def test_the_demonstration_has_the_colours_of_every_other_figure(
    drawn: list[Figure], tmp_path: Path
) -> None:
    lines = [
        DemoLine(c.label, c.colour, [90.0, 91.0], [80.0, 81.0], np.zeros((2, 3)))
        for c in CONTENDERS
    ]
    draw_demo(lines, tmp_path / "demo.png")
    assert colours(drawn) == {
        "GCN (ERM)": {METHODS["erm"].colour.light},
        "CaNet-GCN": {METHODS["canet"].colour.light},
        "GCN without the spurious columns": {BLIND.light},
    }


@pytest.mark.parametrize(
    ("draw", "expected"),
    [
        (draw_growth, {label: {OF_BACKBONES[label]} for label in ("GCN", "GAT")}),
        (
            lambda results, *place: draw_ratios([results], *place),
            {"measured": {METHODS["canet"].colour.light}, "what must hold": {"#000000"}},
        ),
    ],
)
def test_measurements_are_drawn_in_the_colours_of_what_was_measured(
    draw: Callable[[Results, Path, str], None],
    expected: dict[str, set[str]],
    drawn: list[Figure],
    tmp_path: Path,
) -> None:
    results = Results.read(RESULTS / "cpu-growth.json")
    results.content |= {"cases": Results.read(RESULTS / "cpu-small.json").content["cases"]}
    draw(results, tmp_path, "picture")
    assert colours(drawn) == expected


def test_no_figure_names_a_colour_of_its_own() -> None:
    folders = ("src/canet/report", "src/canet/paper", "benchmarks", "experiments")
    files = [file for folder in folders for file in (ROOT / folder).rglob("*.py")]
    files.append(ROOT / "src/canet/cli/demonstration.py")
    assert len(files) > 30
    assert [file.name for file in files if re.search(r"#[0-9a-fA-F]{6}\b", file.read_text())] == []
