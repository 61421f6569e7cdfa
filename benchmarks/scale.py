"""Speed and memory on graphs of growing size: `python -m benchmarks scale`.

Each size is measured in its own process, so that the peak memory is that of one size. On the CPU,
the graph is a graph store on disk. On a GPU, the graph and its features are generated there.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import torch

from benchmarks.ceiling import copy_bandwidth
from benchmarks.rmat import RMat
from canet import NodeClassifier
from canet.data.graph_store import GraphStore, GraphStoreWriter
from canet.data.user_task import user_task
from canet.methods import BACKBONES, Method, get_method
from canet.models import Auto, Trainer
from canet.nn import NormalisedGraph
from canet.nn.operations import select_rows
from canet.reading.rows import RowCache
from canet.training.device_batches import DeviceBatches, DeviceData
from canet.training.epochs import epochs_of
from canet.training.fields import TaskFields
from canet.util.devices import device_name, pick_device
from canet.util.memory import keep_freed_memory
from canet.util.sparse import Csr

BATCH = 1024
FEATURES, DEGREE = 128, 15
CPU_FANOUT, GPU_FANOUT = (15, 10), (15, 10, 5)
CPU_HIDDEN, GPU_HIDDEN = 64, 256
NODES_PER_SEED = 10
"""One of so many nodes on the CPU is a training node."""
VALID = 1_000
TIMED_BATCHES = 40
EDGES_ON_GPU = 2**27
PAPERS = {"nodes": 111_000_000, "edges": 1_600_000_000, "seeds": 1_200_000}
"""Sizes of ogbn-papers100M."""
PROGRAM = "import sys; from benchmarks.scale import main; main(*sys.argv[1:])"


def measure_in_process(device: str, *arguments: Any) -> dict[str, Any]:
    """Measure one size in a new process."""
    command = [sys.executable, "-c", PROGRAM, device, json.dumps(arguments)]
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def main(device: str, arguments: str) -> None:
    """Measure one size, and print the result as JSON."""
    if device != "default":  # as in Python, where a user calls NodeClassifier
        keep_freed_memory()
    kinds: dict[str, Callable[..., dict[str, Any]]] = {
        "cpu": measure_store,
        "default": measure_default,
        "cuda": measure_on_gpu,
    }
    print(json.dumps(kinds[device](*json.loads(arguments))))


def measure_store(num_nodes: int, threads: int, folder: str) -> dict[str, Any]:
    """Convert, train and predict a graph of `num_nodes` nodes on disk."""
    torch.set_num_threads(threads)
    graph = RMat(num_nodes, DEGREE * num_nodes, FEATURES)
    found: dict[str, Any] = {"nodes": num_nodes, "edges": graph.num_edges}
    with tempfile.TemporaryDirectory(dir=folder) as place, PeakMemory() as peak:
        path = Path(place) / "store"
        found["convert s"] = convert(graph, path)
        store = GraphStore(path)
        found["store GB"] = store.size / 1e9
        kind = get_method("erm")
        fanout = ",".join(map(str, CPU_FANOUT))
        settings = kind.settings_type(hidden=CPU_HIDDEN, batch_size=BATCH, fanout=fanout)
        task = user_task(store.open()).task
        trainer = Trainer(task, "erm", "sage", settings, "cpu", threads=threads)
        method = trainer.learner.new_method(task)
        optimizer = torch.optim.Adam(method.parameters(), lr=0.001)
        fields = trainer.fields
        found |= stages(fields, method, optimizer)
        begin = time.perf_counter()
        loss = epochs_of(fields, method, BATCH, CPU_FANOUT, 0)(method, optimizer, 1)
        seconds = time.perf_counter() - begin
        found |= {"seeds": task.train.numel(), "train s": seconds, "loss": float(loss)}
        begin, predicted = time.perf_counter(), 0
        method.eval()
        for ids, _ in fields.of("train").predict(method.model):
            predicted += ids.numel()
        assert predicted == num_nodes
        found["predict s"] = time.perf_counter() - begin
    found["peak GB"] = peak.bytes / 1e9
    found["copy GB/s"] = copy_bandwidth(torch.device("cpu")) / 1e9
    return found


def measure_default(
    num_nodes: int, threads: int, folder: str, time_limit: float, device: str
) -> dict[str, Any]:
    """Fit the default on a graph store of `num_nodes` nodes."""
    torch.set_num_threads(threads)
    with tempfile.TemporaryDirectory(dir=folder) as place:
        path = Path(place) / "store"
        convert(RMat(num_nodes, DEGREE * num_nodes, FEATURES, device), path)
        return fit_default(path, time_limit, device)


def fit_default(path: Path, time_limit: float, device: str) -> dict[str, Any]:
    """Fit the default on a graph store."""
    first, model = list[float](), NodeClassifier(time_limit=time_limit, device=device)
    trying, begin = Auto._try, time.perf_counter()

    def timed(*arguments: Any) -> Any:
        found = trying(*arguments)
        first.append(time.perf_counter() - begin)
        return found

    with patch.object(Auto, "_try", timed), PeakMemory() as peak:
        model.fit(path)
    seconds, store = time.perf_counter() - begin, GraphStore(path)
    return {
        "nodes": store.num_nodes,
        "default device": device_name(pick_device(device), torch.get_num_threads()),
        "default s": seconds,
        "default first s": first[0],
        "default limit s": time_limit,
        "default models": sum(not one.note for one in model.candidates_),
        "default names": [one.name for one in model.candidates_ if not one.note],
        "default batches": model.settings_["batch_size"] > 0,
        "default peak GB": peak.bytes / 1e9,
        "arrays GB": (4 * store.num_nodes * FEATURES + 16 * store.num_edges) / 1e9,
    }


def convert(graph: RMat, path: Path) -> float:
    """Write the graph as a store, and return the seconds without those to generate it.

    On a GPU, the edges are also sorted there, and the features have half precision.
    """
    generating, begin, on_gpu = Stopwatch(), time.perf_counter(), graph.device != "cpu"
    with GraphStoreWriter(path, graph.num_nodes) as writer:
        if on_gpu:
            writer._edges = SortedOnGPU(graph)  # type: ignore[assignment]
        for source, target in () if on_gpu else generating.over(graph.edges()):
            writer.add_edges(source, target)
        labels, dtype = graph.labels(), torch.half if on_gpu else torch.float
        for rows in generating.over(graph.features(labels, dtype)):
            writer.add_features(rows.cpu())
        writer.set_labels(labels.cpu())
        order = torch.randperm(graph.num_nodes, generator=torch.Generator().manual_seed(0))
        num_seeds = PAPERS["seeds"] if on_gpu else graph.num_nodes // NODES_PER_SEED
        num_valid = min(VALID, num_seeds)
        train, valid = order[:num_seeds], order[num_seeds : num_seeds + num_valid]
        writer.set_split({"train": train, "valid": valid})
    return time.perf_counter() - begin - generating.seconds


class SortedOnGPU:
    """The edges of a graph, sorted on a GPU, in place of those that a writer sorts on disk."""

    def __init__(self, graph: RMat) -> None:
        self._graph = graph

    def parts(self) -> Iterator[tuple[np.ndarray, np.ndarray, None]]:
        """Yield the edges by target and source, each once."""
        rowptr, source = self._graph.neighbours()
        first = 0
        while first < self._graph.num_nodes:
            most = int(rowptr[first]) + EDGES_ON_GPU
            last = max(first + 1, int(torch.searchsorted(rowptr, most, right=True)) - 1)
            bounds = rowptr[first : last + 1]
            target = torch.arange(first, last, device=source.device)
            target = target.repeat_interleave(bounds.diff())
            key = (target << 32 | source[int(bounds[0]) : int(bounds[-1])]).unique()
            yield (key >> 32).cpu().numpy(), (key & 2**32 - 1).cpu().numpy(), None
            first = last


def stages(
    fields: TaskFields, method: Method, optimizer: torch.optim.Optimizer
) -> dict[str, float]:
    """Return the seconds per batch of each stage, one after the other, and the bytes moved."""
    sample, fetch, train = Stopwatch(), Stopwatch(), Stopwatch()
    own, order = fields.of("train"), fields.task.train
    method.train()
    moved = rows = 0
    for number, nodes in enumerate(islice(order.split(BATCH), TIMED_BATCHES)):
        with sample:
            field = own.on().sampled_field(nodes, CPU_FANOUT, number)
        with fetch:
            x = own.reader.rows(field.nodes)
        assert isinstance(x, torch.Tensor)
        with train:
            method.update(fields.training_batch(nodes, x, field.blocks), optimizer)
        rows += x.shape[0]
        entries = sum(m.pattern.nnz for b in field.blocks for m in b.matrices.values())
        moved += 2 * x.numel() * x.element_size() + 12 * entries  # read and write; ids and values
    count = number + 1
    watches = {"sample": sample, "fetch": fetch, "train": train}
    return {
        **{f"{name} ms": 1000 * watch.seconds / count for name, watch in watches.items()},
        "rows": rows / count,
        "moved MB": moved / count / 1e6,
    }


def measure_on_gpu(
    method: str, precision: str, kept: float = 1.0, scale: float = 1.0
) -> dict[str, Any]:
    """Measure an epoch of three layers on a graph of the size of papers100M, times `scale`.

    The GPU holds the features of the share `kept` of all nodes and reads the others from pinned
    memory.
    """
    torch.set_float32_matmul_precision(precision)
    device = torch.device("cuda")
    num_nodes, num_edges = int(scale * PAPERS["nodes"]), int(scale * PAPERS["edges"])
    graph = RMat(num_nodes, num_edges, FEATURES, "cuda")
    rowptr, source = graph.neighbours()
    y = graph.labels()
    place: dict[str, Any] = {"device": device} if kept == 1 else {"pin_memory": True}
    x = torch.empty(graph.num_nodes, FEATURES, dtype=torch.half, **place)
    first = 0
    for rows in graph.features(y, torch.half):
        x[first : first + len(rows)] = rows
        first += len(rows)
    (connected,) = (rowptr.diff() > 0).nonzero(as_tuple=True)
    order = torch.randperm(connected.numel(), generator=torch.Generator().manual_seed(0))
    seeds = connected[order[: min(PAPERS["seeds"], connected.numel())].to(device)]
    torch.manual_seed(0)
    kind = get_method(method)
    settings = kind.settings_type(hidden=GPU_HIDDEN, num_layers=3, dropout=0.0)
    made = kind(settings, BACKBONES["sage"], FEATURES, graph.num_classes).to(device).train()
    lazy = NormalisedGraph(Csr(rowptr, source), num_nodes, made.model.operators)
    read: Callable[[torch.Tensor], torch.Tensor] = partial(select_rows, x)
    if kept < 1:
        num_bytes = int(kept * x.numel() * x.element_size())
        read = RowCache(x, lazy.num_readers(), num_bytes, device).rows
    optimizer = torch.optim.Adam(made.parameters(), lr=0.001, fused=True, capturable=True)
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    epochs: list[float] = []
    with torch.cuda.stream(stream):
        batches = DeviceBatches(DeviceData(lazy, read, y), seeds, BATCH, GPU_FANOUT)
        for epoch in range(4):  # the first one compiles and captures
            torch.cuda.synchronize()
            begin = time.perf_counter()
            loss = float(batches.train(made, optimizer, epoch))
            epochs.append(time.perf_counter() - begin)
    drawn = batches.largest()
    limit = bytes_of_step(drawn) * seeds.numel() / BATCH / copy_bandwidth(device)
    return {
        "method": method,
        "precision": precision,
        "features on GPU": kept,
        "nodes": graph.num_nodes,
        "edges": graph.num_edges,
        "seeds": seeds.numel(),
        "epoch s": sorted(epochs[1:])[1],
        "loss": loss,
        "rows": drawn[-1][0],
        "limit s": limit,
        "peak GB": torch.cuda.max_memory_allocated() / 1e9,
        "copy GB/s": copy_bandwidth(device) / 1e9,
    }


def bytes_of_step(sizes: list[list[int]]) -> int:
    """Count the bytes that a step of plain GraphSAGE must move, for the largest batch.

    Each value is written once and read once by whatever needs it; products of matrices are assumed
    to read their weights from a cache. `sizes` are the nodes and neighbours after each hop.
    """
    rows, state = sizes[-1][0], 4 * GPU_HIDDEN
    features = rows * FEATURES * (2 + 4 + 4 + 4)  # half precision, a float copy, and its two uses
    total = features + rows * state * 4  # first states and their gradients, written and read
    for (num_dst, _), (_, entries) in zip(sizes[-2::-1], sizes[:0:-1], strict=True):
        # The states of neighbours and own states are read, their sum and the result are written.
        total += 2 * (entries * state + 4 * num_dst * state)  # forward and backward
    return total


class Stopwatch:
    """Adds up the seconds inside `with` blocks or inside an iterator."""

    def __init__(self) -> None:
        self.seconds = 0.0

    def __enter__(self) -> None:
        self._begin = time.perf_counter()

    def __exit__(self, *_: object) -> None:
        self.seconds += time.perf_counter() - self._begin

    def over(self, items: Iterator[Any]) -> Iterator[Any]:
        """Yield items, and add the seconds to compute them."""
        while True:
            with self:
                item = next(items, None)
            if item is None:
                return
            yield item


class PeakMemory:
    """The largest resident memory of this process besides mapped files, inside a `with` block."""

    def __enter__(self) -> PeakMemory:
        self.bytes, self._stop = 0, threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()

    def _watch(self) -> None:
        while not self._stop.wait(0.02):
            lines = Path("/proc/self/status").read_text().splitlines()
            (used,) = (line.split()[1] for line in lines if line.startswith("RssAnon:"))
            self.bytes = max(self.bytes, 1024 * int(used))
