"""Arxiv: a citation network trained on papers before 2014 and tested on later ones.

Reads the raw CSV layout of ogbn-arxiv. An edge goes from the citing paper to the cited one.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch
from torch_geometric.data import Data

from canet.data.benchmarks import sources, structural
from canet.data.benchmarks.processed import Arrays, processed
from canet.data.benchmarks.raw import RawFiles, obtain
from canet.data.benchmarks.tables import read_table
from canet.data.splits import split_50_25_25
from canet.data.task import ShiftTask
from canet.errors import CanetError

READER_VERSION = 1
NUM_FEATURES = 128
FIRST_OOD_YEAR = 2014
PERIODS = {
    "until 2009": 2009,
    "2010-2011": 2011,
    "2012-2013": 2013,
    "2014-2015": 2015,
    "2016-2017": 2017,
    "2018-2020": 2020,
}
"""Environments: name of the period → its last year. The last three are the OOD test sets."""


def arxiv_task(
    data_root: Path | None, data_seed: int, features: str | None, inductive: bool
) -> ShiftTask:
    """The citation network; a node's environment is its period of publication."""
    arrays = _read(data_root, features, inductive)
    return make_task(arrays, data_seed, features or "original")


def make_task(arrays: Arrays, data_seed: int, features: str) -> ShiftTask:
    """The task of a parsed graph with features `x`, split by a seed."""
    year = torch.from_numpy(arrays["year"])
    period = torch.bucketize(year, torch.tensor(list(PERIODS.values())))
    in_distribution = year < FIRST_OOD_YEAR
    train, valid, test_id = split_50_25_25(
        in_distribution.nonzero().flatten(), torch.Generator().manual_seed(data_seed)
    )
    return ShiftTask(
        name="arxiv",
        data=Data(
            x=torch.from_numpy(arrays["x"]),
            edge_index=torch.from_numpy(arrays["edge_index"]),
            y=torch.from_numpy(arrays["y"]),
            environment=period,
        ),
        train=train,
        valid=valid,
        test_id=test_id,
        test_ood={
            name: (period == index).nonzero().flatten()
            for index, (name, last_year) in enumerate(PERIODS.items())
            if last_year >= FIRST_OOD_YEAR
        },
        metric="accuracy",
        in_distribution=in_distribution,
        shift="time attributes",
        environments=tuple(PERIODS),
        data_seed=data_seed,
        features=features,
    )


def read_graph(data_root: Path | None) -> Arrays:
    """The parsed graph alone, which needs no features file."""
    raw = _without_features(data_root)
    return processed("arxiv-graph", f"{READER_VERSION} {raw.digest}", lambda: _parse_graph(raw))


def _read(data_root: Path | None, features: str | None, inductive: bool) -> Arrays:
    """Parsed graph with its own features, or with structural ones and no features file."""
    if features is None:
        raw = obtain(sources.FILES["arxiv"], data_root)
        return processed("arxiv", f"{READER_VERSION} {raw.digest}", lambda: _parse(raw))
    raw = _without_features(data_root)
    return processed(
        "arxiv-structural",
        f"{READER_VERSION} {structural.VERSION} {inductive} {raw.digest}",
        lambda: _parse_structural(raw, inductive),
    )


def _without_features(data_root: Path | None) -> RawFiles:
    files = [file for file in sources.FILES["arxiv"] if "node-feat" not in file.path]
    return obtain(files, data_root)


def _parse(raw: RawFiles) -> Arrays:
    graph = _parse_graph(raw)
    path = raw.paths["arxiv/raw/node-feat.csv.gz"]
    x = read_table(path, NUM_FEATURES, np.float32)
    if len(x) != len(graph["y"]):
        raise CanetError(f"'{path}' has {len(x)} rows for {len(graph['y'])} papers: replace it")
    return graph | {"x": x}


def _parse_structural(raw: RawFiles, inductive: bool) -> Arrays:
    graph = _parse_graph(raw)
    known = graph["year"] < FIRST_OOD_YEAR if inductive else np.ones(len(graph["year"]), dtype=bool)
    edge_index = torch.from_numpy(graph["edge_index"])
    x = structural.structural_features(edge_index, torch.from_numpy(known))
    return graph | {"x": x.numpy()}


def _parse_graph(raw: RawFiles) -> Arrays:
    """Edges $[2, E]$, labels $[N]$ and years $[N]$."""

    def numbers(kind: str, columns: int = 1) -> np.ndarray:
        return read_table(raw.paths[f"arxiv/raw/{kind}.csv.gz"], columns, np.int64)

    nodes, edges = int(numbers("num-node-list")[0, 0]), int(numbers("num-edge-list")[0, 0])
    edge_index, y, year = numbers("edge", 2), numbers("node-label"), numbers("node_year")
    for kind, table, rows in (
        ("edge", edge_index, edges),
        ("node-label", y, nodes),
        ("node_year", year, nodes),
    ):
        if len(table) != rows:
            path = raw.paths[f"arxiv/raw/{kind}.csv.gz"]
            raise CanetError(f"'{path}' has {len(table)} rows, not {rows}: replace it")
    return {"edge_index": np.ascontiguousarray(edge_index.T), "y": y[:, 0], "year": year[:, 0]}
