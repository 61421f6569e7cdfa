"""Batches of a task on a device, and predictions of its splits, at once or in pieces."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from math import ceil

import torch
from torch import Tensor

from canet.data.task import ShiftTask
from canet.methods import Batch, Method, TrainingView
from canet.methods.base import Scaling
from canet.nn import Block, Features, GraphModel, Operator
from canet.reading.pieces import Pieces
from canet.reading.predict import GraphFields
from canet.reading.prepared import task_graph
from canet.scoring.metrics import finite_score
from canet.training.device_batches import DeviceData, epoch_order, epoch_seed
from canet.training.prefetch import prefetched
from canet.util import distributed


def hides_shifted_nodes(task: ShiftTask, split: str) -> bool:
    """Whether a split uses the graph without out-of-distribution nodes."""
    return task.inductive and split in ("train", "valid", "test_id")


@dataclass(eq=False)
class TaskFields:
    """The batches of a task, for models with given operators and depth.

    Training, validation and the in-distribution test use the training graph, which contains no
    out-of-distribution nodes if the task is `inductive`. The shifted test sets use the whole graph.
    Batches, graphs and scaled features are built once. `in_batches` is as for `GraphFields`.
    """

    task: ShiftTask
    operators: Sequence[Operator]
    num_layers: int
    device: torch.device
    scaling: Scaling = "raw"
    in_batches: bool = False

    def __post_init__(self) -> None:
        self.nodes = self.task.scored()
        self._graphs: dict[bool, GraphFields] = {}
        self._batches: dict[str, Batch] = {}
        self._pieces: dict[tuple[str, ...], Pieces] = {}
        self.of("train")  # rejects models that need the whole graph, if it is on disk

    def of(self, split: str) -> GraphFields:
        """Return the features and receptive fields in the graph of a split."""
        hidden = hides_shifted_nodes(self.task, split)
        if hidden not in self._graphs:
            sizes = self.operators, self.num_layers, self.device
            graph = task_graph(self.task, hidden)
            self._graphs[hidden] = GraphFields(graph, *sizes, self.scaling, self.in_batches)
        return self._graphs[hidden]

    def batch(self, split: str) -> Batch:
        """Return the batch of a split, by its name in `task.splits()`."""
        if split not in self._batches:
            nodes = self.nodes[split]
            if split == "train":
                self._batches[split] = self.training_batch(nodes, *self.of(split).read(nodes))
            else:
                self._batches[split] = self._batch(split, nodes)
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
            fanout: As for `NormalisedGraph.sampled_field`.
            seed, epoch: Determine the order and the drawn neighbours.
            model: The model, if it attends over whole graphs: its sums over all nodes are computed
                once, with the present weights.
        """
        attends = any(operator.kind == "graph" for operator in self.operators)
        sums = list[Tensor]()
        if model is not None and attends and self.of("train").draws(fanout):
            sums = self._sums(model)
        nodes = self.task.train
        order, first = epoch_order(nodes.numel(), epoch_seed(seed, epoch))

        def batches() -> Iterator[Batch | None]:
            for number, chosen in enumerate(order.split(size or nodes.numel())):
                own = first + number * len(fanout)
                part = nodes[chosen[distributed.rank() :: distributed.world_size()]]
                if part.numel():
                    yield self.training_batch(part, *self.draw(part, fanout, own, sums))
                else:
                    yield None

        return prefetched(batches(), self.device)

    def _sums(self, model: GraphModel) -> list[Tensor]:
        """Return the sums over graphs of each layer of a model, without dropout."""
        fields, was_training = self.of("train"), model.training
        model.eval()
        found = fields.pieces().sums(model, fields.reader.rows)
        model.train(was_training)
        return found

    def draw(
        self, nodes: Tensor, fanout: Sequence[int], seed: int, sums: Sequence[Tensor] = ()
    ) -> tuple[Features, tuple[Block, ...]]:
        """Return features and blocks of training nodes with some random neighbours."""
        fields = self.of("train")
        if not fields.draws(fanout):
            return fields.read(nodes)
        graph = fields.on(self.device)
        field = graph.sampled_field(nodes.to(graph.device), fanout, seed)
        if sums:
            field = fields.on().with_sums(field, sums)
        return fields.reader.rows(field.nodes), field.to(self.device).blocks

    def device_data(self, fanout: Sequence[int]) -> DeviceData | None:
        """Return graph, features and labels on a GPU; None if it cannot draw batches by itself."""
        if self.device.type != "cuda":
            return None
        fields = self.of("train")
        graph = fields.graph.graph_to_draw(self.operators, self.device)
        if not graph.can_be_padded(fanout) or not fields.reader.is_read_by_gpu:
            return None
        columns = self._training_columns(torch.arange(self.task.num_nodes))
        return DeviceData(graph, fields.reader.rows, *columns)

    @cached_property
    def by_pass(self) -> list[tuple[Batch, dict[str, Tensor | slice]]]:
        """Batches that contain all splits, and the rows of each split in its batch.

        Test sets on the same graph share a batch, because their receptive fields overlap. Empty if
        a receptive field may not fit into memory.
        """
        if self.of("train").in_pieces:
            return []
        passes: list[tuple[Batch, dict[str, Tensor | slice]]] = [
            (self.batch(split), {split: slice(None)}) for split in ("train", "valid")
        ]
        for splits in self._by_graph([s for s in self.nodes if s not in ("train", "valid")]):
            nodes, rows = torch.cat([self.nodes[s] for s in splits]).unique(return_inverse=True)
            pieces = rows.to(self.device).split([self.nodes[split].numel() for split in splits])
            passes.append((self._batch(splits[0], nodes), dict(zip(splits, pieces, strict=True))))
        return passes

    def _by_graph(self, splits: Sequence[str]) -> list[tuple[str, ...]]:
        """Return the splits on the training graph, and those on the whole graph."""
        hide = [split for split in splits if hides_shifted_nodes(self.task, split)]
        groups = tuple(hide), tuple(split for split in splits if split not in hide)
        return [group for group in groups if group]

    @torch.no_grad()
    def logits(self, method: Method) -> dict[str, tuple[Tensor, Tensor]]:
        """Return logits $[n, C]$ and labels $[n]$ of every split, by its name.

        They are on the device, or on the CPU if they were predicted in pieces.
        """
        found: dict[str, tuple[Tensor, Tensor]] = {}
        if not self.by_pass:
            for splits in self._by_graph(list(self.nodes)):
                found |= self._in_pieces(method, splits)
            return {split: found[split] for split in self.nodes}
        for batch, rows_of_split in self.by_pass:
            logits = method.predict(batch)
            found |= {name: (logits[rows], batch.y[rows]) for name, rows in rows_of_split.items()}
        return found

    def score(self, method: Method, split: str) -> Tensor:
        """Return the score of a split, on the device; NaN if a logit is not finite."""
        if self.of(split).in_pieces:
            logits, y = self._in_pieces(method, (split,))[split]
        else:
            logits, y = method.predict(self.batch(split)), self.batch(split).y
        return finite_score(self.task.scorer, logits, y).to(self.device)

    def _in_pieces(
        self, method: Method, splits: tuple[str, ...]
    ) -> dict[str, tuple[Tensor, Tensor]]:
        """Predict splits on the same graph; they share the states of their neighbours."""
        fields, nodes = self.of(splits[0]), torch.cat([self.nodes[s] for s in splits])
        if splits not in self._pieces:
            self._pieces[splits] = fields.pieces(nodes)
        logits = torch.empty(nodes.numel(), method.model.phi_out.out_features)
        for rows, found in self._pieces[splits].predict(method.model, fields.reader.rows):
            logits[rows] = found.logits.cpu()
        sizes = [self.nodes[split].numel() for split in splits]
        parts = zip(splits, logits.split(sizes), strict=True)
        return {split: (part, self.task.y[self.nodes[split]]) for split, part in parts}

    def view(self, batch_size: int = 0) -> TrainingView:
        """Return the part of the task that a method may use in training; size 0: in one batch.

        The features of a graph on disk are as stored, and its edges are left out: methods that need
        them do not train in batches.
        """
        task, fields = self.task, self.of("train")
        graph = fields.graph
        x, edges = graph.data.x, graph.data.edge_index
        return TrainingView(
            x=x if edges is None else graph.features(self.scaling),
            edge_index=torch.empty(2, 0, dtype=torch.long) if edges is None else edges,
            observed=task.observed(),
            train=task.train,
            y=task.y[task.train],
            read=fields.read,
            field=lambda: fields.field(task.train).nodes,
            graph=graph.data.batch,
            environment=task.data.environment if task.has_environments else None,
            steps_per_epoch=ceil(task.train.numel() / batch_size) if batch_size else 1,
        )

    def _batch(self, split: str, nodes: Tensor) -> Batch:
        """Return a batch of nodes in the graph of a split."""
        return Batch(*self.of(split).read(nodes), self.task.y[nodes].to(self.device))

    def training_batch(self, nodes: Tensor, x: Features, blocks: Sequence[Block]) -> Batch:
        """Return a batch of training nodes, with their environments and weights."""
        return Batch(x, blocks, *self._training_columns(nodes))

    def _training_columns(self, nodes: Tensor) -> tuple[Tensor, Tensor | None, Tensor | None]:
        """Return labels, environments and weights of nodes $[n]$ on the device."""
        environment = weight = None
        if (weights := self.task.data.sample_weight) is not None:
            weight = weights[nodes].to(self.device)
        if self.task.data.environment is not None:
            ids = self.task.data.environment[nodes]
            environment = torch.searchsorted(self.task.training_environments(), ids).to(self.device)
        return self.task.y[nodes].to(self.device), environment, weight
