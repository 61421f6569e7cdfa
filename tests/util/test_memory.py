"""Reuse of freed memory, peak memory, and free memory."""

import math
import resource
import subprocess
import sys
from pathlib import Path

import pytest

from canet.util import memory

PROGRAM = """
import resource, torch
from canet.util.memory import keep_freed_memory
{}
torch.set_num_threads(1)
for _ in range(30):
    torch.ones(2**24)
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
for _ in range(20):
    torch.ones(2**24)
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""


@pytest.mark.slow
@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="a setting of glibc")
def test_freed_memory_is_reused_without_page_faults() -> None:
    """Without `keep_freed_memory` every page causes a fault, unless torch has its own allocator."""
    program = PROGRAM.format("keep_freed_memory()")
    faults = int(subprocess.check_output([sys.executable, "-c", program], text=True))
    assert faults < 0.01 * 20 * 2**24 * 4 / resource.getpagesize()


def test_peak_memory_is_reported_or_nan(monkeypatch: pytest.MonkeyPatch) -> None:
    assert 10 < memory.peak_resident_mb() < 2**20
    monkeypatch.setattr(memory, "resource", None)
    assert math.isnan(memory.peak_resident_mb())


@pytest.mark.parametrize(
    ("limits", "left"),
    [
        ({}, 8_000 * 1024),
        ({"": "max", "slurm/job": "max"}, 8_000 * 1024),
        ({"slurm/job": "5000"}, 5000 - 700 + 200),
        ({"slurm": "3000", "slurm/job": "5000"}, 3000 - 700 + 200),
        ({"": "500"}, 0),
    ],
)
def test_free_memory_is_what_the_machine_and_all_limits_leave(
    limits: dict[str, str], left: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "proc" / "self").mkdir(parents=True)
    (tmp_path / "proc" / "meminfo").write_text("MemTotal: 9000 kB\nMemAvailable:   8000 kB\n")
    (tmp_path / "proc" / "self" / "cgroup").write_text("1:cpu:/other\n0::/slurm/job\n")
    groups = tmp_path / "groups"
    for group, limit in limits.items():
        (groups / group).mkdir(parents=True, exist_ok=True)
        (groups / group / "memory.max").write_text(limit + "\n")
        (groups / group / "memory.current").write_text("700\n")
        (groups / group / "memory.stat").write_text("anon 500\ninactive_file 200\n")
    monkeypatch.setattr(memory, "PROC", tmp_path / "proc")
    monkeypatch.setattr(memory, "GROUPS", groups)
    assert memory.free_memory() == left


def test_free_memory_is_unknown_without_the_files_of_the_system(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(memory, "PROC", tmp_path)
    assert memory.free_memory() is None
