"""Presets of `auto`: lists of models to compare, the fastest first."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields, replace
from itertools import chain
from typing import Any

from canet.errors import check_name
from canet.methods import BACKBONES, Settings, Traits
from canet.methods.base import ModelSettings
from canet.models.base import Learner
from canet.models.options import Options
from canet.models.registry import (
    all_methods,
    describe_method,
    get_backbone_name,
    get_learner,
    is_network,
)
from canet.settings import override


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

    @property
    def traits(self) -> Traits:
        """What the method or learner of the model needs and can do."""
        return describe_method(self.method).traits

    def learner(self, shared: Settings, options: Options | None = None, **chosen: Any) -> Learner:
        """Return the learner of the model; `chosen` settings replace all others."""
        settings = override(self.settings(shared), chosen)
        return get_learner(self.method, self.backbone or None, settings, options)

    def settings(self, shared: Settings) -> ModelSettings:
        """Return all settings of the model; those of networks are shared, if not in `changes`."""
        kind = describe_method(self.method).settings_type
        names = [f.name for f in fields(Settings)] if issubclass(kind, Settings) else []
        return override(kind(), {name: getattr(shared, name) for name in names} | {**self.changes})


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
"""Device → models that are trained next after the first one, in batches. Sampled neighbours hardly
change GraphSAGE, and a GPU trains it fast. Trees take long with many nodes."""


def parse_preset(preset: str | Iterable[str]) -> dict[str, tuple[Recipe, ...]]:
    """Return the models of each name in a list, or in a text with commas; each name occurs once.

    A name is that of a preset, or METHOD[-BACKBONE], such as `erm-sage`, `linear` or the name of a
    learner of another package.
    """
    text = preset if isinstance(preset, str) else ",".join(map(str, preset))
    return dict(_named(name.strip()) for name in text.split(","))


def _named(name: str) -> tuple[str, tuple[Recipe, ...]]:
    methods = [known for known, kind in all_methods().items() if not kind.traits.compares_models]
    head, _, tail = name.rpartition("-")
    is_pair = head.lower() in methods or (head != "" and tail.lower() in BACKBONES)
    is_pair = is_pair and name not in methods  # the name of a learner may have a hyphen
    method, backbone = (head, tail) if is_pair else (name, None)
    method = check_name("preset or model", method, methods if is_pair else [*PRESETS, *methods])
    if method in PRESETS:
        return method, PRESETS[method]
    backbone = get_backbone_name(method, backbone)
    recipe = Recipe(method, backbone if is_network(method) else "")
    return recipe.name, (recipe,)


def recipes_of(
    preset: str, in_batches: bool, device: str = "cpu", apart: bool = False
) -> tuple[Recipe, ...]:
    """Return the models of a preset or of several names, each model once.

    The first model finds the hardest held-out parts for all models, and is trained without a time
    limit. In batches, models have no interventions, and the others have another order. If models
    for the CPU are trained `apart` from those on a GPU, they come last.
    """
    models: dict[str, Recipe] = {}
    for one in chain(*parse_preset(preset).values()):
        left_out = "interventions" if in_batches else ""
        kept = {name: value for name, value in one.changes.items() if name != left_out}
        recipe = replace(one, changes=kept)
        models.setdefault(recipe.name, recipe)
    first, *others = models.values()
    if in_batches:
        order = {name: i for i, name in enumerate(ORDER_IN_BATCHES[device])}
        others.sort(key=lambda one: order.get(one.model, len(order)))
    else:
        others.sort(key=lambda one: apart and one.traits.on_cpu)
    return first, *others
