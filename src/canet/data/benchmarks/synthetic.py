"""The embedded task: a random social network with six domains, which needs no files.

It has 1,500 users in five interest groups. Friendships follow a degree-corrected stochastic block
model: most friends are in the same group, and a few users have many friends. Each user has a bag of
words. Each group uses some words more often, so the features are related to the label, but do not
determine it. Domains and spurious columns are made as in the paper.
"""

import numpy as np
import scipy.sparse as sp
import torch
from torch_geometric.data import Data

from canet.data.benchmarks.dataset import Request, Statistics
from canet.data.benchmarks.spurious import SpuriousDataset
from canet.util.sparse import from_scipy

NUM_USERS = 1500
NUM_GROUPS = 5
NUM_WORDS = 1200
MEAN_DEGREE = 4.0
SAME_GROUP_SHARE = 0.78  # share of a user's friends in the same group
WORDS_PER_USER = 40
TOPICAL_SHARE = 0.12  # share of a user's words that are typical of the group


class Synthetic(SpuriousDataset):
    """The embedded task; the data seed also determines the graph."""

    name = "synthetic"
    description = "embedded random graph, six domains with spurious features; needs no files"
    statistics = Statistics(nodes=1500, edges=2952, classes=5, features=1200)
    quick_epochs = 60

    def read(self, request: Request) -> Data:
        random = np.random.default_rng(request.data_seed)
        group = random.integers(NUM_GROUPS, size=NUM_USERS)
        edge_index = torch.from_numpy(_friendships(group, random))
        x = from_scipy(_bags_of_words(group, random))
        return Data(x, edge_index, y=torch.from_numpy(group))


def _friendships(group: np.ndarray, random: np.random.Generator) -> np.ndarray:
    """Draw friendships, as edges $[2, E]$ in both directions."""
    popularity = random.pareto(2.5, size=group.size) + 1
    count = int(MEAN_DEGREE * group.size / 2)
    is_same_group = random.random(count) < SAME_GROUP_SHARE
    first = random.choice(group.size, size=count, p=popularity / popularity.sum())
    second = np.empty(count, dtype=np.int64)
    for value in range(NUM_GROUPS):
        same = group == value
        for inside in (True, False):
            wanted = (group[first] == value) & (is_same_group == inside)
            weight = popularity * (same == inside)
            second[wanted] = random.choice(group.size, size=wanted.sum(), p=weight / weight.sum())
    pairs = np.unique(np.sort(np.stack([first, second], axis=1), axis=1), axis=0)
    pairs = pairs[pairs[:, 0] != pairs[:, 1]]
    return np.concatenate([pairs, pairs[:, ::-1]]).T.copy()


def _bags_of_words(group: np.ndarray, random: np.random.Generator) -> sp.csr_matrix:
    """Draw row-normalised word occurrences $[N, 1200]$."""
    num_topical = NUM_WORDS // (2 * NUM_GROUPS)
    is_topical = random.random((group.size, WORDS_PER_USER)) < TOPICAL_SHARE
    topical = group[:, None] * num_topical + random.integers(num_topical, size=is_topical.shape)
    other = random.integers(NUM_WORDS, size=is_topical.shape)
    word = np.where(is_topical, topical, other)
    user = np.arange(group.size).repeat(WORDS_PER_USER)
    counts = sp.coo_matrix((np.ones(word.size), (user, word.ravel())), (group.size, NUM_WORDS))
    bags = counts.tocsr()
    bags.data[:] = 1.0
    return sp.diags(1 / bags.sum(axis=1).A1) @ bags
