"""Airports: flight networks of three regions, trained on one and tested on the other two.

The four classes are quartiles of activity within a region, so they are relative to the region. The
airports have no features. Their features are ranks of structural measures in the region's network.
"""

from __future__ import annotations

import numpy as np
import torch
from torch_geometric.data import Data
from torch_geometric.utils import remove_self_loops, to_undirected

from canet.data.benchmarks.dataset import RawFile, Statistics
from canet.data.benchmarks.files import RawFiles
from canet.data.benchmarks.roles import role_ranks
from canet.data.benchmarks.transfer import TransferDataset

REGIONS = ("brazil", "europe", "usa")

URL = "https://raw.githubusercontent.com/leoribeiro/struc2vec/master/graph/"
SHA256 = {
    "brazil-airports.edgelist": "896b7bd460ad2da9160888d99bc9099ffe8ed7de3e410833889ea393831bcaa7",
    "europe-airports.edgelist": "bd202178d0d1253c15bd3c9a22cc2a25f630244bbef9060bc30adbf0a5e130f6",
    "usa-airports.edgelist": "c73fec3eef27ed6d6ef4d8dfa7fd1604b959601a38d399eeaa1f87e8d8d58fc0",
    "labels-brazil-airports.txt": (
        "8f9d19f10192fbaeb91dfb46dd7eae0fef28bfe1272d41ab96a4494a0d06785f"
    ),
    "labels-europe-airports.txt": (
        "92bace031cc02937ac9629d6c69387458e5d5016a7dab98490fbf33e392cec4e"
    ),
    "labels-usa-airports.txt": "d4062ff3b3a67c3ae72b581bb68228433223e35d6f0b2d41844d197ad3772195",
}


class Airports(TransferDataset):
    """Three networks; a flight connection is an edge in both directions, without self-loops."""

    name = "airports"
    description = "flights among airports of three regions: activity of an airport"
    shift = "regions"
    metric = "accuracy"
    protocols = REGIONS
    ood_sets = tuple(f"ood/{region}" for region in REGIONS[1:])
    files = tuple(RawFile(f"airports/{file}", URL + file, sha) for file, sha in SHA256.items())
    statistics = Statistics(nodes=1720, edges=41190, classes=4, features=6)

    def read(self, raw: RawFiles, protocol: str) -> dict[str, Data]:
        return {region: _read_region(raw, region) for region in REGIONS}


def _read_region(raw: RawFiles, region: str) -> Data:
    """Read the network of a region; airports are sorted by their ids in the files."""
    labels = np.loadtxt(raw.paths[f"airports/labels-{region}-airports.txt"], np.int64, skiprows=1)
    ids, y = labels[labels[:, 0].argsort()].T
    flights = np.loadtxt(raw.paths[f"airports/{region}-airports.edgelist"], np.int64)
    edges, _ = remove_self_loops(torch.from_numpy(np.searchsorted(ids, flights).T))
    edge_index = to_undirected(edges, num_nodes=len(ids))
    return Data(role_ranks(edge_index, len(ids)), edge_index, y=torch.from_numpy(y.copy()))
