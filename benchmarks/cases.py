"""The measured cases: tasks, backbones and numbers of environments."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, fields, replace
from functools import lru_cache
from pathlib import Path
from typing import Any

import torch

from canet.data import load_task
from canet.data.task import ShiftTask
from canet.defaults import task_settings
from canet.errors import check_name
from canet.methods import InterventionSettings
from canet.methods.canet import CaNetSettings
from canet.settings import override

VARIANTS: dict[str, dict[str, Any]] = {
    "published": {},
    "symmetric": {"propagation": "symmetric", "direction": "along", "estimator": "graph"},
}
TASKS = ("synthetic", "cora", "citeseer", "pubmed", "twitch", "arxiv")
QUICK_TASKS = ("synthetic", "cora")
TASKS_WITH_ALL_K = ("cora", "arxiv")
ALL_K = (1, 3, 10)
PUBLISHED_K = 3


@dataclass(frozen=True)
class Case:
    """A task, a backbone and the published settings, except for a variant and the number K."""

    task: str
    backbone: str
    k: int = PUBLISHED_K
    variant: str = "published"

    @property
    def label(self) -> str:
        variant = "" if self.variant == "published" else f" {self.variant}"
        return f"{self.task} {self.backbone.upper()}{variant} K {self.k}"

    def settings(self) -> CaNetSettings:
        changes = VARIANTS[self.variant] | {"num_environments": self.k}
        settings = override(task_settings(self.task, "canet", self.backbone), changes)
        assert isinstance(settings, CaNetSettings)
        return settings

    @property
    def reads_both_ways(self) -> bool:
        """Whether the estimator reads along the edges and the branches against them."""
        return self.backbone == "gat" and self.settings().direction == "against"

    def erm_settings(self) -> InterventionSettings:
        """Settings of ERM with the same width, depth, direction and optimiser."""
        own = asdict(self.settings())
        shared = fields(InterventionSettings)
        return InterventionSettings(**{field.name: own[field.name] for field in shared})


def cases(full: bool, only: Sequence[str] = ()) -> list[Case]:
    """The cases of a quick or a full benchmark, on all its tasks or on some."""
    for name in only:
        check_name("task", name, TASKS)
    chosen = []
    for task in only or (TASKS if full else QUICK_TASKS):
        numbers = ALL_K if task in TASKS_WITH_ALL_K else (PUBLISHED_K,)
        chosen += [Case(task, "gcn", k) for k in numbers]
        if task == "arxiv":
            chosen += [Case(task, "gcn", k, "symmetric") for k in numbers]
        chosen += [Case(task, "gat", k) for k in numbers]
    return chosen


@lru_cache(maxsize=1)
def load_case_task(name: str, data_root: Path | None) -> ShiftTask:
    """The task of a case; Arxiv has random features, which cost the same."""
    return _arxiv_graph(data_root) if name == "arxiv" else load_task(name, data_root)


def _arxiv_graph(data_root: Path | None) -> ShiftTask:
    """The Arxiv task with real graph, labels and splits, but random features."""
    task = load_task("arxiv", data_root, features="structural")
    x = torch.randn(task.data.x.shape, generator=torch.Generator().manual_seed(0))
    return replace(task, data=replace(task.data, x=x), features="random", checked=True)
