"""A small task with two separate graphs, one for training and one shifted."""

from dataclasses import replace
from typing import Any

import pytest
import torch

from canet.data.raw_graph import RawGraph
from canet.data.task import ShiftTask
from canet.models import portfolio
from canet.models.portfolio import Recipe

INSIDE, ALL = 240, 300
FEW = (
    Recipe("linear", changes={"neighbours": False}),
    Recipe("erm", "mlp"),
    Recipe("erm", "gcn", {"norm": "layer", "scaling": "standardised"}),
)


def small_task(**changes: Any) -> ShiftTask:
    """Three classes with noisy features, and two styles that shift all features.

    Nodes from 240 on are a separate graph and the shifted test set.
    """
    random = torch.Generator().manual_seed(0)
    y = torch.arange(ALL) % 3
    style = (torch.arange(ALL) // 3) % 2
    x = torch.eye(3, 6)[y] + 0.4 * torch.randn(ALL, 6, generator=random)
    x[:, 3:] += 3.0 * style[:, None]
    inside = torch.randint(INSIDE, (2, 900), generator=random)
    shifted = torch.randint(INSIDE, ALL, (2, 200), generator=random)
    nodes = torch.arange(ALL)
    columns = {"x": x, "edge_index": torch.cat([inside, shifted], dim=1), "y": y}
    return ShiftTask(
        name="small",
        data=RawGraph(**columns, **changes),
        train=nodes[:120],
        valid=nodes[120:180],
        test_id=nodes[180:INSIDE],
        test_ood={"later": nodes[INSIDE:]},
        metric="accuracy",
        in_distribution=nodes < INSIDE,
        shift="none",
    )


def with_columns(task: ShiftTask, **columns: torch.Tensor | None) -> ShiftTask:
    """The task with other columns of its nodes."""
    return replace(task, data=replace(task.data, **columns), checked=True)


def with_garbage(task: ShiftTask, nodes: torch.Tensor, unknown: torch.Tensor) -> ShiftTask:
    """Replace features and edges of some nodes, and the labels of these and of `unknown` nodes."""
    x, y, edges = (task.data.get(name).clone() for name in ("x", "y", "edge_index"))
    x[nodes] = torch.randn(len(nodes), x.shape[1]) * 100
    for changed in (nodes, unknown):
        y[changed] = y[changed].flip(0)
    inside = torch.isin(edges, nodes).all(dim=0)
    others = nodes[torch.randint(len(nodes), (2, 333))]
    return with_columns(task, x=x, y=y, edge_index=torch.cat([edges[:, ~inside], others], dim=1))


@pytest.fixture
def few_models(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make `robust` train three models."""
    monkeypatch.setitem(portfolio.PRESETS, "robust", FEW)
