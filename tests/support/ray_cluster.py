"""A Ray cluster for tests."""

import os
import sys
from collections.abc import Iterator
from typing import Any

import pytest


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """A head and another node of one CPU each, whose workers find this package."""
    import ray
    from ray.cluster_utils import Cluster

    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(sys.path))
    made = Cluster(initialize_head=True, head_node_args={"num_cpus": 1, "include_dashboard": False})
    made.other = made.add_node(num_cpus=1)
    yield made
    ray.shutdown()
    made.shutdown()
