"""Small runs for tests, and what must be the same in two runs."""

from __future__ import annotations

from typing import Any

from canet.store import RunConfig, RunFolder
from canet.store.run_folder import WEIGHTS
from tests.finished import make_config


def tiny_job(seed: int = 0, epochs: int = 2, **changes: Any) -> RunConfig:
    return make_config(seed=seed, epochs=epochs, hidden=8, **changes)


def two_methods() -> list[RunConfig]:
    return [tiny_job(seed, 8, method=name) for name in ("erm", "canet") for seed in range(3)]


def outcome(place: RunFolder) -> dict[str, Any]:
    """What a run must be the same in, however often it was interrupted."""
    return {
        "weights": (place.path / WEIGHTS).read_bytes(),
        "metrics": place.read_metrics(),
        "scores": place.read_result().scores,
        "config": place.read_config(),
    }
