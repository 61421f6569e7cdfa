"""A search on a Ray cluster of two nodes, one of which is killed during the search."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from canet.defaults import BEST
from canet.search.search import JOURNAL
from canet.util.files import read_json
from tests.support.processes import wait_until

pytest.importorskip("ray", reason="Ray is not installed")
pytestmark = pytest.mark.slow


def test_trials_of_a_node_that_dies_are_repeated(cluster: Any, tmp_path: Path) -> None:
    out = tmp_path / "search"
    command = [sys.executable, "-m", "canet", "search", "synthetic", "--method", "erm"]
    command += ["--trials", "4", "--epochs", "60", "--jobs", "2", "--device", "cpu", "--quiet"]
    command += ["--ray", cluster.address, "--out", str(out)]

    def scored() -> int:
        """Number of trials with a score."""
        if not (out / JOURNAL).exists():
            return 0
        lines = (out / JOURNAL).read_text().splitlines()
        return sum(json.loads(line).get("values") is not None for line in lines if line)

    with subprocess.Popen(command, cwd=tmp_path) as search:
        wait_until(lambda: scored() >= 1)
        cluster.remove_node(cluster.other, allow_graceful=False)
        assert search.wait() == 0
    best = read_json(out / BEST)
    assert (best["trials"], best["failed"]) == (4, 0)
    assert best["valid"] >= best["start"]["valid"]
