"""Runs on a Ray cluster of two nodes, one of which is killed during the runs."""

import os
import subprocess
import sys
from concurrent.futures import BrokenExecutor
from pathlib import Path
from typing import Any

import pytest

from canet.errors import CanetError
from canet.runs import job_folder, run_jobs
from tests.support.jobs import outcome, tiny_job
from tests.support.processes import wait_until

pytest.importorskip("ray", reason="Ray is not installed")
pytestmark = pytest.mark.slow


def test_runs_of_a_node_that_dies_are_repeated_with_the_same_result(
    cluster: Any, tmp_path: Path
) -> None:
    configs = [tiny_job(seed, epochs=150) for seed in range(4)]
    command = [sys.executable, "-c", CALL, str(tmp_path / "ray"), cluster.address]
    with subprocess.Popen(command) as caller:
        folders = [job_folder(tmp_path / "ray", config) for config in configs]
        wait_until(lambda: any(folder.finished for folder in folders))
        cluster.remove_node(cluster.other, allow_graceful=False)
        assert caller.wait() == 0
    assert all(folder.finished for folder in folders)
    assert run_jobs(configs, tmp_path / "here", device="cpu", quiet=True) == []
    for config, folder in zip(configs, folders, strict=True):
        assert outcome(folder) == outcome(job_folder(tmp_path / "here", config))


CALL = """
import sys
from pathlib import Path
from canet.runs import run_jobs
from tests.support.jobs import tiny_job

configs = [tiny_job(seed, epochs=150) for seed in range(4)]
failed = run_jobs(configs, Path(sys.argv[1]), jobs=2, device="cpu", quiet=True, ray=sys.argv[2])
sys.exit(len(failed))
"""


def test_errors_and_crashes_of_tasks_are_raised_as_with_processes(cluster: Any) -> None:
    from canet.util.ray import Cluster

    with Cluster(cluster.address, 1, "cpu") as pool:
        assert pool.size == 2
        assert pool.submit(abs, -3).result() == 3
        with pytest.raises(ValueError, match="four"):
            pool.submit(int, "four").result()
        with pytest.raises(BrokenExecutor):
            pool.submit(os._exit, 3).result()


@pytest.mark.parametrize(
    ("address", "variable", "words"),
    [
        ("127.0.0.1:1", None, r"'127\.0\.0\.1:1'"),
        ("auto", "127.0.0.1:1", r"127\.0\.0\.1:1"),
        ("auto", None, "ray start"),
    ],
)
def test_an_address_without_a_cluster_is_rejected_and_none_is_started(
    address: str, variable: str | None, words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    from canet.util.ray import Cluster

    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    if variable:
        monkeypatch.setenv("RAY_ADDRESS", variable)
    with pytest.raises(CanetError, match=words):
        Cluster(address, 1, "cpu")
