"""A process that measures: jobs come as JSON on standard input, results leave as JSON lines.

On a CPU each contestant has a process to itself, because the memory that counts is the process's.
"""

from __future__ import annotations

import json
import os
import platform
import sys
import warnings
from pathlib import Path
from typing import Any

import torch

from canet.bench.cases import Case, load_case_task
from canet.bench.ceiling import measure_ceiling
from canet.bench.contestants import measure
from canet.bench.growth import measure_point
from canet.bench.memory import cap_memory
from canet.errors import CanetError
from canet.training.trainer import versions


def work(order: dict[str, Any]) -> None:
    """Do the jobs of an order, one after the other."""
    device = torch.device(order["device"])
    root = Path(order["data_root"]) if order["data_root"] else None
    if device.type == "cuda":
        torch.cuda.init()
    allowance = cap_memory() if device.type == "cpu" else None
    for job in order["jobs"]:
        if job["kind"] == "ceiling":
            _tell({"ceiling": measure_ceiling(device)._asdict(), "hardware": _hardware(device)})
        elif job["kind"] == "growth":
            _tell(measure_point(job["backbone"], job["axis"], job["value"], device))
        else:
            case = Case(**job["case"])
            task = load_case_task(case.task, root)
            measured = measure(case, job["contestant"], task, device, order["seconds"])
            if "died" in measured and allowance is not None:
                measured["cap_mb"] = allowance
            size = {"nodes": task.num_nodes, "edges": int(task.data.edge_index.shape[1])}
            _tell(measured | {"size": size | {"features": task.num_features}})


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


def _tell(result: dict[str, Any]) -> None:
    print(json.dumps(result), flush=True)


if __name__ == "__main__":
    warnings.filterwarnings("ignore", message="Sparse")
    try:
        work(json.load(sys.stdin))
    except CanetError as error:
        _tell({"error": str(error)})
