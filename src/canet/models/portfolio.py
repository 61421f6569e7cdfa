"""Presets of `auto`: lists of models to compare, the fastest first."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields, replace
from typing import Any

from canet.methods import Settings, get_method
from canet.methods.base import ModelSettings
from canet.models.base import Learner, Options
from canet.models.linear import Linear
from canet.models.network import Network
from canet.models.trees import Trees
from canet.settings import override

TABULAR: dict[str, type[Learner]] = {"linear": Linear, "trees": Trees}


@dataclass(frozen=True)
class Recipe:
    """A model: a method, the backbone of a network, and settings that differ from the shared ones.

    The model need not be a network; it then has no backbone.
    """

    method: str
    backbone: str = ""
    changes: Mapping[str, Any] = field(default_factory=dict)

    @property
    def name(self) -> str:
        """Name such as `erm-sage norm=layer`."""
        return " ".join([self.model, *(f"{name}={v}" for name, v in self.changes.items())])

    @property
    def model(self) -> str:
        """Method and backbone, such as `erm-sage`."""
        return "-".join(filter(None, (self.method, self.backbone)))

    def learner(self, shared: Settings, options: Options | None = None, **chosen: Any) -> Learner:
        """Return the learner of the model; `chosen` settings replace all others."""
        settings = override(self.settings(shared), chosen)
        if self.method in TABULAR:
            return TABULAR[self.method](settings, options)
        return Network(self.method, self.backbone, settings, options)

    def settings(self, shared: Settings) -> ModelSettings:
        """Return all settings of the model; those not in `changes` are the shared ones."""
        if self.method in TABULAR:
            return override(TABULAR[self.method].settings_type(), self.changes)
        names = {f.name for f in fields(Settings)}
        common = {name: value for name, value in asdict(shared).items() if name in names}
        return override(get_method(self.method).settings_type(), {**common, **self.changes})


OWN = {"neighbours": False}
STANDARDISED = {"scaling": "standardised"}
NORM = {"norm": "layer"}
RESIDUAL = {"norm": "layer", "residual": True, **STANDARDISED}
CANET = {"dropout": 0.2, "interventions": "inferred"}
WITHOUT_NETWORKS = (
    Recipe("linear", changes=OWN),
    Recipe("linear"),
    Recipe("linear", changes={**OWN, **STANDARDISED}),
    Recipe("linear", changes=STANDARDISED),
    Recipe("trees"),
    Recipe("trees", changes=STANDARDISED),
)
NETWORKS = (
    Recipe("erm", "gcn"),
    Recipe("erm", "sage", NORM),
    Recipe("erm", "gcn", RESIDUAL),
    Recipe("canet", "gcn", CANET),
    Recipe("erm", "gcn", {"dropout": 0.0}),
    Recipe("erm", "sage", {**NORM, "dropout": 0.1}),
    Recipe("erm", "gcn", {**RESIDUAL, "dropout": 0.1}),
)
PRESETS: dict[str, tuple[Recipe, ...]] = {
    "fast": WITHOUT_NETWORKS,
    "robust": WITHOUT_NETWORKS + NETWORKS,
}
ORDER_IN_BATCHES = {"cpu": ("linear", "erm-sage", "trees"), "cuda": ("erm-sage", "linear", "trees")}
"""Models that come after the first one in training in batches, by device: sampling hardly changes
GraphSAGE, a GPU trains it fast, and trees of many nodes take long."""
ON_CPU = ("trees",)
"""Methods that compute on the CPU, also if there is a GPU."""


def recipes_of(
    preset: str, in_batches: bool, device: str = "cpu", apart: bool = False
) -> tuple[Recipe, ...]:
    """Return the models of a preset; in batches without interventions, and in another order.

    The models that are trained `apart` from those on a GPU come last.
    """
    if not in_batches:
        return tuple(sorted(PRESETS[preset], key=lambda one: apart and one.method in ON_CPU))
    chosen = []
    for one in PRESETS[preset]:
        changes = {name: v for name, v in one.changes.items() if name != "interventions"}
        chosen.append(replace(one, changes=changes))
    order = {name: i for i, name in enumerate(ORDER_IN_BATCHES[device])}
    first, *others = chosen
    return (first, *sorted(others, key=lambda one: order.get(one.model, len(order))))
