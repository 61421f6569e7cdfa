"""The configuration of a run: everything that its result depends on."""

import hashlib
import json
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, ClassVar, TypeVar

from canet.data.digest import DataDigest

T = TypeVar("T")


@dataclass(frozen=True)
class RunConfig:
    """The complete configuration of a run: the same configuration gives the same run."""

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

    @property
    def name(self) -> str:
        """Name of the folder of all runs that differ only in their seed."""
        content = json.dumps(asdict(self) | {"seed": None}, sort_keys=True)
        digest = hashlib.sha256(content.encode()).hexdigest()
        return f"{Path(self.task).name}-{self.method}-{self.backbone}-{digest[:8]}"

    @property
    def has_backbone(self) -> bool:
        """Whether the user chooses a backbone; `auto` has its own name in place of it."""
        return self.method != self.backbone

    @property
    def model(self) -> str:
        """Method and backbone, such as `canet-gcn`; or the method, such as `auto`."""
        return f"{self.method}-{self.backbone}" if self.has_backbone else self.method

    @property
    def task_key(self) -> tuple[Any, ...]:
        """The arguments of `load_task`: runs with the same key can share a loaded task."""
        arguments = self.data_seed, self.protocol, self.features, self.inductive, self.generator
        return self.task, *arguments


@dataclass(frozen=True)
class RunStart:
    """The content of config.json, which is written when a run begins."""

    __pydantic_config__: ClassVar = {"extra": "forbid"}

    config: RunConfig  # configuration of the run
    data: DataDigest | None  # digest of the data of the task; None if it was not recorded
    canet: str  # version of this package


def group_by_configuration(runs: Iterable[tuple[RunConfig, T]]) -> list[dict[int, T]]:
    """Group runs by their configuration: seed → run, sorted; of copies, the first is used."""
    groups: dict[str, dict[int, T]] = {}
    for config, run in runs:
        groups.setdefault(config.name, {}).setdefault(config.seed, run)
    return [dict(sorted(group.items())) for group in groups.values()]
