"""What models on columns share: their training nodes and graph, and the weights of nodes."""

import torch
from torch import Tensor

from canet.data.task import ShiftTask
from canet.reading import columns
from canet.reading.prepared import PreparedGraph, task_graph
from canet.training.fields import hides_shifted_nodes
from canet.util.progress import say


def training_rows(task: ShiftTask, name: str, width: int, most: int) -> Tensor:
    """Return the training nodes, or a random sample of them if the graph is on disk.

    The sample has at most `most` nodes, and few enough for their columns to fit into memory.
    """
    nodes = task.sampled(task.train, min(most, columns.MAX_NUMBERS // width))
    if nodes is not task.train:
        say(f"{name}: training on a random sample of {nodes.numel():,} nodes")
    return nodes


def training_graph(task: ShiftTask) -> PreparedGraph:
    """Return the graph that training may see."""
    return task_graph(task, hides_shifted_nodes(task, "train"))


def node_weights(task: ShiftTask, nodes: Tensor, class_weight: Tensor | None) -> Tensor:
    """Return the weight $[n]$ of some nodes, from their own weight and that of their class."""
    own, y = task.data.sample_weight, task.y[nodes]
    weight = torch.ones(len(y)) if own is None else own[nodes]
    return weight if class_weight is None else weight * class_weight[y]
