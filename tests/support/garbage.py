"""Wrong test labels, to show that a search does not use them."""

from dataclasses import replace

import torch

from canet.data.task import ShiftTask
from tests.support.data_of import data_of


def with_garbage_test_labels(task: ShiftTask) -> ShiftTask:
    """The task with wrong labels on all nodes except training and validation nodes."""
    others = torch.ones(task.num_nodes, dtype=torch.bool)
    others[task.train] = others[task.valid] = False
    data = data_of(task)
    data.y = torch.where(others, (data.y + 1) % task.num_classes, data.y)
    return replace(task, data=data)
