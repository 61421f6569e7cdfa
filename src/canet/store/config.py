"""What a run is: all that decides about it, and the name of its folder."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from typing import Any, TypeVar

from canet.store.kinds import is_count

T = TypeVar("T")
TEXTS = ("task", "protocol", "features", "method", "backbone", "generator")
PLAIN = (bool, int, float, str, type(None))
"""What a setting can be."""
MOST_SEED = 2**63
"""Seeds are below: more is no number for torch."""


@dataclass(frozen=True)
class RunConfig:
    """What a run is, completely: the same config gives the same run."""

    task: str
    protocol: str
    data_seed: int
    features: str
    inductive: bool
    method: str
    backbone: str
    settings: dict[str, Any]
    seed: int
    ood_curves: bool = False
    generator: str = "shared"

    @property
    def name(self) -> str:
        """A folder name for the runs that differ from this one in their seed alone."""
        parts = asdict(self) | {"seed": None}
        if self.generator == "shared":
            del parts["generator"]  # runs are older than the choice
        content = json.dumps(parts, sort_keys=True)
        digest = hashlib.sha256(content.encode()).hexdigest()
        return f"{self.task}-{self.method}-{self.backbone}-{digest[:8]}"

    @property
    def well_formed(self) -> bool:
        """Whether each part of a config that was read is of the kind that it must be."""
        texts = [getattr(self, name) for name in TEXTS]
        return (
            all(isinstance(text, str) and text.isprintable() for text in texts)
            and all(is_count(seed, MOST_SEED) for seed in (self.data_seed, self.seed))
            and all(type(flag) is bool for flag in (self.inductive, self.ood_curves))
            and isinstance(self.settings, dict)
            and all(type(value) in PLAIN for value in self.settings.values())
            and type(self.settings.get("epochs", 0)) is int
        )


def grouped(runs: Iterable[tuple[RunConfig, T]]) -> list[dict[int, T]]:
    """Runs with their configs → those that differ in their seed alone, by seed, in its order.

    The same config gives the same run, so a copy of a run is no further run: the first counts.
    Groups stand in the order of their first run.
    """
    groups: dict[str, dict[int, T]] = {}
    for config, run in runs:
        groups.setdefault(config.name, {}).setdefault(config.seed, run)
    return [dict(sorted(group.items())) for group in groups.values()]
