"""Spurious features over six domains: how the paper makes a shift on a graph that has none.

Every domain is a disjoint copy of one graph with the same base features and labels, and ten more
columns that tell the label in a way that changes from domain to domain:

    x̃_v^(i) = GCN(onehot(y), A)_v + W onehot(i) + noise,   x_v^(i) = [x_v ‖ x̃_v^(i)]

The random networks are drawn once per data seed and shared by the domains. Domains 1-3 are in
distribution, 4-6 are not.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

import scipy.sparse as sp
import torch
from torch import Tensor
from torch.nn import functional as F
from torch_geometric.data import Data
from torch_geometric.nn import GCNConv

from canet.data.splits import split_50_25_25
from canet.data.task import ShiftTask
from canet.errors import unknown_name
from canet.sparse import from_scipy, to_scipy

NUM_DOMAINS = 6
NUM_ID_DOMAINS = 3
NUM_SPURIOUS = 10
NOISE_STD = 0.1
PROTOCOLS = ("paper", "disjoint")


def spurious_columns(y: Tensor, edge_index: Tensor, seed: int) -> Tensor:
    """The spurious block of every domain, $[6, N, 10]$, for labels $[N]$ and edges $[2, E]$."""
    with torch.random.fork_rng(devices=[]), single_precision(), torch.no_grad():
        torch.manual_seed(seed)
        labels = F.one_hot(y).float()
        domains = torch.eye(NUM_DOMAINS)
        first = GCNConv(labels.shape[1], NUM_SPURIOUS)
        second = GCNConv(NUM_SPURIOUS, NUM_SPURIOUS)
        from_domain = torch.nn.Linear(NUM_DOMAINS, NUM_SPURIOUS)
        from_label = second(first(labels, edge_index).relu(), edge_index)
        noise = NOISE_STD * torch.randn(NUM_DOMAINS, y.numel(), NUM_SPURIOUS)
        return from_label + from_domain(domains)[:, None, :] + noise


@contextmanager
def single_precision() -> Iterator[None]:
    """Make tensors in single precision, whatever the caller's default is: data has the same bits
    for all.
    """
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.float32)
    try:
        yield
    finally:
        torch.set_default_dtype(before)


def spurious_task(
    name: str, x: Tensor, edge_index: Tensor, y: Tensor, data_seed: int, protocol: str
) -> ShiftTask:
    """Six domain copies of a graph as a task.

    Args:
        name: Name of the task.
        x: Base features, sparse CSR $[N, D]$.
        edge_index: Edges $[2, E]$.
        y: Labels $[N]$.
        data_seed: Seed of the random networks, the noise and the split.
        protocol: `paper` splits the 3N in-distribution copies at random, so that a test node has
            training copies with the same base features and label. `disjoint` splits node
            identities: each is in exactly one of train, valid and test across all domains.
    """
    if protocol not in PROTOCOLS:
        raise unknown_name("protocol", protocol, PROTOCOLS)
    n = y.numel()
    spurious = spurious_columns(y, edge_index, data_seed)
    base = to_scipy(x)
    offsets = n * torch.arange(NUM_DOMAINS)
    domain = torch.arange(NUM_DOMAINS).repeat_interleave(n)
    data = Data(
        x=from_scipy(sp.vstack([sp.hstack([base, block.numpy()]) for block in spurious])),
        edge_index=(edge_index[:, None, :] + offsets[None, :, None]).reshape(2, -1),
        y=y.repeat(NUM_DOMAINS),
        environment=domain,
        num_nodes=n * NUM_DOMAINS,
    )
    generator = torch.Generator().manual_seed(data_seed)
    id_offsets, ood_offsets = offsets[:NUM_ID_DOMAINS], offsets[NUM_ID_DOMAINS:]
    if protocol == "paper":
        train, valid, test_id = split_50_25_25(torch.arange(n * NUM_ID_DOMAINS), generator)
        test_nodes = torch.arange(n)
    else:
        identities = split_50_25_25(torch.arange(n), generator)
        train, valid, test_id = ((ids + id_offsets[:, None]).flatten() for ids in identities)
        test_nodes = identities[2]
    return ShiftTask(
        name=name,
        data=data,
        train=train,
        valid=valid,
        test_id=test_id,
        test_ood={
            f"domain {i}": test_nodes + offset
            for i, offset in enumerate(ood_offsets.tolist(), start=NUM_ID_DOMAINS + 1)
        },
        metric="accuracy",
        in_distribution=domain < NUM_ID_DOMAINS,
        shift="spurious features",
        environments=tuple(f"domain {i + 1}" for i in range(NUM_DOMAINS)),
        protocol=protocol,
        data_seed=data_seed,
    )


def without_spurious_columns(task: ShiftTask) -> ShiftTask:
    """The same task with the base features alone: what a model could reach that is never misled."""
    base = to_scipy(task.data.x)[:, : task.num_features - NUM_SPURIOUS]
    data = task.data.clone()
    data.x = from_scipy(base)
    return replace(task, data=data, features="without spurious columns")
