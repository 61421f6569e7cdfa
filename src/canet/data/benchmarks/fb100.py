"""Facebook 100: friendships at four schools, trained at one and tested at the other three.

Each school has its own codes for majors, dorms and high schools. So the features only tell whether
they are known.
"""

import numpy as np
import torch
from scipy.io import loadmat
from torch.nn import functional as F
from torch_geometric.data import Data
from torch_geometric.utils import from_scipy_sparse_matrix

from canet.data.benchmarks.dataset import Statistics, published_files
from canet.data.benchmarks.files import RawFiles
from canet.data.benchmarks.roles import degree_ranks
from canet.data.benchmarks.transfer import TransferDataset

SCHOOLS = {
    "amherst": "Amherst41",
    "cornell": "Cornell5",
    "hopkins": "Johns Hopkins55",
    "reed": "Reed98",
}
"""School → name of its file."""
NUM_STATUSES = 7
YEARS = range(2004, 2010)
"""Class years of students at that time. All earlier years share a column, and all later years."""


class Facebook100(TransferDataset):
    """Four friendship graphs; the label is the gender, -1 if it is not in the profile."""

    name = "fb100"
    description = "friends at four schools: gender"
    shift = "schools"
    metric = "roc_auc"
    protocols = tuple(SCHOOLS)
    ood_sets = tuple(f"ood/{school}" for school in list(SCHOOLS)[1:])
    files = published_files("fb100/")
    statistics = Statistics(nodes=27037, edges=2174258, classes=2, features=23)

    def read_graph(self, raw: RawFiles, name: str) -> Data:
        """Build the graph of a school from its adjacency `A` $[n, n]$ and `local_info` $[n, 7]$."""
        content = loadmat(raw.paths[f"fb100/{SCHOOLS[name]}.mat"])
        status, gender, *others = torch.from_numpy(content["local_info"].astype(np.int64)).T
        major, minor, dorm, year, high_school = others
        unknown = torch.stack([major, minor, dorm, high_school], dim=1) == 0
        edge_index, _ = from_scipy_sparse_matrix(content["A"])
        ends = torch.tensor([0, YEARS.start - 1, *YEARS])  # unknown, earlier, each year; then later
        years = F.one_hot(torch.bucketize(year, ends), len(ends) + 1)
        ranks = degree_ranks(edge_index, len(status))
        x = torch.cat([F.one_hot(status, NUM_STATUSES), years, unknown, ranks], dim=1)
        return Data(x, edge_index, y=gender - 1)
