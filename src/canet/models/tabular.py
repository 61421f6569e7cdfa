"""What models on columns share: which columns they read, and the weights of the nodes."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from canet.data.task import ShiftTask
from canet.methods.base import ModelSettings
from canet.nn import Features
from canet.settings import setting
from canet.training.fields import hides_shifted_nodes
from canet.training.prepared import PreparedGraph, task_graph


@dataclass(frozen=True)
class TabularSettings(ModelSettings):
    """Settings of models on columns."""

    neighbours: bool = setting(
        True, "also use the mean of the neighbours, the mean of their means, and the degree"
    )

    def columns(self, graph: PreparedGraph) -> Features:
        """Return the columns $[N, D]$ of a graph."""
        return (graph.with_neighbours() if self.neighbours else graph).features(self.scaling)

    def num_features(self, num_columns: int) -> int:
        """Return the number of features of a graph with this number of columns."""
        return (num_columns - 1) // 3 if self.neighbours else num_columns


def training_graph(task: ShiftTask) -> PreparedGraph:
    """Return the graph that training may see."""
    return task_graph(task, hides_shifted_nodes(task, "train"))


def node_weights(task: ShiftTask, nodes: Tensor, class_weight: Tensor | None) -> Tensor:
    """Return the weight $[n]$ of some nodes, from their own weight and that of their class."""
    own, y = task.data.get("sample_weight"), task.data.y[nodes]
    weight = torch.ones(len(y)) if own is None else own[nodes]
    return weight if class_weight is None else weight * class_weight[y]
