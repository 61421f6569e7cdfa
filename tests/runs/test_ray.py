"""Runs on a Ray cluster of two nodes, one of which is killed in the middle."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from canet.errors import CanetError
from canet.runs import job_folder, run_jobs
from canet.runs.engine import WorkerDied
from tests.runs.processes import wait_until
from tests.runs.test_engine import leave
from tests.runs.test_run import outcome, tiny_job

ray = pytest.importorskip("ray", reason="Ray is not installed")
pytestmark = pytest.mark.slow


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """A head and another node of one CPU each, whose workers find this package."""
    from ray.cluster_utils import Cluster

    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(sys.path))
    made = Cluster(initialize_head=True, head_node_args={"num_cpus": 1, "include_dashboard": False})
    made.other = made.add_node(num_cpus=1)
    yield made
    ray.shutdown()
    made.shutdown()


def test_runs_of_a_node_that_dies_are_repeated_elsewhere_to_the_same_result(
    cluster: Any, tmp_path: Path
) -> None:
    configs = [tiny_job(seed, epochs=150) for seed in range(4)]
    command = [sys.executable, "-c", CALL, str(tmp_path / "ray"), cluster.address]
    with subprocess.Popen(command) as caller:
        places = [job_folder(tmp_path / "ray", config) for config in configs]
        wait_until(lambda: any(place.finished for place in places))
        cluster.remove_node(cluster.other, allow_graceful=False)
        assert caller.wait() == 0
    assert all(place.finished for place in places)
    assert run_jobs(configs, tmp_path / "here", device="cpu", quiet=True) == []
    for config, place in zip(configs, places, strict=True):
        assert outcome(place) == outcome(job_folder(tmp_path / "here", config))


CALL = """
import sys
from pathlib import Path
from canet.runs import run_jobs
from tests.runs.test_run import tiny_job

configs = [tiny_job(seed, epochs=150) for seed in range(4)]
failed = run_jobs(configs, Path(sys.argv[1]), 2, "cpu", quiet=True, ray=sys.argv[2])
sys.exit(len(failed))
"""


def test_errors_and_deaths_of_tasks_come_back_as_from_other_engines(cluster: Any) -> None:
    from canet.runs.ray import Cluster

    with Cluster(cluster.address, 1, "cpu") as engine:
        assert engine.size == 2
        assert engine.submit(0, abs, -3).result() == 3
        with pytest.raises(ValueError, match="four"):
            engine.submit(0, int, "four").result()
        begin = time.monotonic()
        with pytest.raises(WorkerDied):
            engine.submit(0, leave, 3).result()
        assert time.monotonic() - begin < 60


def test_an_address_where_no_cluster_is_is_refused() -> None:
    from canet.runs.ray import Cluster

    with pytest.raises(CanetError, match=r"no Ray cluster at '127\.0\.0\.1:1'"):
        Cluster("127.0.0.1:1", 1, "cpu")
