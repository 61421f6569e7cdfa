"""Every figure shows a method or backbone in its declared colour."""

from pathlib import Path
from typing import Any

import pytest
from matplotlib.colors import to_hex
from matplotlib.container import BarContainer
from matplotlib.figure import Figure

from canet.methods import BACKBONES, METHODS
from canet.paper.ablation import Ablation
from canet.paper.elliptic import Elliptic
from canet.paper.experiment import Experiment
from canet.paper.scope import Scope
from canet.paper.sensitivity import Sensitivity
from experiments.backbones import Backbones
from experiments.interventions import Interventions
from experiments.protocols import Protocols
from experiments.reliance import SpuriousReliance
from tests.support.made_up import write_runs

METHOD_COLOURS = {method.label: method.colour.light for method in METHODS.values()}
BACKBONE_COLOURS = {backbone.label: backbone.colour.light for backbone in BACKBONES.values()}


@pytest.fixture
def drawn(monkeypatch: pytest.MonkeyPatch) -> list[Figure]:
    """The figures that a test saves, in place of files."""
    figures: list[Figure] = []

    def collect_figure(self: Figure, target: Path, **_: Any) -> None:
        target.touch()
        if self not in figures:
            figures.append(self)

    monkeypatch.setattr(Figure, "savefig", collect_figure)
    return figures


def colours(figures: list[Figure]) -> dict[str, set[str]]:
    """The colours of each label in the legends."""
    found: dict[str, set[str]] = {}
    for figure in figures:
        for axes in figure.axes:
            for handle, label in zip(*axes.get_legend_handles_labels(), strict=True):
                is_bars = isinstance(handle, BarContainer)
                colour = handle.patches[0].get_facecolor() if is_bars else handle.get_color()
                found.setdefault(label, set()).add(to_hex(colour))
    return found


@pytest.mark.parametrize(
    "kind",
    [Elliptic, Protocols, SpuriousReliance, Ablation, Sensitivity, Interventions, Backbones],
)
def test_an_experiment_draws_methods_and_backbones_in_their_colours(
    kind: type[Experiment], drawn: list[Figure], fresh_cache: Path, tmp_path: Path
) -> None:
    experiment = kind(Scope(quick=True))
    experiment.draw(write_runs(experiment, tmp_path / "runs"), tmp_path / "figures")
    found = colours(drawn)
    declared = BACKBONE_COLOURS if kind is Backbones else METHOD_COLOURS
    assert drawn
    for label in found.keys() & declared.keys():
        assert found[label] == {declared[label]}
    if kind.methods and kind is not Backbones:
        assert found["CaNet"] == {METHOD_COLOURS["CaNet"]}
