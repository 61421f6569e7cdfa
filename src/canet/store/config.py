"""What a run is: everything that decides its result, and the name of its folder."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from typing import Any, ClassVar, TypeVar

from canet.data.digest import DataDigest

T = TypeVar("T")
LATER_SETTINGS = {"features": "raw", "norm": "none", "residual": False, "ema": 0.0}
"""Settings that are younger than committed runs, and the values that these had without them."""


@dataclass(frozen=True)
class RunConfig:
    """What a run is, completely: the same config gives the same run."""

    __pydantic_config__: ClassVar = {"extra": "forbid"}

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
    threads: int = 1

    def __post_init__(self) -> None:
        object.__setattr__(self, "settings", {**LATER_SETTINGS, **self.settings})

    @property
    def name(self) -> str:
        """A folder name for the runs that differ from this one only in their seed.

        It stays the same when a setting is added: only another value than before makes another run.
        """
        later = LATER_SETTINGS.items()
        settings = {name: v for name, v in self.settings.items() if (name, v) not in later}
        content = json.dumps(asdict(self) | {"seed": None, "settings": settings}, sort_keys=True)
        digest = hashlib.sha256(content.encode()).hexdigest()
        return f"{self.task}-{self.method}-{self.backbone}-{digest[:8]}"

    @property
    def model(self) -> str:
        """Method and backbone, such as `canet-gcn`; or `auto`, which chooses both."""
        same = self.method == self.backbone
        return self.method if same else f"{self.method}-{self.backbone}"

    @property
    def task_key(self) -> tuple[Any, ...]:
        """What its task depends on: runs that agree in it can share a loaded task."""
        how = self.data_seed, self.protocol, self.features, self.inductive, self.generator
        return self.task, *how


@dataclass(frozen=True)
class RunStart:
    """What is known when a run begins: the content of config.json.

    Args:
        config: What the run is.
        data: Digest of the task's data; None if it was not recorded.
        canet: Version of this package.
    """

    __pydantic_config__: ClassVar = {"extra": "forbid"}

    config: RunConfig
    data: DataDigest | None
    canet: str


def grouped(runs: Iterable[tuple[RunConfig, T]]) -> list[dict[int, T]]:
    """Runs with their configs → groups that differ only in the seed, each by seed, sorted.

    The same config gives the same run, so only the first of several copies of a run counts.
    Groups are in the order of their first run.
    """
    groups: dict[str, dict[int, T]] = {}
    for config, run in runs:
        groups.setdefault(config.name, {}).setdefault(config.seed, run)
    return [dict(sorted(group.items())) for group in groups.values()]
