"""Which feature columns shift between groups of training nodes, and how much of it is chance."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor

from canet.errors import CanetError
from canet.methods import InterventionSettings, Settings, TrainingView
from canet.methods.interventions import (
    LARGE_EFFECT,
    MIN_OF_A_CLASS,
    Matrix,
    Moved,
    as_matrix,
    cluster_rows,
    groups_of,
    spread_of_rows,
)
from canet.nn import Features, SparseMatrix

MAX_ENVIRONMENTS = 50
"""Given environments that are groups of a screen; more have few nodes each."""
FOLDS = 8
"""Parts that columns are left out in, to group the nodes by the others."""
SHUFFLES = 5


@dataclass(frozen=True)
class ColumnScreen:
    r"""Which feature columns shift between groups of training nodes of the same class.

    Validation and test nodes are not used. A share does not show a cause.
    """

    spread: Tensor  # standard deviation $[D]$ of the groups' means, less what sampling gives
    share: Tensor  # of the variance within a class that lies between groups $[D]$, η²
    # The largest share of all columns, a scalar, where the nodes of each class are assigned to
    # groups at random.
    chance: Tensor
    num_groups: Tensor  # how many groups there are, a scalar
    # Whether groups are environments that were given, a scalar; else they were inferred, and the
    # share of a column is that between groups inferred from the others.
    given: Tensor

    @property
    def clear(self) -> Tensor:
        """Mask $[D]$ of the columns whose effect is large, and larger than chance makes it."""
        return (self.share >= LARGE_EFFECT) & (self.share > self.chance)


def screen_columns(
    x: Tensor,
    y: Tensor,
    environment: Tensor,
    settings: Settings | None,
    source: Sequence[int] | None = None,
) -> ColumnScreen | None:
    """Which columns of features $[r, D]$ shift between groups of nodes with class ids $[r]$.

    Groups are those of the interventions in the method's settings; where it has none, the
    environments $[r]$ where every node has one and there are 2 to 50 of them; else inferred from
    the features. Columns with the same number in `source` $[D]$ are of one column of a table; by
    default each is its own.

    Returns:
        None where nodes or columns are too few for groups, or no class has nodes enough in two of
        them. A model is fitted in any case.
    """
    features = SparseMatrix.from_torch(x) if x.layout == torch.sparse_csr else x
    view = view_of(features, y, environment)
    chosen = _group_settings(settings, environment)
    try:
        with warnings.catch_warnings(action="ignore"):
            rows = as_matrix(features)
            group, count = groups_of(chosen, view)
            moved = spread_of_rows(rows, y, group, count)
            chance = _largest_by_chance(rows, y, group, count)
            if chosen.interventions == "inferred":
                origin = np.arange(x.shape[1]) if source is None else np.array(source)
                moved = _by_other_columns(rows, y, moved, count, origin)
    except (CanetError, RuntimeError, ValueError):
        return None
    sizes = torch.bincount(y * count + group, minlength=(int(y.max()) + 1) * count)
    compared = (sizes.view(-1, count) >= MIN_OF_A_CLASS).sum(dim=1) >= 2
    if not compared.any() or not torch.stack(moved).isfinite().all():
        return None
    return ColumnScreen(
        spread=moved.spread,
        share=moved.share,
        chance=chance,
        num_groups=torch.tensor(count),
        given=torch.tensor(chosen.interventions == "given"),
    )


def view_of(x: Features, y: Tensor, environment: Tensor) -> TrainingView:
    """Nodes that are all training nodes, without a graph."""
    nodes = torch.arange(y.numel())
    return TrainingView(
        x=x,
        edge_index=torch.empty(2, 0, dtype=torch.long),
        observed=nodes,
        train=nodes,
        y=y,
        read=lambda some: (x, ()),
        field=lambda: nodes,
        environment=environment if environment.numel() else None,
    )


def _group_settings(settings: Settings | None, environment: Tensor) -> InterventionSettings:
    """How the nodes of a screen are grouped."""
    if not isinstance(settings, InterventionSettings):
        settings = InterventionSettings()
    if settings.interventions != "none":
        return settings
    ids = environment.unique()
    given = 2 <= ids.numel() <= MAX_ENVIRONMENTS and bool(ids[0] >= 0)
    return replace(settings, interventions="given" if given else "inferred")


def _largest_by_chance(rows: Matrix, y: Tensor, group: Tensor, count: int) -> Tensor:
    """The largest share of all columns, a scalar, where groups are assigned at random."""
    random = torch.Generator().manual_seed(0)
    shuffled = [_shuffled(group, y, random) for _ in range(SHUFFLES)]
    largest = [spread_of_rows(rows, y, other, count).share.max() for other in shuffled]
    return torch.stack(largest).median()


def _shuffled(group: Tensor, y: Tensor, random: torch.Generator) -> Tensor:
    """Groups $[n]$, exchanged at random between nodes of the same class $[n]$."""
    order = torch.randperm(y.numel(), generator=random)
    others = order[y[order].argsort(stable=True)]
    result = torch.empty_like(group)
    result[y.argsort(stable=True)] = group[others]
    return result


def _by_other_columns(
    rows: Matrix, y: Tensor, moved: Moved, count: int, source: np.ndarray
) -> Moved:
    """How much columns shift between groups that are inferred without them.

    Groups follow the columns they are inferred from: those of large variance shift between them
    whatever they mean, and with few columns all do. Groups of the other columns do not have this
    artefact. Columns of the same source $[D]$ are left out together, since the categories of one
    text column tell each other. Columns that do not clearly shift are left as they are.
    """
    spread, share = moved.spread.clone(), moved.share.clone()
    large = moved.large.numpy()
    sources = np.unique(source[large])
    for part in range(min(FOLDS, sources.size)):
        out = np.isin(source, sources[part::FOLDS])
        others = rows[:, ~out]
        found = spread_of_rows(rows, y, cluster_rows(others, others, count), count)
        chosen = torch.from_numpy(out & large)
        spread[chosen], share[chosen] = found.spread[chosen], found.share[chosen]
    return Moved(spread, share)
