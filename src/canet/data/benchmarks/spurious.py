"""Spurious features in six domains: the paper's way to create a shift on a single graph.

Every domain is a disjoint copy of one graph with the same base features and labels. Ten spurious
columns reveal the label in a way that changes from domain to domain:

    x̃_v^(i) = GCN(onehot(y), A)_v + W onehot(i) + noise,   x_v^(i) = [x_v ‖ x̃_v^(i)]

Domains 1-3 are in distribution, domains 4-6 are shifted. There are three generators:

- `shared` (the paper's): the label network is drawn once per data seed and is the same in all
  domains. A model that removes the offset of a domain can predict the label from these columns.
- `redrawn`: each domain has its own label network. The best a model can do is to ignore the
  spurious columns.
- `resampled`: as `redrawn`, but each domain also has its own nodes, a region of the graph. So no
  column is the same in all domains.
"""

from collections import deque
from collections.abc import Callable
from dataclasses import replace

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
    CENTRED_PER_GRAPH,
    GENERATORS,
    PROTOCOLS,
    WITHOUT_SPURIOUS,
    Dataset,
    Request,
)
from canet.data.task import ShiftTask, split_50_25_25
from canet.errors import CanetError
from canet.util.sparse import from_scipy, to_scipy
from canet.util.torch_state import single_precision

NUM_DOMAINS = 6
NUM_ID_DOMAINS = 3
NUM_SPURIOUS = 10
NOISE_STD = 0.1
DOMAIN_NAMES = tuple(f"domain {i + 1}" for i in range(NUM_DOMAINS))


def spurious_columns(y: Tensor, edge_index: Tensor, seed: int, redrawn: bool = False) -> Tensor:
    """Return the columns of all domains $[6, N, 10]$ for labels $[N]$ and edges $[2, E]$."""
    with torch.random.fork_rng(devices=[]), single_precision(), torch.no_grad():
        torch.manual_seed(seed)
        labels = F.one_hot(y).float()
        networks = [] if redrawn else [_label_network(labels.shape[1])]
        from_domain = torch.nn.Linear(NUM_DOMAINS, NUM_SPURIOUS)
        if redrawn:
            networks = [_label_network(labels.shape[1]) for _ in range(NUM_DOMAINS)]
        from_labels = torch.stack([network(labels, edge_index) for network in networks])
        noise = NOISE_STD * torch.randn(NUM_DOMAINS, y.numel(), NUM_SPURIOUS)
        return from_labels + from_domain(torch.eye(NUM_DOMAINS))[:, None, :] + noise


def _label_network(num_classes: int) -> Callable[[Tensor, Tensor], Tensor]:
    """Return a random two-layer GCN from one-hot labels $[N, C]$ to $[N, 10]$."""
    first, second = _gcn_layer(num_classes), _gcn_layer(NUM_SPURIOUS)
    return lambda labels, edge_index: second(first(labels, edge_index).relu(), edge_index)


def _gcn_layer(num_inputs: int) -> Callable[[Tensor, Tensor], Tensor]:
    """Return a random layer equal to PyG's `GCNConv`, which would write a file to TMPDIR."""
    linear = Linear(num_inputs, NUM_SPURIOUS, bias=False, weight_initializer="glorot")
    linear.reset_parameters()  # GCNConv also draws its weights twice

    def layer(x: Tensor, edge_index: Tensor) -> Tensor:
        (source, target), weight = gcn_norm(edge_index, num_nodes=x.shape[0], dtype=x.dtype)
        return scatter(weight[:, None] * linear(x)[source], target, dim_size=x.shape[0])

    return layer


class SpuriousDataset(Dataset):
    """Base class of the data sets with spurious features: a subclass reads one graph."""

    shift = "spurious features"
    metric = "accuracy"
    ood_sets = tuple(f"ood/{name}" for name in DOMAIN_NAMES[NUM_ID_DOMAINS:])
    protocols = PROTOCOLS
    generators = GENERATORS
    features = (WITHOUT_SPURIOUS, CENTRED_PER_GRAPH)
    domains = NUM_DOMAINS
    spurious = NUM_SPURIOUS

    def read(self, request: Request) -> Data:
        """Read the graph that the domains copy: features (sparse CSR), edges and labels."""
        raise NotImplementedError

    def load(self, request: Request) -> ShiftTask:
        """Load the task.

        The protocol `paper` splits the 3N in-distribution nodes at random, so most test nodes have
        a copy with the same base features and label in the training set. `disjoint` splits the N
        nodes of the base graph: all copies of a node are in the same split. The generator
        `resampled` has no copies and requires the protocol `disjoint`.
        """
        graph = self.read(request)
        if request.generator != "resampled":
            data, sets = _copies(graph, request)
        elif request.protocol == "disjoint":
            data, sets = _regions(graph, request.data_seed)
        else:
            raise CanetError(
                "generator 'resampled' requires protocol 'disjoint', because its domains share no "
                "nodes: use --protocol disjoint"
            )
        train, valid, test_id, *ood = sets
        task = self.task_from_splits(
            request,
            (train, valid, test_id),
            data=data,
            test_ood=dict(zip(DOMAIN_NAMES[NUM_ID_DOMAINS:], ood, strict=True)),
            in_distribution=data.environment < NUM_ID_DOMAINS,
            environments=DOMAIN_NAMES,
            generator=request.generator,
        )
        if request.features == WITHOUT_SPURIOUS:
            return without_spurious_columns(task)
        return centred_per_graph(task) if request.features == CENTRED_PER_GRAPH else task


