"""Time of each step of a user of `NodeClassifier`: `python -m benchmarks user_graph`.

Each graph is measured in its own process, so that imports and memory are those of a user. Therefore
this file does not import canet at the top. Cora and the bags of words are arrays; the tables are
read from Parquet.
"""

from __future__ import annotations

import copy
import json
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

STAGES = (
    "import",
    "read",
    "fit less epochs",
    "100 epochs",
    "predict",
    "one node",
    "requests/s",
    "diagnose",
    "save",
    "load",
    "peak GB",
)
SHAPES = {
    "words dense": (9_360, 6_775),
    "words sparse": (9_360, 6_775),
    "table 10⁵": (100_000, 50),
    "table 10⁶": (1_000_000, 50),
}
GRAPHS = ("cora", *SHAPES)
DEGREE = 10
REQUESTS = 200  # predictions for one node each on a prepared graph
EPOCHS = {"table 10⁶": 4}  # timed epochs; their time is scaled to 100
PROGRAM = """
import json, sys, tempfile
from pathlib import Path
from benchmarks.user_graph import measure
with tempfile.TemporaryDirectory() as folder:
    print(json.dumps(measure(sys.argv[1], Path(folder), *json.loads(sys.argv[2]))))
"""


@contextmanager
def timed(seconds: dict[str, float], stage: str) -> Iterator[None]:
    begin = time.perf_counter()
    yield
    seconds[stage] = time.perf_counter() - begin


def measure(name: str, folder: Path, device: str, with_diagnosis: bool) -> dict[str, float]:
    """Measure the seconds of each stage for one graph."""
    seconds: dict[str, float] = {}
    with timed(seconds, "import"):
        import canet

        make: Callable[..., Any] = canet.NodeClassifier
    data: Any
    if name.startswith("table"):
        write_table(folder, *SHAPES[name])
        with timed(seconds, "read"):
            data = canet.read_graph(folder, label="label")
    elif name == "cora":
        data = cora()
    else:
        data = words(*SHAPES[name], sparse=name.endswith("sparse"))
    settings = {"method": "erm", "backbone": "gcn", "undirected": True, "device": device}
    more = EPOCHS.get(name, 20)
    fits: dict[str, float] = {}
    for epochs in (1, 1, 1 + more):  # the first fit loads libraries and fills caches
        model = make(**settings, epochs=epochs, verbose=0)
        data = copy.copy(data)  # an object that has not been validated yet
        with timed(fits, str(epochs)):
            model.fit(data)
    each = (fits[str(1 + more)] - fits["1"]) / more
    seconds |= {"fit less epochs": fits["1"] - each, "100 epochs": 100 * each}
    with timed(seconds, "predict"):
        model.predict(data)
    with timed(seconds, "one node"):
        model.predict(data, nodes=[0])
    prepared = model.prepare(data)
    with timed(seconds, "requests"):
        for node in range(REQUESTS):
            model.predict(prepared, nodes=[node])
    seconds["requests/s"] = REQUESTS / seconds.pop("requests")
    if with_diagnosis:
        with timed(seconds, "diagnose"):
            canet.diagnose(model, new_data=data)
    with timed(seconds, "save"):
        model.save(folder / "model", overwrite=True)
    with timed(seconds, "load"):
        canet.load(folder / "model")
    from canet.util.memory import peak_resident_mb

    return seconds | {"peak GB": peak_resident_mb() / 1024}


def measure_in_process(name: str, device: str, with_diagnosis: bool) -> dict[str, float]:
    """Run `measure` in its own process."""
    command = [sys.executable, "-c", PROGRAM, name, json.dumps([device, with_diagnosis])]
    done = subprocess.run(command, stdout=subprocess.PIPE, check=True, text=True)
    seconds: dict[str, float] = json.loads(done.stdout)
    return seconds


def cora() -> Any:
    """The first domain of Cora: 2,708 nodes, sparse features and spurious columns."""
    from torch_geometric.data import Data

    from canet import load_task

    whole = load_task("cora").data
    assert whole.environment is not None
    first = whole.subgraph((whole.environment == 0).nonzero().flatten())
    return Data(first.x, first.edge_index, y=first.y)


def words(num_nodes: int, width: int, sparse: bool) -> Any:
    """Bags of words with 0.5 % non-zero entries; some words depend on the class."""
    import numpy as np
    import torch
    from torch_geometric.data import Data

    random = np.random.default_rng(0)
    y = random.integers(0, 5, num_nodes)
    x = (random.random((num_nodes, width), dtype=np.float32) < 0.005).astype(np.float32)
    for label in range(5):
        own = random.random((num_nodes, 20)) < 0.2 * (y == label)[:, None]
        x[:, 20 * label : 20 * label + 20] += own
    features = torch.from_numpy(x)
    edges = torch.from_numpy(random.integers(0, num_nodes, (2, 3 * num_nodes)))
    return Data(
        x=features.to_sparse_csr() if sparse else features,
        edge_index=edges,
        y=torch.from_numpy(y),
    )


def write_table(folder: Path, num_nodes: int, width: int) -> None:
    """Write a table of random numbers; the label depends on the first column."""
    import numpy as np
    import pyarrow as pa
    import pyarrow.parquet as pq

    random = np.random.default_rng(0)
    columns = {f"x{i}": random.normal(size=num_nodes) for i in range(width)}
    label = (columns["x0"] + random.normal(size=num_nodes) > 0).astype(np.int64)
    nodes = {"id": np.arange(num_nodes), **columns, "label": label}
    ends = random.integers(0, num_nodes, (2, DEGREE * num_nodes))
    pq.write_table(pa.table(nodes), folder / "nodes.parquet")
    pq.write_table(pa.table({"source": ends[0], "target": ends[1]}), folder / "edges.parquet")
