"""Presets of `auto`: fixed lists of models to train, in order of importance."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from typing import Any

from canet.methods import Settings, get_method
from canet.models.base import Learner, Options
from canet.models.network import Network
from canet.settings import override


@dataclass(frozen=True)
class Recipe:
    """A model: a method, a backbone and settings that differ from the shared ones."""

    method: str
    backbone: str
    changes: Mapping[str, Any] = field(default_factory=dict)

    @property
    def name(self) -> str:
        """Name such as `erm-sage norm=layer`."""
        values = (f"{name}={value}" for name, value in self.changes.items())
        return " ".join([f"{self.method}-{self.backbone}", *values])

    def learner(self, shared: Settings, options: Options | None = None) -> Learner:
        """Return the learner of the model."""
        return Network(self.method, self.backbone, self.settings(shared), options)

    def settings(self, shared: Settings) -> Settings:
        """Return all settings of the model; those not in `changes` are the shared ones."""
        names = {f.name for f in fields(Settings)}
        common = {name: value for name, value in asdict(shared).items() if name in names}
        return override(get_method(self.method).settings_type(), {**common, **self.changes})


NORM = {"norm": "layer"}
RESIDUAL = {"norm": "layer", "residual": True}
STANDARDISED = {"scaling": "standardised"}
CANET = {"dropout": 0.2}
RECIPES = (
    Recipe("erm", "sage", {**NORM, **STANDARDISED}),
    Recipe("erm", "gcn", RESIDUAL),
    Recipe("erm", "mlp"),
    Recipe("erm", "gcn", {**RESIDUAL, **STANDARDISED}),
    Recipe("erm", "sage", NORM),
    Recipe("canet", "gcn", {**CANET, "interventions": "inferred"}),
    Recipe("erm", "decoupled"),
    Recipe("erm", "gcn"),
    Recipe("canet", "sage", CANET),
    Recipe("canet", "gcn", CANET),
    Recipe("erm", "transformer"),
    Recipe("erm", "mlp", {**NORM, **STANDARDISED}),
    Recipe("erm", "sage", {**NORM, "scaling": "centred"}),
    Recipe("erm", "sage", {**NORM, "scaling": "rows"}),
)
PRESETS: dict[str, tuple[Recipe, ...]] = {
    "fast-1": RECIPES[:3],
    "robust-1": RECIPES[:12],
    "best-1": RECIPES,
}
NEWEST = {"fast": "fast-1", "robust": "robust-1", "best": "best-1"}
"""Preset → its newest version. A published version never changes; new models get a new number."""