def _copies(graph: Data, request: Request) -> tuple[Data, list[Tensor]]:
    """Return six copies of a graph with spurious columns; the environment is the domain.

    The node sets are train, valid, test_id, and a test set of each shifted domain.
    """
    edge_index, y = graph.edge_index, graph.y
    n, seed = y.numel(), request.data_seed
    spurious = spurious_columns(y, edge_index, seed, request.generator == "redrawn")
    base = to_scipy(graph.x)
    offsets = n * torch.arange(NUM_DOMAINS)
    splitter = torch.Generator().manual_seed(seed)
    if request.protocol == "paper":
        splits = [*split_50_25_25(torch.arange(n * NUM_ID_DOMAINS), splitter)]
        test_nodes = torch.arange(n)
    else:
        identities = split_50_25_25(torch.arange(n), splitter)
        splits = [(ids + offsets[:NUM_ID_DOMAINS, None]).flatten() for ids in identities]
        test_nodes = identities[2]
    copies = Data(
        from_scipy(sp.vstack([sp.hstack([base, block.numpy()]) for block in spurious])),
        (edge_index[:, None, :] + offsets[None, :, None]).reshape(2, -1),
        y=y.repeat(NUM_DOMAINS),
        environment=torch.arange(NUM_DOMAINS).repeat_interleave(n),
    )
    return copies, splits + [test_nodes + offset for offset in offsets[NUM_ID_DOMAINS:]]


def _regions(graph: Data, data_seed: int) -> tuple[Data, list[Tensor]]:
    """Return six separate regions of a graph with their own label networks; as for `_copies`.

    Regions are drawn again until the training nodes contain every class.
    """
    edge_index, y = graph.edge_index, graph.y
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
    spurious = columns[domain, torch.arange(y.numel())]
    x = from_scipy(sp.hstack([to_scipy(graph.x), spurious.numpy()]))
    regions = Data(x, inside, y=y, environment=domain)
    ood = [(domain == i).nonzero().flatten() for i in range(NUM_ID_DOMAINS, NUM_DOMAINS)]
    return regions, [*splits, *ood]


def grow_regions(edge_index: Tensor, num_nodes: int, random: np.random.Generator) -> Tensor:
    """Divide a graph into six regions of equal size; return the region $[N]$ of each node.

    They take turns in a breadth-first search; without a free neighbour, they take any free node.
    """
    ones = np.ones(edge_index.shape[1], dtype=bool)
    links = sp.csr_matrix((ones, edge_index.numpy()), shape=(num_nodes, num_nodes))
    region = np.full(num_nodes, -1)
    queues: list[deque[int]] = [deque() for _ in range(NUM_DOMAINS)]
    starts = iter(random.permutation(num_nodes).tolist())
    for turn in range(num_nodes):
        queue = queues[turn % NUM_DOMAINS]
        while queue and region[queue[0]] >= 0:
            queue.popleft()
        node = queue.popleft() if queue else next(v for v in starts if region[v] < 0)
        region[node] = turn % NUM_DOMAINS
        neighbours = links.indices[links.indptr[node] : links.indptr[node + 1]]
        queue.extend(random.permutation(neighbours[region[neighbours] < 0]).tolist())
    return torch.from_numpy(region)


def centred_per_graph(task: ShiftTask) -> ShiftTask:
    """Return the task with every column centred per graph (domain), as a control.

    With the generator `shared`, this removes the offsets of the domains. The spurious columns then
    reveal the label in the same way in every domain.
    """
    x = torch.from_numpy(to_scipy(task.data.x).toarray())
    for domain in range(NUM_DOMAINS):
        nodes = task.data.environment == domain
        x[nodes] -= x[nodes].mean(dim=0)
    return replace(task, data=replace(task.data, x=x), features=CENTRED_PER_GRAPH, checked=True)


def without_spurious_columns(task: ShiftTask) -> ShiftTask:
    """Return the task without the spurious columns, as a control.

    Its accuracy is not an upper bound with the generator `shared`, because the spurious columns
    reveal the label if their offset is removed: see `centred_per_graph`.
    """
    data = replace(task.data, x=from_scipy(to_scipy(task.data.x)[:, :-NUM_SPURIOUS]))
    return replace(task, data=data, features=WITHOUT_SPURIOUS, checked=True)
