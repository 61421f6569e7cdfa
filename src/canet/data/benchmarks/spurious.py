"""Spurious features over six domains: how the paper makes a shift on a graph that has none.

Every domain is a disjoint copy of one graph with the same base features and labels, and ten more
columns that reveal the label in a way that changes from domain to domain:

    x̃_v^(i) = GCN(onehot(y), A)_v + W onehot(i) + noise,   x_v^(i) = [x_v ‖ x̃_v^(i)]

Domains 1-3 are in distribution, 4-6 are not. Three generators:

- `shared`, the paper's: the label network is drawn once per data seed and the same in all domains,
  so that whoever removes a domain's offset can read the label off these columns.
- `redrawn`: each domain has its own label network. Only ignoring the columns wins.
- `resampled`: in addition each domain has its own nodes, a region of the graph, so that no column
  is the same in all domains.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import numpy as np
import scipy.sparse as sp
import torch
from torch import Tensor
from torch.nn import functional as F
from torch_geometric.data import Data
from torch_geometric.nn import Linear
from torch_geometric.nn.conv.gcn_conv import gcn_norm
from torch_geometric.utils import scatter

from canet.data.benchmarks.dataset import (
    CENTRED,
    GENERATORS,
    PROTOCOLS,
    WITHOUT_SPURIOUS,
    Dataset,
    Request,
    Statistics,
)
from canet.data.splits import split_50_25_25
from canet.data.task import ShiftTask
from canet.errors import CanetError
from canet.util.sparse import from_scipy, to_scipy
from canet.util.torch_state import single_precision

NUM_DOMAINS = 6
NUM_ID_DOMAINS = 3
NUM_SPURIOUS = 10
NOISE_STD = 0.1
DOMAIN_NAMES = tuple(f"domain {i + 1}" for i in range(NUM_DOMAINS))


def spurious_columns(y: Tensor, edge_index: Tensor, seed: int, redrawn: bool = False) -> Tensor:
    """The spurious block of every domain, $[6, N, 10]$, for labels $[N]$ and edges $[2, E]$.

    `redrawn` draws another label network for each domain.
    """
    with torch.random.fork_rng(devices=[]), single_precision(), torch.no_grad():
        torch.manual_seed(seed)
        labels = F.one_hot(y).float()
        if not redrawn:
            from_label = _label_network(labels.shape[1])
            from_domain = torch.nn.Linear(NUM_DOMAINS, NUM_SPURIOUS)
            from_labels = from_label(labels, edge_index).expand(NUM_DOMAINS, -1, -1)
        else:
            from_domain = torch.nn.Linear(NUM_DOMAINS, NUM_SPURIOUS)
            networks = [_label_network(labels.shape[1]) for _ in range(NUM_DOMAINS)]
            from_labels = torch.stack([network(labels, edge_index) for network in networks])
        noise = NOISE_STD * torch.randn(NUM_DOMAINS, y.numel(), NUM_SPURIOUS)
        return from_labels + from_domain(torch.eye(NUM_DOMAINS))[:, None, :] + noise


def _label_network(num_classes: int) -> Callable[[Tensor, Tensor], Tensor]:
    """A random two-layer GCN from one-hot labels $[N, C]$ to $[N, 10]$."""
    first, second = _gcn_layer(num_classes), _gcn_layer(NUM_SPURIOUS)
    return lambda labels, edge_index: second(first(labels, edge_index).relu(), edge_index)


def _gcn_layer(num_inputs: int) -> Callable[[Tensor, Tensor], Tensor]:
    """A new `GCNConv` of PyG, to the bit; that class would leave a file in TMPDIR."""
    linear = Linear(num_inputs, NUM_SPURIOUS, bias=False, weight_initializer="glorot")
    linear.reset_parameters()  # GCNConv draws its weights twice

    def layer(x: Tensor, edge_index: Tensor) -> Tensor:
        (source, target), weight = gcn_norm(edge_index, num_nodes=x.shape[0], dtype=x.dtype)
        return scatter(weight[:, None] * linear(x)[source], target, dim_size=x.shape[0])

    return layer


class BaseGraph(NamedTuple):
    """The graph that domains are made of: base features as sparse CSR $[N, D]$, edges, labels."""

    x: Tensor
    edge_index: Tensor
    y: Tensor


class SpuriousDataset(Dataset):
    """Base of the data sets with spurious features: a subclass reads one graph."""

    shift = "spurious features"
    metric = "accuracy"
    ood_sets = tuple(f"ood/{name}" for name in DOMAIN_NAMES[NUM_ID_DOMAINS:])
    protocols = PROTOCOLS
    generators = GENERATORS
    features = (WITHOUT_SPURIOUS, CENTRED)
    domains = NUM_DOMAINS
    spurious = NUM_SPURIOUS

    def read(self, request: Request) -> BaseGraph:
        """The graph without domains."""
        raise NotImplementedError

    def load(self, request: Request) -> ShiftTask:
        seed, graph = request.data_seed, self.read(request)
        task = spurious_task(self.name, graph, seed, request.protocol, request.generator)
        if request.features == WITHOUT_SPURIOUS:
            return without_spurious_columns(task)
        return centred(task) if request.features == CENTRED else task

    def count(self, task: ShiftTask, data_root: Path | None) -> Statistics:
        """The statistics of one domain."""
        whole = super().count(task, data_root)
        nodes, edges = whole.nodes // NUM_DOMAINS, whole.edges // (2 * NUM_DOMAINS)
        return Statistics(nodes, edges, whole.classes, whole.features - NUM_SPURIOUS)


def spurious_task(
    name: str, graph: BaseGraph, data_seed: int, protocol: str, generator: str = "shared"
) -> ShiftTask:
    """Six domain copies, or regions, of a graph as a task.

    Args:
        name: Name of the task.
        graph: The base graph.
        data_seed: Seed of the random networks, the noise and the split.
        protocol: `paper` splits the 3N in-distribution copies at random, so that a test node has
            training copies with the same base features and label. `disjoint` splits node
            identities: each is in exactly one of train, valid and test across all domains.
        generator: `shared`, `redrawn` or `resampled`; the last has no copies, so that its protocol
            is `disjoint`.
    """
    if generator == "resampled":
        if protocol != "disjoint":
            raise CanetError("resampled domains share no node: use --protocol disjoint")
        return resampled_task(name, graph, data_seed)
    x, edge_index, y = graph
    n = y.numel()
    spurious = spurious_columns(y, edge_index, data_seed, generator == "redrawn")
    base = to_scipy(x)
    offsets = n * torch.arange(NUM_DOMAINS)
    splitter = torch.Generator().manual_seed(data_seed)
    if protocol == "paper":
        splits = [*split_50_25_25(torch.arange(n * NUM_ID_DOMAINS), splitter)]
        test_nodes = torch.arange(n)
    else:
        identities = split_50_25_25(torch.arange(n), splitter)
        splits = [(ids + offsets[:NUM_ID_DOMAINS, None]).flatten() for ids in identities]
        test_nodes = identities[2]
    copies = BaseGraph(
        from_scipy(sp.vstack([sp.hstack([base, block.numpy()]) for block in spurious])),
        (edge_index[:, None, :] + offsets[None, :, None]).reshape(2, -1),
        y.repeat(NUM_DOMAINS),
    )
    domain = torch.arange(NUM_DOMAINS).repeat_interleave(n)
    ood = [test_nodes + offset for offset in offsets[NUM_ID_DOMAINS:].tolist()]
    return _make_task(name, copies, domain, [*splits, *ood], data_seed, protocol, generator)


def resampled_task(name: str, graph: BaseGraph, data_seed: int) -> ShiftTask:
    """Six regions of a graph, cut apart, each with its own label network and offset.

    Regions are drawn again until those in distribution have training nodes of every class.
    """
    x, edge_index, y = graph
    generator = torch.Generator().manual_seed(data_seed)
    random = np.random.default_rng(data_seed)
    while True:
        domain = grow_regions(edge_index, y.numel(), random)
        ids = (domain < NUM_ID_DOMAINS).nonzero().flatten()
        splits = split_50_25_25(ids, generator)
        if y[splits[0]].unique().numel() == y.unique().numel():
            break
    inside = edge_index[:, domain[edge_index[0]] == domain[edge_index[1]]]
    columns = spurious_columns(y, inside, data_seed, redrawn=True)
    own = columns[domain, torch.arange(y.numel())]
    regions = BaseGraph(from_scipy(sp.hstack([to_scipy(x), own.numpy()])), inside, y)
    ood = [(domain == i).nonzero().flatten() for i in range(NUM_ID_DOMAINS, NUM_DOMAINS)]
    sets = [*splits, *ood]
    return _make_task(name, regions, domain, sets, data_seed, "disjoint", "resampled")


def _make_task(
    name: str,
    graph: BaseGraph,
    domain: Tensor,
    sets: Sequence[Tensor],
    data_seed: int,
    protocol: str,
    generator: str,
) -> ShiftTask:
    """A task of all domains $[N]$; `sets` are train, valid, test_id and those of the shifted."""
    train, valid, test_id, *ood = sets
    x, edge_index, y = graph
    return ShiftTask(
        name=name,
        data=Data(x, edge_index, y=y, environment=domain, num_nodes=y.numel()),
        train=train,
        valid=valid,
        test_id=test_id,
        test_ood=dict(zip(DOMAIN_NAMES[NUM_ID_DOMAINS:], ood, strict=True)),
        metric=SpuriousDataset.metric,
        in_distribution=domain < NUM_ID_DOMAINS,
        shift=SpuriousDataset.shift,
        environments=DOMAIN_NAMES,
        data_seed=data_seed,
        protocol=protocol,
        generator=generator,
    )


def grow_regions(edge_index: Tensor, num_nodes: int, random: np.random.Generator) -> Tensor:
    """Six regions of equal size, the number $[N]$ of each node's, grown breadth-first in turns.

    A region takes the next node that it reached, or a random one where it can reach no more.
    """
    ones = np.ones(edge_index.shape[1], dtype=bool)
    links = sp.csr_matrix((ones, edge_index.numpy()), shape=(num_nodes, num_nodes))
    region = np.full(num_nodes, -1)
    reached: list[deque[int]] = [deque() for _ in range(NUM_DOMAINS)]
    starts = iter(random.permutation(num_nodes).tolist())
    for turn in range(num_nodes):
        queue = reached[turn % NUM_DOMAINS]
        while queue and region[queue[0]] >= 0:
            queue.popleft()
        node = queue.popleft() if queue else next(v for v in starts if region[v] < 0)
        region[node] = turn % NUM_DOMAINS
        near = links.indices[links.indptr[node] : links.indptr[node + 1]]
        queue.extend(random.permutation(near[region[near] < 0]).tolist())
    return torch.from_numpy(region)


def centred(task: ShiftTask) -> ShiftTask:
    """The same task with every column centred in each domain: a control, not a method.

    Under `shared` it removes the offsets, and the columns reveal the label in every domain alike.
    """
    x = torch.from_numpy(to_scipy(task.data.x).toarray())
    for domain in range(NUM_DOMAINS):
        nodes = task.data.environment == domain
        x[nodes] -= x[nodes].mean(dim=0)
    data = task.data.clone()
    data.x = x
    return replace(task, data=data, features=CENTRED, checked=True)


def without_spurious_columns(task: ShiftTask) -> ShiftTask:
    """The same task with the base features alone: what a model reaches that is never misled.

    That is not an upper bound under `shared`, where the columns reveal the label once their offset
    is removed: see `centred`.
    """
    base = to_scipy(task.data.x)[:, : task.num_features - NUM_SPURIOUS]
    data = task.data.clone()
    data.x = from_scipy(base)
    return replace(task, data=data, features=WITHOUT_SPURIOUS, checked=True)
