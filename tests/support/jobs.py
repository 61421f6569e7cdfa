"""Small runs for tests, and the parts that must be equal in two runs."""

from typing import Any

from canet.store import RunConfig, RunFolder
from canet.store.run_folder import WEIGHTS
from tests.support.finished import make_config


def tiny_job(seed: int = 0, epochs: int = 2, **changes: Any) -> RunConfig:
    return make_config(seed=seed, epochs=epochs, hidden=8, **changes)


def two_methods() -> list[RunConfig]:
    return [tiny_job(seed, 8, method=name) for name in ("erm", "canet") for seed in range(3)]


def outcome(folder: RunFolder) -> dict[str, Any]:
    """The parts of a run that must not depend on interruptions."""
    return {
        "weights": (folder.path / WEIGHTS).read_bytes(),
        "metrics": folder.read_metrics(),
        "scores": folder.read_result().scores,
        "config": folder.read_config(),
    }
