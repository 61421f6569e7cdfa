"""Time to read a graph from CSV and from Parquet: `python -m benchmarks.graph_files`."""

from __future__ import annotations

import argparse
import tempfile
import time
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.csv as pa_csv
import pyarrow.parquet as pq

import canet

COLUMNS = 16


def write_graph(root: Path, num_nodes: int, num_edges: int) -> None:
    """Write the same random graph as CSV and as Parquet."""
    random = np.random.default_rng(0)
    ids = random.permutation(num_nodes)
    numbers = {f"x{i}": random.normal(size=num_nodes) for i in range(COLUMNS - 2)}
    nodes = {"id": ids, **numbers, "label": random.integers(0, 5, num_nodes)}
    ends = {end: ids[random.integers(0, num_nodes, num_edges)] for end in ("source", "target")}
    for name, columns in (("nodes", nodes), ("edges", ends)):
        for kind, write in (("csv", pa_csv.write_csv), ("parquet", pq.write_table)):
            (root / kind).mkdir(exist_ok=True)
            write(pa.table(columns), root / kind / f"{name}.{kind}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--nodes", type=int, default=10**6)
    parser.add_argument("--edges", type=int, default=10**7)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        write_graph(Path(folder), 100, 100)
        canet.read_graph(Path(folder) / "csv", label="label")  # imports the libraries
        write_graph(Path(folder), given.nodes, given.edges)
        seconds = {}
        for kind in ("parquet", "csv"):
            start, begin = time.perf_counter(), time.process_time()
            canet.read_graph(Path(folder) / kind, label="label")
            wall, seconds[kind] = time.perf_counter() - start, time.process_time() - begin
            print(f"{kind}: {wall:.2f} s, {seconds[kind]:.2f} s of processor time")
    ratio = seconds["csv"] / seconds["parquet"]
    print(f"CSV takes {ratio:.1f} times the processor time of Parquet")


if __name__ == "__main__":
    main()
