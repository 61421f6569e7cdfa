"""Training in batches that a GPU draws by itself, as a CUDA graph.

Launching the kernels of a step one by one takes longer than running them. If the graph and its
features are on the GPU, a step is therefore captured once, from drawing neighbours to the update of
the weights, and then replayed. The shapes of a captured step are fixed, so a field is padded to the
largest number of nodes of some trial fields, and some more.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from canet.methods import Batch, Method
from canet.nn import Features, NormalisedGraph, ReceptiveField
from canet.nn.sampling import most_nodes

STEPS_BEFORE_CAPTURE = 3  # they fill caches and create the state of the optimizer
NUM_TRIALS = 16
SPARE = 1.1  # factor between the capacity and the largest number of nodes of the trials
MULTIPLE = 128  # the capacity is a multiple of this number, which suits matrix products


@dataclass(frozen=True)
class DeviceData:
    """A graph on a GPU, with labels $[N]$ and optional columns of all nodes.

    `rows` returns the features of nodes on the GPU, without the CPU.
    """

    graph: NormalisedGraph
    rows: Callable[[Tensor], Features]
    y: Tensor
    environment: Tensor | None = None
    weight: Tensor | None = None

    def batch(self, nodes: Tensor, field: ReceptiveField) -> Batch:
        """Return the batch of training nodes $[n]$ and their receptive field."""
        environment, weight = (
            None if column is None else column[nodes] for column in (self.environment, self.weight)
        )
        return Batch(self.rows(field.nodes), field.blocks, self.y[nodes], environment, weight)


EPOCH_SEEDS = 1_000_003
"""Factor between the seeds of the batches of two runs; larger than any number of epochs."""


def epoch_seed(seed: int, epoch: int) -> int:
    """Return the seed of the batches of an epoch."""
    return (seed * EPOCH_SEEDS + epoch) % 2**63


def epoch_order(num_nodes: int, seed: int) -> tuple[Tensor, int]:
    """Return the order of the training nodes in an epoch, and the seed of its first batch.

    The seed of each following batch is larger by the number of layers.
    """
    random = torch.Generator().manual_seed(seed)
    order = torch.randperm(num_nodes, generator=random)
    return order, int(torch.randint(2**62, (1,), generator=random))


class DeviceBatches:
    """Trains a method on batches of `size` nodes with sampled neighbours.

    The ids `nodes` $[n]$ of all training nodes are on the GPU. `fanout` is 1 or more in each layer.
    """

    def __init__(self, data: DeviceData, nodes: Tensor, size: int, fanout: Sequence[int]) -> None:
        self._data, self._nodes, self._size, self._fanout = data, nodes, size, fanout
        counter = torch.zeros(2, dtype=torch.long, device=nodes.device)
        self._first, self._seed = counter[:1], counter[1:]  # of the next batch
        self._num_full = nodes.numel() // size  # batches of an epoch; a smaller one may follow
        self._order = nodes.clone()
        self._within = torch.arange(size, device=nodes.device)
        self._total = torch.zeros((), dtype=torch.double, device=nodes.device)
        self._largest = counter.new_zeros(len(fanout) + 1, 2, dtype=torch.int32)
        self._graph: torch.cuda.CUDAGraph | None = None
        self._capacity = self._limit = most_nodes(size, fanout, data.graph.num_nodes)
        self._begin(0)
        for _ in range(min(NUM_TRIALS, self._num_full)):
            self._next()
        self._choose_capacity()

    def largest(self) -> list[list[int]]:
        """Return the largest numbers of nodes and neighbours after each hop so far."""
        found: list[list[int]] = self._largest.tolist()
        return found

    def train(self, method: Method, optimizer: torch.optim.Optimizer, seed: int) -> Tensor:
        """Train one epoch on the current stream, and return the mean loss.

        The same seed gives the same batches.
        """
        self._begin(seed)
        for step in range(self._num_full):
            if self._graph is None and step >= STEPS_BEFORE_CAPTURE:
                self._graph = torch.cuda.CUDAGraph()
                with torch.cuda.graph(self._graph, stream=torch.cuda.current_stream()):
                    self._step(method, optimizer)
            if self._graph is None:
                self._step(method, optimizer)
            else:
                self._graph.replay()
        if self._num_full * self._size < self._nodes.numel():
            nodes = self._order[self._num_full * self._size :]
            field = self._data.graph.sampled_field(nodes, self._fanout, int(self._seed))
            loss = method.update(self._data.batch(nodes, field), optimizer)
            self._total += nodes.numel() * loss.double()
        sizes = [nodes for nodes, _ in self.largest()[1:]]
        if any(size > places for size, places in zip(sizes, self._capacity, strict=True)):
            self._choose_capacity()
        return self._total / self._nodes.numel()

    def _choose_capacity(self) -> None:
        """Choose the capacity by the largest sizes so far."""
        rounded = [
            MULTIPLE * (int(SPARE * nodes) // MULTIPLE + 1) for nodes, _ in self.largest()[1:]
        ]
        self._capacity = [min(pair) for pair in zip(rounded, self._limit, strict=True)]
        self._graph = None

    def _begin(self, seed: int) -> None:
        """Choose the order of the nodes and the random numbers of an epoch."""
        order, first = epoch_order(self._nodes.numel(), seed)
        self._order.copy_(self._nodes[order.to(self._nodes.device)])
        self._seed.fill_(first)
        self._first.zero_()
        self._total.zero_()

    def _next(self) -> Batch:
        """Draw the next batch, in fixed shapes and without waiting for the device."""
        nodes = self._order[self._first + self._within]
        graph = self._data.graph
        field, sizes = graph.padded_field(nodes, self._fanout, self._seed, self._capacity)
        torch.maximum(self._largest, sizes, out=self._largest)
        self._first += self._size
        self._seed += len(self._fanout)
        return self._data.batch(nodes, field)

    def _step(self, method: Method, optimizer: torch.optim.Optimizer) -> None:
        """Train on the next batch."""
        self._total += self._size * method.update(self._next(), optimizer).double()
