"""`auto` on a graph store and a Ray cluster of two nodes, one of which is killed."""

import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import canet
from tests.support.processes import wait_until
from tests.support.stores import write_store

pytest.importorskip("ray", reason="Ray is not installed")
pytestmark = pytest.mark.slow

CALL = """
import sys
import canet
from tests.support.stores import never_load
import pytest

folder, address = sys.argv[1:]
never_load(pytest.MonkeyPatch())
how = dict(batch_size=16, fanout="5,5", epochs=100, hidden=16, threads=1, device="cpu", verbose=0)
model = canet.NodeClassifier(ray=address or None, checkpoints=f"{folder}/runs", **how)
model.fit(f"{folder}/store").save(f"{folder}/model")
"""


def test_a_node_that_dies_does_not_change_the_model(cluster: Any, tmp_path: Path) -> None:
    for name in ("here", "ray"):
        (tmp_path / name).mkdir()
        write_store(tmp_path / name / "store")
    command = [sys.executable, "-c", CALL]
    subprocess.run([*command, str(tmp_path / "here"), ""], check=True)
    with subprocess.Popen([*command, str(tmp_path / "ray"), cluster.address]) as caller:
        finished = "runs/*/seed-0/.work/[et]*/*/seed-0/done"
        wait_until(lambda: any((tmp_path / "ray").glob(finished)) or caller.poll() is not None)
        assert caller.poll() is None
        cluster.remove_node(cluster.other, allow_graceful=False)
        assert caller.wait() == 0
    models = [canet.load(tmp_path / name / "model") for name in ("here", "ray")]
    stores = [tmp_path / name / "store" for name in ("here", "ray")]
    first, second = (m.predict_proba(s) for m, s in zip(models, stores, strict=True))
    assert np.array_equal(first, second)
    candidates = [[(c.name, c.likelihood, c.weight) for c in m.candidates_] for m in models]
    assert candidates[0] == candidates[1]


def test_a_connection_of_the_caller_is_used_and_kept(cluster: Any) -> None:
    import ray

    from canet.util.ray import Cluster

    ray.init(address=cluster.address, log_to_driver=False)
    with Cluster(cluster.address, 1, "cpu") as pool:
        assert pool.submit(abs, -1).result() == 1
    assert ray.is_initialized()
