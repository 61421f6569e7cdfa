"""Roads: crossings of sixteen US cities, trained in one city and tested in the others.

The label is whether an accident happened at a crossing. Features are the columns that mean the same
in every city, standardised with mean and standard deviation of the training city: the number of
streets and of incoming roads, and the means of the length, directions and angles of these roads.
"""

from pathlib import Path

import numpy as np
import torch
from torch_geometric.data import Data
from torch_geometric.utils import remove_self_loops

from canet.data.benchmarks.dataset import Statistics, published_files
from canet.data.benchmarks.files import RawFiles
from canet.data.benchmarks.transfer import TransferDataset

FILES = published_files("roads/")
CITIES = tuple(Path(file.path).stem for file in FILES)


class Roads(TransferDataset):
    """Directed roads between crossings; 8 to 55 % of the crossings of a city had an accident."""

    name = "roads"
    description = "crossings of sixteen US cities: accident or not"
    shift = "cities"
    metric = "roc_auc"
    protocols = CITIES
    ood_sets = tuple(f"ood/{city}" for city in CITIES[1:])
    files = FILES
    statistics = Statistics(nodes=10541, edges=26493, classes=2, features=8)

    def read(self, raw: RawFiles, protocol: str) -> dict[str, Data]:
        graphs = super().read(raw, protocol)
        known = graphs[protocol].x
        for graph in graphs.values():
            graph.x = (graph.x - known.mean(dim=0)) / known.std(dim=0)
        return graphs

    def read_graph(self, raw: RawFiles, name: str) -> Data:
        """Read the graph of a city; columns that only some cities have are left out."""
        with np.load(raw.paths[f"roads/{name}.npz"], allow_pickle=False) as arrays:
            streets, y = arrays["x"][:, :1], arrays["occur_labels"]
            source, target = arrays["edge_index"].T
            roads = [arrays["edge_attr"][:, :1], arrays["edge_attr_dir"], arrays["edge_attr_ang"]]
        incoming = np.bincount(target, minlength=len(y))[:, None]
        total = np.zeros((len(y), 6))
        np.add.at(total, target, np.concatenate(roads, axis=1))
        x = np.concatenate([streets, incoming, total / np.maximum(incoming, 1)], axis=1)
        edge_index, _ = remove_self_loops(torch.from_numpy(np.stack([source, target])))
        return Data(torch.from_numpy(x).float(), edge_index, y=torch.from_numpy(y))
