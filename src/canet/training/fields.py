"""A task on a device: each split's receptive field, features and labels, built once and kept."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from canet.data.task import ShiftTask
from canet.methods import Batch
from canet.nn import Features, Graph, Operator, SparseMatrix

AT_TRAINING_TIME = ("train", "valid", "test_id")


class TaskFields:
    """The batches of a task for models with given operators and depth.

    Training, validation and the in-distribution test read the graph of training time, which under
    `inductive` has no out-of-distribution nodes; the shifted test sets read the whole graph.

    Args:
        task: The task, left unchanged.
        operators: Matrices that the model's blocks must hold.
        num_layers: Depth of the receptive fields.
        device: Where the batches are kept.
    """

    def __init__(
        self,
        task: ShiftTask,
        operators: Sequence[Operator],
        num_layers: int,
        device: torch.device,
    ) -> None:
        self.task = task
        self.nodes = task.splits()
        self._operators = operators
        self._num_layers = num_layers
        self._device = device
        self._graphs: dict[bool, Graph] = {}
        self._batches: dict[str, Batch] = {}
        x = task.data.x
        self._x = SparseMatrix.from_torch(x) if x.layout == torch.sparse_csr else x

    def batch(self, split: str) -> Batch:
        """The batch of a split, by its name in `task.splits()`."""
        if split not in self._batches:
            self._batches[split] = self._build(split)
        return self._batches[split]

    def _build(self, split: str) -> Batch:
        data, nodes = self.task.data, self.nodes[split]
        hidden = self.task.inductive and split in AT_TRAINING_TIME
        field = self._graph(hidden).receptive_field(nodes, self._num_layers).to(self._device)
        environment = data.environment[nodes] if self.task.has_environments else None
        return Batch(
            x=self._features(field.nodes.cpu()),
            blocks=field.blocks,
            y=data.y[nodes].to(self._device),
            environment=None if environment is None else environment.to(self._device),
        )

    def _graph(self, hidden: bool) -> Graph:
        if hidden not in self._graphs:
            edges = self.task.training_edges() if hidden else self.task.data.edge_index
            self._graphs[hidden] = Graph(edges, self.task.num_nodes, self._operators)
        return self._graphs[hidden]

    def _features(self, nodes: Tensor) -> Features:
        if isinstance(self._x, Tensor):
            return self._x[nodes].to(self._device)
        return self._x.select_rows(nodes).to(self._device)
