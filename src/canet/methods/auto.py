"""What `auto` is called and set by; `canet.choice` is how it chooses."""

from __future__ import annotations

from dataclasses import dataclass

from canet.methods.base import Settings
from canet.settings import setting
from canet.util.colour import Colour

PRESET_NAMES = {"fast": "fast-1", "robust": "robust-1", "best": "best-1"}
"""Name → the newest list of models under it. A list never changes: another one gets a number."""


@dataclass(frozen=True)
class AutoSettings(Settings):
    """The preset, and settings of all models; those in a model's name go before."""

    preset: str = setting(
        "robust",
        "how many models are tried: few, a dozen or all; with a number, that list of them",
        choices=(*PRESET_NAMES, *PRESET_NAMES.values()),
    )
    dropout: float = setting(0.5, "share of units dropped when training", minimum=0, below=1)
    epochs: int = setting(200, "passes over the training nodes, of each training", minimum=1)

    def __post_init__(self) -> None:
        super().__post_init__()
        object.__setattr__(self, "preset", PRESET_NAMES.get(self.preset, self.preset))


class Auto:
    """`auto` where methods are listed."""

    name = "auto"
    label = "Auto"
    colour = Colour("#000000", "#e6e6e6")
    summary = "the average of the models that do best on parts of the training data held out"
    paper = "No paper: measured in docs/results/choice.md"
    needs_environments = False
    capturable = False
    settings_type = AutoSettings
