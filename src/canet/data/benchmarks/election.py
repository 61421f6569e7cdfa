"""Election: US counties, trained on 2012 and tested on 2016, or trained on one region and tested
on the others.

Features are statistics of the year of the election, standardised with mean and standard deviation
of the training graph. The protocols with regions use the year 2016 and have no edges between
regions.
"""

import csv
from pathlib import Path

import numpy as np
import torch
from torch import Tensor
from torch_geometric.data import Data
from torch_geometric.utils import coalesce, remove_self_loops

from canet.data.benchmarks.dataset import Statistics, published_files
from canet.data.benchmarks.files import RawFiles
from canet.data.benchmarks.transfer import TransferDataset

YEARS = ("2012", "2016")
REGIONS = {
    "northeast": (9, 23, 25, 33, 34, 36, 42, 44, 50),
    "midwest": (17, 18, 19, 20, 26, 27, 29, 31, 38, 39, 46, 55),
    "south": (1, 5, 10, 11, 12, 13, 21, 22, 24, 28, 37, 40, 45, 47, 48, 51, 54),
    "west": (2, 4, 6, 8, 15, 16, 30, 32, 35, 41, 49, 53, 56),
}
"""Region of the US census → codes of its states; the code of a county begins with its state."""
COLUMNS = {
    "income": ("MedianIncome{}",),
    "education": ("BachelorRate{}",),
    "unemployment": ("Unemployment_rate_{}",),
    "population": ("R_NET_MIG_{}", "R_birth_{}", "R_death_{}"),
}
"""File → its feature columns; {} stands for the year."""

Table = dict[int, dict[str, str]]


class Election(TransferDataset):
    """Counties and their borders; label 1 if the Democrats got more votes than the Republicans.

    Counties with missing features in one of the years are left out.
    """

    name = "election"
    description = "borders among US counties: winner of the presidential election"
    shift = "years, regions"
    metric = "roc_auc"
    protocols = (YEARS[0], *REGIONS)
    ood_sets = (f"ood/{YEARS[1]}",)
    files = published_files("election/")
    statistics = Statistics(nodes=6222, edges=36912, classes=2, features=6)

    def read(self, raw: RawFiles, protocol: str) -> dict[str, Data]:
        paths = {Path(name).stem: path for name, path in raw.paths.items()}
        votes = _table(paths["election"])
        tables = {kind: _table(paths[kind]) for kind in COLUMNS}
        features = {year: _features(tables, year) for year in YEARS}
        counties = sorted(set(votes).intersection(*features.values()))
        edge_index = _borders(paths["adjacency"], counties)

        def graph(year: str) -> Data:
            rows = [votes[county] for county in counties]
            won = [int(row[f"dem_{year}"]) > int(row[f"gop_{year}"]) for row in rows]
            x = torch.tensor([features[year][county] for county in counties], dtype=torch.double)
            return Data(x, edge_index, y=torch.tensor(won).long())

        if protocol in YEARS:
            graphs = {year: graph(year) for year in YEARS}
        else:
            state = torch.tensor(counties) // 1000
            last = graph(YEARS[1])
            graphs = {
                region: last.subgraph(torch.isin(state, torch.tensor(states)))
                for region, states in REGIONS.items()
            }
        x = graphs[protocol].x
        mean, deviation = x.mean(dim=0), x.std(dim=0)
        for data in graphs.values():
            data.x = ((data.x - mean) / deviation).float()
        return graphs


def _table(path: Path) -> Table:
    """Return the rows of a CSV file by county code, which is the first column."""
    with path.open(newline="", encoding="latin-1") as file:
        rows = csv.DictReader(file)
        assert rows.fieldnames
        return {int(row[rows.fieldnames[0]]): row for row in rows}


def _features(tables: dict[str, Table], year: str) -> dict[int, list[float]]:
    """Return the features of each county in a year, without counties with missing features."""
    known = {}
    for county in set.intersection(*map(set, tables.values())):
        texts = [
            tables[kind][county][column.format(year)].replace(",", "")
            for kind, columns in COLUMNS.items()
            for column in columns
        ]
        if all(texts):
            known[county] = [float(text) for text in texts]
    return known


def _borders(path: Path, counties: list[int]) -> Tensor:
    """Return edges $[2, E]$ between counties. The first line of a block names the county."""
    county, pairs = 0, []
    for line in path.read_text(encoding="latin-1").splitlines():
        _, first, _, neighbour = line.split("\t")
        county = int(first or county)
        pairs.append((county, int(neighbour)))
    ends = np.array(pairs).T
    listed = np.searchsorted(counties, ends[:, np.isin(ends, counties).all(axis=0)])
    edges, _ = remove_self_loops(torch.from_numpy(listed))
    return coalesce(edges)
