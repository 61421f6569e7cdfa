"""A task of 60 nodes that trains in a moment."""

from dataclasses import replace

import torch
from torch_geometric.data import Data

from canet.data.task import ShiftTask
from canet.methods import InterventionSettings
from tests.support.data_of import data_of
from tests.support.small_task import with_columns

NUM_NODES, NUM_ID = 60, 40
QUICK = InterventionSettings(hidden=8, epochs=30, learning_rate=0.02)


def tiny_task(
    num_classes: int = 3,
    metric: str = "accuracy",
    inductive: bool = False,
    sparse: bool = False,
) -> ShiftTask:
    """Nodes 0-39 in distribution, 40-49 `near`, 50-59 `far`, and edges between all of them.

    Features depend on the label, with enough noise that no score is perfect.
    """
    random = torch.Generator().manual_seed(7)
    y = torch.randint(num_classes, (NUM_NODES,), generator=random)
    y[::10] = torch.arange(NUM_NODES // 10) % num_classes
    x = torch.eye(num_classes, 8)[y] + torch.randn(NUM_NODES, 8, generator=random)
    nodes = torch.arange(NUM_NODES)
    return ShiftTask(
        name="tiny",
        data=Data(
            x=x.relu().to_sparse_csr() if sparse else x,
            edge_index=torch.randint(NUM_NODES, (2, 4 * NUM_NODES), generator=random),
            y=y,
            environment=nodes % 3,
        ),
        train=nodes[:16],
        valid=nodes[16:28],
        test_id=nodes[28:40],
        test_ood={"near": nodes[40:50], "far": nodes[50:60]},
        metric=metric,
        in_distribution=nodes < NUM_ID,
        shift="none",
        inductive=inductive,
    )


def disconnected_task() -> ShiftTask:
    """The tiny task without edges between its in-distribution nodes and the others."""
    task = tiny_task()
    inside = task.data.edge_index < NUM_ID
    return with_columns(task, edge_index=task.data.edge_index[:, inside[0] == inside[1]])


def with_other_test_nodes(task: ShiftTask) -> ShiftTask:
    """Random labels for all test nodes, and random features and edges for shifted ones."""
    random = torch.Generator().manual_seed(5)
    data = data_of(task)
    for nodes in (task.test_id, *task.test_ood.values()):
        data.y[nodes] = (data.y[nodes] + 1) % task.num_classes
    data.x = data.x.clone()
    data.x[NUM_ID:] = 50 * torch.randn(NUM_NODES - NUM_ID, data.x.shape[1], generator=random)
    inside = (data.edge_index < NUM_ID).all(dim=0)
    garbage = torch.randint(NUM_ID, NUM_NODES, (2, 90), generator=random)
    data.edge_index = torch.cat([data.edge_index[:, inside], garbage], dim=1)
    return replace(task, data=data)
