"""Finished run folders with made-up scores, written without training."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from canet.presets import preset
from canet.settings import recorded
from canet.store import RunConfig, RunFolder
from canet.store.run_folder import CONFIG, MARKER, METRICS, RESULT
from canet.util.files import write_json


def make_config(
    task: str = "synthetic",
    method: str = "erm",
    backbone: str = "gcn",
    seed: int = 0,
    data_seed: int = 0,
    ood_curves: bool = False,
    **changes: Any,
) -> RunConfig:
    settings = recorded(preset(task, method, backbone)) | changes
    return RunConfig(
        task, "paper", data_seed, "original", False, method, backbone, settings, seed, ood_curves
    )


def write_run(
    root: Path,
    config: RunConfig,
    scores: Mapping[str, float],
    history: Mapping[str, Sequence[float]] | None = None,
    findings: Mapping[str, Any] | None = None,
) -> RunFolder:
    """A finished run with these scores, in the folder of its job."""
    folder = root / config.name / f"seed-{config.seed}"
    write_json(folder / CONFIG, asdict(config))
    write_json(folder / METRICS, history or {"loss": [1.0, 0.5], "valid": [50.0, 60.0]})
    result = {
        "scores": {"train": 99.0, "valid": 90.0, **scores},
        "selection": "best validation",
        "selected_epoch": 2,
        "environments_seen": None,
        "epochs": 2,
        "seconds_per_epoch": 0.01,
        "peak_memory_mb": 100.0,
        "device": "CPU",
        "versions": {"canet": "0", "python": "3", "torch": "2"},
        "last_scores": {name: value - (value >= 1) for name, value in scores.items()},
        "findings": dict(findings or {}),
    }
    write_json(folder / RESULT, result)
    (folder / MARKER).touch()
    return RunFolder(folder)
