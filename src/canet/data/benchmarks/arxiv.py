"""Arxiv: a citation network trained on papers before 2014 and tested on later ones.

Reads the raw CSV layout of ogbn-arxiv. An edge goes from the citing paper to the cited one.
"""

import numpy as np
import torch
from numpy.typing import DTypeLike
from torch_geometric.data import Data

from canet.data.benchmarks.dataset import Dataset, RawFile, Request, Statistics, published_files
from canet.data.benchmarks.files import RawFiles, obtain
from canet.data.benchmarks.processed import Arrays, read_table
from canet.data.benchmarks.structural import read_arrays
from canet.data.task import ShiftTask

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
"""Environments: name of a period → its last year."""
OOD_PERIODS = [name for name, last_year in PERIODS.items() if last_year >= FIRST_OOD_YEAR]


class Arxiv(Dataset):
    """The citation network; the environment of a node is its period of publication."""

    name = "arxiv"
    description = "citations among computer-science papers by year: subject of a paper"
    shift = "time attributes"
    metric = "accuracy"
    ood_sets = tuple(f"ood/{name}" for name in OOD_PERIODS)
    files = published_files("arxiv/")
    statistics = Statistics(nodes=169343, edges=1166243, classes=40, features=128)
    features = ("structural",)
    has_single_split = True
    quick_epochs = 8
    shared_settings = {"direction": "against"}

    def load(self, request: Request) -> ShiftTask:
        raw = obtain(self.files_for(request.features), request.data_root)
        arrays = read_arrays(
            self.name, request, raw, _parse, lambda graph: graph["year"] < FIRST_OOD_YEAR
        )
        year = torch.from_numpy(arrays["year"])
        period = torch.bucketize(year, torch.tensor(list(PERIODS.values())))
        in_distribution = year < FIRST_OOD_YEAR
        x, edge_index, y = (torch.from_numpy(arrays[name]) for name in ("x", "edge_index", "y"))
        return self.split_task(
            request,
            in_distribution.nonzero().flatten(),
            data=Data(x=x, edge_index=edge_index, y=y, environment=period),
            test_ood={
                name: (period == number).nonzero().flatten()
                for number, name in enumerate(PERIODS)
                if name in OOD_PERIODS
            },
            in_distribution=in_distribution,
            environments=tuple(PERIODS),
        )

    def files_for(self, features: str | None) -> tuple[RawFile, ...]:
        """Return the files that are read; structural features need no features file."""
        return tuple(f for f in self.files if features is None or "node-feat" not in f.path)


def _parse(raw: RawFiles) -> Arrays:
    """Return edges $[2, E]$, labels $[N]$, years $[N]$ and, if their file exists, features."""
    nodes, edges = (int(_table(raw, f"num-{kind}-list", 1)[0, 0]) for kind in ("node", "edge"))
    graph = {
        "edge_index": np.ascontiguousarray(_table(raw, "edge", edges, 2).T),
        "y": _table(raw, "node-label", nodes)[:, 0],
        "year": _table(raw, "node_year", nodes)[:, 0],
    }
    if "arxiv/raw/node-feat.csv.gz" in raw.paths:
        graph["x"] = _table(raw, "node-feat", nodes, NUM_FEATURES, np.float32)
    return graph


def _table(
    raw: RawFiles, kind: str, rows: int, columns: int = 1, dtype: DTypeLike = np.int64
) -> np.ndarray:
    return read_table(raw.paths[f"arxiv/raw/{kind}.csv.gz"], columns, dtype, rows=rows)
