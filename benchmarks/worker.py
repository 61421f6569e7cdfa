"""One job of a benchmark, run in a worker process.

On a CPU each implementation has its own process, because memory is measured per process.
"""

from __future__ import annotations

import os
import platform
import warnings
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import torch

from benchmarks.cases import Case, load_case_task
from benchmarks.ceiling import measure_ceiling
from benchmarks.growth import measure_point
from benchmarks.implementations import measure
from benchmarks.memory import cap_memory
from canet.store.result import versions

Job = dict[str, Any]


class Order(NamedTuple):
    """Options that all jobs share: device, time and data."""

    device: str
    seconds: float
    data_root: Path | None


@cache
def _allowance() -> float | None:
    """MB that this process may allocate; the limit is set with its first job."""
    return cap_memory()


def work(job: Job, order: Order) -> dict[str, Any]:
    """Run one measurement."""
    warnings.filterwarnings("ignore", message="Sparse")
    device = torch.device(order.device)
    if device.type == "cuda":
        torch.cuda.init()
    allowance = _allowance() if device.type == "cpu" else None
    if job["kind"] == "ceiling":
        return {"ceiling": measure_ceiling(device)._asdict(), "hardware": _hardware(device)}
    if job["kind"] == "growth":
        return measure_point(job["backbone"], job["axis"], job["value"], device)
    case = Case(**job["case"])
    task = load_case_task(case.task, order.data_root)
    measured = measure(case, job["implementation"], task, device, order.seconds)
    if "died" in measured and allowance is not None:
        measured["cap_mb"] = allowance
    size = {"nodes": task.num_nodes, "edges": task.data.num_edges}
    return measured | {"size": size | {"features": task.num_features}}


def _hardware(device: torch.device) -> dict[str, Any]:
    gpu = torch.cuda.get_device_name(device) if device.type == "cuda" else None
    return {
        "cpu": _cpu_model(),
        "cores": os.cpu_count(),
        "threads": torch.get_num_threads(),
        "memory_gb": round(os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") / 2**30, 1),
        "gpu": gpu,
        "versions": versions(),
    }


def _cpu_model() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return platform.processor() or platform.machine()
    models = [line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")]
    return models[0] if models else platform.machine()
