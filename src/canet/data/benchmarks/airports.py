"""Airports: flight networks of three regions, trained on one and tested on the other two.

The four classes are quartiles of activity within a region, so they are relative to the region. The
airports have no features. Their features are ranks of structural measures in the region's network.
"""

import numpy as np
import torch
from torch_geometric.data import Data
from torch_geometric.utils import remove_self_loops, to_undirected

from canet.data.benchmarks.dataset import Statistics, published_files
from canet.data.benchmarks.files import RawFiles
from canet.data.benchmarks.roles import role_ranks
from canet.data.benchmarks.transfer import TransferDataset

REGIONS = ("brazil", "europe", "usa")


class Airports(TransferDataset):
    """Three networks; a flight connection is an edge in both directions, without self-loops."""

    name = "airports"
    description = "flights among airports of three regions: activity of an airport"
    shift = "regions"
    metric = "accuracy"
    protocols = REGIONS
    ood_sets = tuple(f"ood/{region}" for region in REGIONS[1:])
    files = published_files("airports/")
    statistics = Statistics(nodes=1720, edges=41190, classes=4, features=6)

    def read_graph(self, raw: RawFiles, name: str) -> Data:
        """Read the network of a region; airports are sorted by their ids in the files."""
        labels = np.loadtxt(raw.paths[f"airports/labels-{name}-airports.txt"], np.int64, skiprows=1)
        ids, y = labels[labels[:, 0].argsort()].T
        flights = np.loadtxt(raw.paths[f"airports/{name}-airports.edgelist"], np.int64)
        edges, _ = remove_self_loops(torch.from_numpy(np.searchsorted(ids, flights).T))
        edge_index = to_undirected(edges, num_nodes=len(ids))
        return Data(role_ranks(edge_index, len(ids)), edge_index, y=torch.from_numpy(y.copy()))
