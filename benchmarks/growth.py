"""Growth of the cost of an epoch of CaNet with nodes, edges, K, layers and hidden size.

The graphs are random, and all nodes are used for training and validation. One number varies at a
time; the others have their base value.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

import torch
from torch import Tensor

from benchmarks.implementations import Clock
from benchmarks.memory import Meter, out_of_memory
from canet.methods import Batch, Method
from canet.methods.canet import CaNetMethod, CaNetSettings
from canet.nn import NormalisedGraph
from canet.scoring.metrics import METRICS
from canet.training.loop import EPOCHS_BETWEEN_CHECKS, Loop, train_loops
from canet.util.torch_state import seeded

NUM_FEATURES, NUM_CLASSES = 64, 10
CHECKS = 4


@dataclass(frozen=True)
class Size:
    """Size of a graph and of a model."""

    nodes: int
    edges: int
    k: int = 3
    layers: int = 2
    hidden: int = 64


BASES = {"cpu": Size(50_000, 500_000), "cuda": Size(200_000, 2_000_000)}
MODEL_AXES = {"k": (1, 2, 4, 8, 16), "layers": (1, 2, 4, 8), "hidden": (16, 32, 64, 128, 256)}
AXES: dict[str, dict[str, tuple[int, ...]]] = {
    "cpu": {
        "nodes": (25_000, 50_000, 100_000, 200_000),
        "edges": (500_000, 1_000_000, 2_000_000, 4_000_000),
        **MODEL_AXES,
    },
    "cuda": {
        "nodes": (200_000, 400_000, 800_000, 1_600_000),
        "edges": (2_000_000, 8_000_000, 32_000_000),
        **MODEL_AXES,
    },
}

AXIS_NAMES = {
    "nodes": "nodes",
    "edges": "edges",
    "k": "environments K",
    "layers": "layers",
    "hidden": "hidden size",
}


def points(device: str) -> list[tuple[str, int]]:
    """The measured points: axis and value."""
    return [(axis, value) for axis, values in AXES[device].items() for value in values]


def measure_point(backbone: str, axis: str, value: int, device: torch.device) -> dict[str, Any]:
    """Cost of a point; the base size, which is on every axis, is measured once per process."""
    return measure_size(replace(BASES[device.type], **{axis: value}), backbone, device)


@cache
def measure_size(size: Size, backbone: Any, device: torch.device) -> dict[str, Any]:
    """Times per epoch and peak memory on a random graph; `died` if it runs out of memory."""
    meter = Meter(device)
    between = EPOCHS_BETWEEN_CHECKS if device.type == "cuda" else 1
    settings = CaNetSettings(
        hidden=size.hidden,
        num_layers=size.layers,
        num_environments=size.k,
        epochs=CHECKS * between,
    )
    clock = Clock()
    measured: dict[str, Any] = {}
    try:
        with seeded(0, device):
            method = CaNetMethod(settings, backbone, NUM_FEATURES, NUM_CLASSES).to(device)
            batch = random_batch(size, method, device)

            def score(method: Method, split: str) -> Tensor:
                return METRICS["accuracy"](method.predict(batch), batch.y)

            train_loops([Loop(method, settings, batch, score)], [None], clock)
        measured = {"times": clock.times()}
    except (RuntimeError, MemoryError) as error:
        if not out_of_memory(error):
            raise
        measured = {"died": "out of memory"}
    return measured | {"peak_mb": meter.peak_mb(), "level_mb": meter.level_mb}


def random_batch(size: Size, method: CaNetMethod, device: torch.device) -> Batch:
    """All nodes of a random graph that is built on the device."""
    edge_index = torch.randint(size.nodes, (2, size.edges), device=device)
    graph = NormalisedGraph(edge_index, size.nodes, method.model.operators)
    x = torch.randn(size.nodes, NUM_FEATURES, device=device)
    y = torch.randint(NUM_CLASSES, (size.nodes,), device=device)
    return Batch(x, graph.whole(size.layers).blocks, y)


def slope(values: Sequence[float], costs: Sequence[float]) -> float:
    """Least-squares slope of log cost against log value: 1 is proportional growth."""
    x, y = [math.log(value) for value in values], [math.log(cost) for cost in costs]
    mean_x, mean_y = sum(x) / len(x), sum(y) / len(y)
    covariance = sum((a - mean_x) * (b - mean_y) for a, b in zip(x, y, strict=True))
    return covariance / sum((a - mean_x) ** 2 for a in x)
