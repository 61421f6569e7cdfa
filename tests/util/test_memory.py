"""Reuse of freed memory, and peak memory."""

from __future__ import annotations

import math
import resource
import subprocess
import sys

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
