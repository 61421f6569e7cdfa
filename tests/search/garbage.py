"""Test labels that are wrong, to show that nobody reads them."""

from __future__ import annotations

from dataclasses import replace

import torch

from canet.data.task import ShiftTask


def with_garbage_test_labels(task: ShiftTask) -> ShiftTask:
    """The task with other labels on every node that is not for training or validation."""
    others = torch.ones(task.num_nodes, dtype=torch.bool)
    others[task.train] = others[task.valid] = False
    data = task.data.clone()
    data.y = torch.where(others, (data.y + 1) % task.num_classes, data.y)
    return replace(task, data=data)
