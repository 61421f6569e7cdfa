"""Finished run folders with made-up scores, written without training."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch

from canet.defaults import task_settings
from canet.methods.base import Findings
from canet.store import RunConfig, RunFolder, RunResult
from canet.store.run_folder import RESULT


def make_config(
    task: str = "synthetic",
    method: str = "erm",
    backbone: str = "gcn",
    seed: int = 0,
    data_seed: int = 0,
    ood_curves: bool = False,
    **changes: Any,
) -> RunConfig:
    settings = asdict(task_settings(task, method, backbone)) | changes
    return RunConfig(
        task, "paper", data_seed, "original", False, method, backbone, settings, seed, ood_curves
    )


def make_result(scores: Mapping[str, float], **changes: Any) -> RunResult:
    made = {
        "scores": dict(scores),
        "selection": "best validation",
        "selected_epoch": 2,
        "environments_seen": None,
        "epochs": 2,
        "seconds_per_epoch": 0.01,
        "peak_memory_mb": 100.0,
        "device": "CPU",
        "versions": {"canet": "0", "python": "3", "torch": "2"},
    }
    return RunResult(**made | changes)


def write_run(
    root: Path,
    config: RunConfig,
    scores: Mapping[str, float],
    history: Mapping[str, Sequence[float]] | None = None,
    findings: Findings | None = None,
) -> RunFolder:
    """A finished run with these scores, in the folder of its job."""
    place = RunFolder(root / config.name / f"seed-{config.seed}")
    place.begin(config)
    result = make_result(
        {"train": 0.99, "valid": 0.9, **scores},
        last_scores={name: value - 0.01 for name, value in scores.items()},
        findings=findings,
    )
    curves = history or {"loss": [1.0, 0.5], "valid": [0.5, 0.6]}
    place.finish({"weight": torch.zeros(2)}, {k: list(v) for k, v in curves.items()}, result)
    return place


def change_result(place: RunFolder, **changes: Any) -> None:
    """Change entries of a finished run's result."""
    place.add_json(RESULT, place.read_json(RESULT) | changes)
