"""Name and settings of `auto`. `canet.models` implements the choice."""

from __future__ import annotations

from dataclasses import dataclass

from canet.methods.base import Settings
from canet.settings import setting
from canet.util.colour import Colour

PRESET_NAMES = {"fast": "fast-1", "robust": "robust-1", "best": "best-1"}
"""Preset → its newest version. A published version never changes; new models get a new number."""


@dataclass(frozen=True)
class AutoSettings(Settings):
    """Settings of `auto`. A model of the preset may override those of all methods."""

    preset: str = setting(
        "robust",
        "models to compare: fast (a few), robust (a dozen) or best (all); a number selects a "
        "fixed version",
        choices=(*PRESET_NAMES, *PRESET_NAMES.values()),
    )
    dropout: float = setting(0.5, "dropout probability", minimum=0, below=1)
    epochs: int = setting(200, "number of training epochs of each model", minimum=1)

    def __post_init__(self) -> None:
        super().__post_init__()
        object.__setattr__(self, "preset", PRESET_NAMES.get(self.preset, self.preset))

    in_batches = False  # the models share the graph in memory


class Auto:
    """Entry of `auto` in lists of methods."""

    name = "auto"
    label = "Auto"
    colour = Colour("#000000", "#e6e6e6")
    summary = "averages the models that score best on held-out parts of the training data"
    paper = "No paper; measured on https://canet-dev.github.io/canet/results/choice/"
    needs_environments = False
    capturable = False
    settings_type = AutoSettings
