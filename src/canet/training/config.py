"""What a run is: all that decides about it, and the name of its folder."""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict, dataclass
from typing import Any

TEXTS = ("task", "protocol", "features", "method", "backbone", "generator")


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
        """Whether a config that was read has the types that it must have."""
        texts = all(isinstance(getattr(self, name), str) for name in TEXTS)
        seeds = type(self.data_seed) is int and type(self.seed) is int
        return texts and seeds and isinstance(self.settings, dict)
