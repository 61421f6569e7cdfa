"""Wrong test labels, to show that a search does not use them."""

import torch

from canet.data.task import ShiftTask
from tests.support.small_task import with_columns


def with_garbage_test_labels(task: ShiftTask) -> ShiftTask:
    """The task with wrong labels on all nodes except training and validation nodes."""
    others = torch.ones(task.num_nodes, dtype=torch.bool)
    others[task.train] = others[task.valid] = False
    y = task.data.y
    return with_columns(task, y=torch.where(others, (y + 1) % task.num_classes, y))
