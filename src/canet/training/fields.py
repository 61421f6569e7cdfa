"""Batches of a task on a device: receptive field, features and labels of each split."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial

import torch
from torch import Tensor

from canet.data.task import ShiftTask
from canet.methods import Batch, Method, TrainingView
from canet.methods.base import Scaling
from canet.nn import Block, Features, Graph, GraphModel, Operator
from canet.nn.blocks import ReceptiveField
from canet.nn.model import rows_of
from canet.training.device_batches import DeviceData, epoch_order, epoch_seed
from canet.training.feature_store import RowReader
from canet.training.features import prepare_features
from canet.training.pieces import Pieces
from canet.training.prefetch import prefetched
from canet.util import distributed

TRAINING_GRAPH_SPLITS = ("train", "valid", "test_id")


class TaskFields:
    """The batches of a task, for models with given operators and depth.

    Training, validation and the in-distribution test use the training graph, which contains no
    out-of-distribution nodes if the task is `inductive`. The shifted test sets use the whole graph.
    Batches, graphs and prepared features are built once.

    Args:
        task: The task; it is not changed.
        operators: Operators of the model, which the blocks must contain.
        num_layers: Depth of the receptive fields.
        device: Device of the batches.
        features: Scaling of the features.
    """

    def __init__(
        self,
        task: ShiftTask,
        operators: Sequence[Operator],
        num_layers: int,
        device: torch.device,
        features: Scaling = "raw",
    ) -> None:
        self.task = task
        self.nodes = task.splits()
        self._operators = operators
        self._num_layers = num_layers
        self._device = device
        self._graphs: dict[bool, Graph] = {}
        self._readers: dict[bool, RowReader] = {}
        self._batches: dict[str, Batch] = {}
        self._passes: list[tuple[Batch, dict[str, Tensor | slice]]] = []
        self._preparation = features
        self._features: dict[bool, Features] = {}

    def batch(self, split: str) -> Batch:
        """Return the batch of a split, by its name in `task.splits()`."""
        if split not in self._batches:
            self._batches[split] = self._build(split)
        return self._batches[split]

    def training_batches(
        self,
        size: int,
        fanout: Sequence[int],
        seed: int,
        epoch: int,
        model: GraphModel | None = None,
    ) -> Iterator[Batch | None]:
        """Yield the training nodes of one epoch in batches, in random order.

        The same seed and epoch give the same batches. Each of several processes has a part of every
        batch; None if that is empty.

        Args:
            size: Number of nodes in a batch; 0: all.
            fanout: As for `Graph.sampled_field`.
            seed, epoch: Determine the order and the drawn neighbours.
            model: The model, if it attends over whole graphs: its sums over all nodes are computed
                once, with the present weights.
        """
        sums = self._sums(model) if self._needs_sums(fanout) and model is not None else []
        return prefetched(self._training_batches(size, fanout, seed, epoch, sums), self._device)

    def _needs_sums(self, fanout: Sequence[int]) -> bool:
        """Whether batches do not contain all nodes that a model attends to."""
        return self._attends_over_graphs and any(count > 0 for count in fanout)

    @property
    def _attends_over_graphs(self) -> bool:
        return any(operator.kind == "graph" for operator in self._operators)

    def _sums(self, model: GraphModel) -> list[Tensor]:
        """Return the sums over graphs of each layer of a model, without dropout."""
        hidden, was_training = self._hidden("train"), model.training
        model.eval()
        pieces = Pieces(self._on_cpu(hidden), self._num_layers)
        found = pieces.sums(model, partial(self._rows, hidden=hidden))
        model.train(was_training)
        return found

    def _on_cpu(self, hidden: bool) -> Graph:
        return self._graph(hidden)

    def _training_batches(
        self,
        size: int,
        fanout: Sequence[int],
        seed: int,
        epoch: int,
        sums: Sequence[Tensor],
    ) -> Iterator[Batch | None]:
        nodes = self.nodes["train"]
        order, first = epoch_order(nodes.numel(), epoch_seed(seed, epoch))
        for number, chosen in enumerate(order.split(size or nodes.numel())):
            own = first + number * len(fanout)
            part = nodes[chosen[distributed.rank() :: distributed.world_size()]]
            if part.numel():
                yield self._training_batch(part, *self._draw(part, fanout, own, sums))
            else:
                yield None

    def _draw(
        self, nodes: Tensor, fanout: Sequence[int], seed: int, sums: Sequence[Tensor]
    ) -> tuple[Features, tuple[Block, ...]]:
        """Return features and blocks of training nodes with some random neighbours."""
        hidden = self._hidden("train")
        if not any(count > 0 for count in fanout):
            return self._read(nodes, hidden)
        graph = self._graph(hidden).to(self._device)
        field = graph.sampled_field(nodes.to(self._device), fanout, seed)
        if sums:
            field = self._on_cpu(hidden).with_sums(field, sums)
        return self._rows(field.nodes, hidden), field.blocks

    def device_data(self, fanout: Sequence[int]) -> DeviceData | None:
        """Return graph, features and labels on a GPU; None if it cannot draw batches by itself."""
        if self._device.type != "cuda":
            return None
        hidden = self._hidden("train")
        graph, reader = self._graph_on_device(hidden), self._reader(hidden)
        if graph is None or not graph.can_be_padded(fanout) or not reader.is_read_by_gpu:
            return None
        columns = self._training_columns(torch.arange(self.task.num_nodes))
        return DeviceData(graph, reader.rows, *columns)

    def _graph_on_device(self, hidden: bool) -> Graph | None:
        return self._graph(hidden).to(self._device)

    def _rows(self, nodes: Tensor, hidden: bool) -> Features:
        """Return features of some nodes $[n]$ on the device."""
        return self._reader(hidden).rows(nodes)

    def _reader(self, hidden: bool) -> RowReader:
        if hidden not in self._readers:
            uses = partial(self._num_readers, hidden)
            self._readers[hidden] = RowReader(self._prepared(hidden), self._device, uses)
        return self._readers[hidden]

    def _num_readers(self, hidden: bool) -> Tensor:
        """Return the number $[N]$ of nodes that read each node."""
        return (self._graph_on_device(hidden) or self._on_cpu(hidden)).num_readers()

    def by_pass(self) -> list[tuple[Batch, dict[str, Tensor | slice]]]:
        """Return batches that contain all splits, and the rows of each split in its batch.

        Test sets on the same graph share a batch, because their receptive fields overlap.
        """
        if not self._passes:
            for split in ("train", "valid"):
                self._passes.append((self.batch(split), {split: slice(None)}))
            rest = [split for split in self.nodes if split not in ("train", "valid")]
            for hidden in (True, False):
                if splits := [split for split in rest if self._hidden(split) == hidden]:
                    self._passes.append(self._joint_batch(splits))
        return self._passes

    @torch.no_grad()
    def logits(self, method: Method) -> dict[str, tuple[Tensor, Tensor]]:
        """Return logits $[n, C]$ and labels $[n]$ of every split, by its name."""
        found: dict[str, tuple[Tensor, Tensor]] = {}
        for batch, splits in self.by_pass():
            logits = method.predict(batch)
            found |= {name: (logits[rows], batch.y[rows]) for name, rows in splits.items()}
        return found

    def predict(self, method: Method, split: str) -> tuple[Tensor, Tensor]:
        """Return logits $[n, C]$ and labels $[n]$ of one split."""
        batch = self.batch(split)
        return method.predict(batch), batch.y

    def view(self) -> TrainingView:
        """Return the part of the task that a method may use in training."""
        return TrainingView(
            x=self._prepared(hidden=self.task.inductive),
            edge_index=self.task.training_edges()[0],
            observed=self.task.observed(),
            train=self.task.train,
            y=self.task.data.y[self.task.train],
            read=lambda nodes: self._read(nodes, hidden=self.task.inductive),
            field=lambda: self._field(self.task.train, self._hidden("train")).nodes,
            graph=self._numbers(hidden=self.task.inductive),
            environment=self.task.data.environment if self.task.has_environments else None,
        )

    def graph(self) -> Graph:
        """Return the whole graph of the task, normalised."""
        return self._graph(hidden=False)

    def _hidden(self, split: str) -> bool:
        return hides_shifted_nodes(self.task, split)

    def _joint_batch(self, splits: Sequence[str]) -> tuple[Batch, dict[str, Tensor | slice]]:
        """Return one batch for splits on the same graph, and the rows of each split in it."""
        nodes, rows = torch.cat([self.nodes[s] for s in splits]).unique(return_inverse=True)
        x, blocks = self._read(nodes, self._hidden(splits[0]))
        batch = Batch(x, blocks, self.task.data.y[nodes].to(self._device))
        sizes = [self.nodes[split].numel() for split in splits]
        pieces = rows.to(self._device).split(sizes)
        return batch, dict(zip(splits, pieces, strict=True))

    def _build(self, split: str) -> Batch:
        nodes = self.nodes[split]
        x, blocks = self._read(nodes, self._hidden(split))
        if split == "train":
            return self._training_batch(nodes, x, blocks)
        return Batch(x, blocks, self.task.data.y[nodes].to(self._device))

    def _training_batch(self, nodes: Tensor, x: Features, blocks: Sequence[Block]) -> Batch:
        """Return a batch of training nodes, with their environments and weights."""
        return Batch(x, blocks, *self._training_columns(nodes))

    def _training_columns(self, nodes: Tensor) -> tuple[Tensor, Tensor | None, Tensor | None]:
        """Return labels, environments and weights of nodes $[n]$ on the device."""
        environment = weight = None
        if (weights := self.task.data.get("sample_weight")) is not None:
            weight = weights[nodes].to(self._device)
        if self.task.has_environments:
            ids = self.task.data.environment[nodes]
            environment = torch.searchsorted(self.task.training_environments(), ids).to(
                self._device
            )
        return self.task.data.y[nodes].to(self._device), environment, weight

    def _read(self, nodes: Tensor, hidden: bool) -> tuple[Features, tuple[Block, ...]]:
        """Return features and blocks of some nodes; `hidden` hides out-of-distribution nodes."""
        field = self._field(nodes, hidden)
        x = rows_of(self._prepared(hidden), field.nodes).to(self._device)
        return x, field.to(self._device).blocks

    def _field(self, nodes: Tensor, hidden: bool) -> ReceptiveField:
        return self._graph(hidden).receptive_field(nodes, self._num_layers)

    def _graph(self, hidden: bool) -> Graph:
        if hidden not in self._graphs:
            edges, weight = self._edges(hidden)
            self._graphs[hidden] = Graph(
                edges, self.task.num_nodes, self._operators, self._numbers(hidden), weight
            )
        return self._graphs[hidden]

    def _edges(self, hidden: bool) -> tuple[Tensor, Tensor | None]:
        """Return edges $[2, E]$ and their weights $[E]$ or None."""
        data = self.task.data
        return self.task.training_edges() if hidden else (data.edge_index, data.get("edge_weight"))

    def _prepared(self, hidden: bool) -> Features:
        """Return prepared features of all nodes; hidden nodes do not influence the others."""
        if hidden not in self._features:
            how = self._preparation
            graph = None if how == "raw" else self._preparation_groups(hidden)
            self._features[hidden] = prepare_features(self.task.data.x, graph, how)
        return self._features[hidden]

    def _preparation_groups(self, hidden: bool) -> Tensor:
        """Return the graph number of each node for the preparation of features.

        If the task has no graph numbers, the nodes connected to in-distribution nodes are one graph
        (training data) and the others another (new data). Hidden nodes are a separate graph.
        """
        number: Tensor | None = self.task.data.get("batch")
        if number is None:
            number = torch.ones(self.task.num_nodes, dtype=torch.long)
            number[replace(self.task, inductive=False, checked=True).observed()] = 0
        if not hidden:
            return number
        return torch.where(self.task.in_distribution, number, number.max() + 1)

    def _numbers(self, hidden: bool) -> Tensor | None:
        """Return the graph number of each node, if the task has them.

        Each hidden node is a graph of its own.
        """
        if "batch" not in self.task.data:
            return None
        number: Tensor = self.task.data.batch
        if not hidden:
            return number
        unique = number.max() + 1 + torch.arange(self.task.num_nodes)
        return torch.where(self.task.in_distribution, number, unique)


def hides_shifted_nodes(task: ShiftTask, split: str) -> bool:
    """Whether a split uses the graph without out-of-distribution nodes."""
    return task.inductive and split in TRAINING_GRAPH_SPLITS
