"""Roads: crossings of sixteen US cities, trained in one city and tested in the others.

The label is whether an accident happened at a crossing. Features are the columns that mean the same
in every city, standardised with mean and standard deviation of the training city: the number of
streets and of incoming roads, and the means of the length, directions and angles of these roads.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch
from torch_geometric.data import Data
from torch_geometric.utils import remove_self_loops

from canet.data.benchmarks.dataset import RawFile, Statistics
from canet.data.benchmarks.files import RawFiles
from canet.data.benchmarks.transfer import TransferDataset

URL = (
    "https://raw.githubusercontent.com/baixianghuang/travel/"
    "cab6150bb54f6e0b936a3227eefc4f57c88a90a2/TAP-city/"
)
SHA256 = {
    "brooksville_fl": "7ef460cdcaf877412089d87df7a1b97bfcafc7c1a231a6e6baae62fe04cdfea4",
    "clearfield_ut": "398d8e1c543aa708c1b90b02df1d8fdee0cd45eca685624e38bdda8fcd963eef",
    "fort_lee_nj": "d251f26565e57938a53aaafbfbb5931b3269ffd87e961a06eb3299d8b929f52b",
    "greer_sc": "cf81699c9b8594e2550085f560a8c022fc0e58fdce76d63bcdd7e44a42e63b98",
    "lake_city_sc": "58b22e2ce40a0d3589dbd5ad64838b5aad6f5c9302dd6fee77b54acb9200858a",
    "limerick_township_pa": "f6a216252d060f24c882d41ed98f77e129a35d63460edb3e56ed75a972f9a2ac",
    "linthicum_heights_md": "529ff2f05a34bd7d02d45327c30ac0783b9b413d02adc090ac5264eb824d7829",
    "manor_tx": "35f43b7bd637fbb8d3298e42411656136240fb079f75721d3f7877fb41354229",
    "norristown_pa": "6cdd517f8189f04eed7a03777ffd4bba7e35206c511b4d1106341775d6488280",
    "north_salt_lake_ut": "24716e8733463e1f55fe4afbeb4bdbeb4b7f906af0202e45f2be17e4edc39c0b",
    "orangeburg_sc": "51bbe77eb9a6694bf3d7e65625583367a6b1048e6ee84de21ec9e4931930572b",
    "plymouth_township_pa": "28e66d8a0a6b19f9c691617675ee0ae56b5f0498d8c4e2d344b648a561ba993c",
    "pottstown_pa": "964f1732619f65b5bb667c5dc716ab1110a6d24d76900a182425116c70967309",
    "seminole_fl": "33aaba57890112b2e86f19d837126797fa917f575a3a53a426542748cb60305d",
    "south_miami_fl": "259acff50863a14212448e5081aaa64f1189aaf69015329b68bebff740b3f63e",
    "zachary_la": "eda60865f4810157ef7070224412052632ad7b459545bb2b64622b3602600edf",
}


class Roads(TransferDataset):
    """Directed roads between crossings; 8 to 55 % of the crossings of a city had an accident."""

    name = "roads"
    description = "crossings of sixteen US cities: accident or not"
    shift = "cities"
    metric = "roc_auc"
    protocols = tuple(SHA256)
    ood_sets = tuple(f"ood/{city}" for city in list(SHA256)[1:])
    files = tuple(RawFile(f"roads/{city}.npz", f"{URL}{city}.npz", s) for city, s in SHA256.items())
    statistics = Statistics(nodes=10541, edges=26493, classes=2, features=8)

    def read(self, raw: RawFiles, protocol: str) -> dict[str, Data]:
        graphs = {city: _read_city(raw.paths[f"roads/{city}.npz"]) for city in SHA256}
        known = graphs[protocol].x
        for graph in graphs.values():
            graph.x = (graph.x - known.mean(dim=0)) / known.std(dim=0)
        return graphs


def _read_city(path: Path) -> Data:
    """Read the graph of a city; columns that only some cities have are left out."""
    with np.load(path, allow_pickle=False) as arrays:
        streets, y = arrays["x"][:, :1], arrays["occur_labels"]
        source, target = arrays["edge_index"].T
        roads = [arrays["edge_attr"][:, :1], arrays["edge_attr_dir"], arrays["edge_attr_ang"]]
    incoming = np.bincount(target, minlength=len(y))[:, None]
    total = np.zeros((len(y), 6))
    np.add.at(total, target, np.concatenate(roads, axis=1))
    x = np.concatenate([streets, incoming, total / np.maximum(incoming, 1)], axis=1)
    edge_index, _ = remove_self_loops(torch.from_numpy(np.stack([source, target])))
    return Data(torch.from_numpy(x).float(), edge_index, y=torch.from_numpy(y))
