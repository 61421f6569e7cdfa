"""Find the feature columns that shift between groups of training nodes more than by chance."""

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
    MIN_CLASS_SIZE,
    GroupSpread,
    Matrix,
    as_matrix,
    cluster_rows,
    groups_of,
    spread_of_rows,
)
from canet.nn import Features, SparseMatrix

MAX_ENVIRONMENTS = 50
"""Largest number of environments that are used as groups; with more, each has few nodes."""
NUM_FOLDS = 8
"""Number of parts of the columns; groups are inferred without the columns of one part."""
NUM_SHUFFLES = 5


@dataclass(frozen=True)
class ColumnScreen:
    r"""Shifts of the feature columns between groups of training nodes of the same class.

    Validation and test nodes are not used. A large shift does not imply a causal effect.
    """

    spread: Tensor  # standard deviation $[D]$ of the group means, corrected for sampling noise
    share: Tensor  # share $[D]$ of the variance within a class that lies between groups, η²
    # Largest share of all columns if the nodes of each class are assigned to groups at random, a
    # scalar.
    chance: Tensor
    num_groups: Tensor  # number of groups, a scalar
    # Whether the groups are the given environments, a scalar. If not, groups are inferred, and the
    # share of a column is computed for groups that are inferred from the other columns.
    given: Tensor

    @property
    def is_shifted(self) -> Tensor:
        """Mask $[D]$ of the columns whose share is large, and larger than by chance."""
        return (self.share >= LARGE_EFFECT) & (self.share > self.chance)


def screen_columns(
    x: Tensor,
    y: Tensor,
    environment: Tensor,
    settings: Settings | None,
    source: Sequence[int] | None = None,
) -> ColumnScreen | None:
    """Find the columns of features $[r, D]$ that shift between groups of nodes with classes $[r]$.

    The groups are those of the setting `interventions` of the method. If it is not set, they are
    the environments $[r]$, if every node has one and there are 2 to 50. Otherwise they are inferred
    from the features. Feature columns with the same number in `source` $[D]$ come from the same
    table column; by default each column has its own number.

    Returns:
        None if there are too few nodes or columns, or if no class has enough nodes in two groups.
    """
    features = SparseMatrix.from_torch(x) if x.layout == torch.sparse_csr else x
    view = view_of(features, y, environment)
    chosen = _group_settings(settings, environment)
    try:
        with warnings.catch_warnings(action="ignore"):
            rows = as_matrix(features)
            group, count = groups_of(chosen, view)
            between = spread_of_rows(rows, y, group, count)
            chance = _largest_by_chance(rows, y, group, count)
            if chosen.interventions == "inferred":
                origin = np.arange(x.shape[1]) if source is None else np.array(source)
                between = _without_own_fold(rows, y, between, count, origin)
    except (CanetError, RuntimeError, ValueError):
        return None
    sizes = torch.bincount(y * count + group, minlength=(int(y.max()) + 1) * count)
    is_compared = (sizes.view(-1, count) >= MIN_CLASS_SIZE).sum(dim=1) >= 2
    if not is_compared.any() or not torch.stack(between).isfinite().all():
        return None
    return ColumnScreen(
        spread=between.spread,
        share=between.share,
        chance=chance,
        num_groups=torch.tensor(count),
        given=torch.tensor(chosen.interventions == "given"),
    )


def view_of(x: Features, y: Tensor, environment: Tensor) -> TrainingView:
    """Return a training view without edges, in which all nodes are training nodes."""
    nodes = torch.arange(y.numel())
    return TrainingView(
        x=x,
        edge_index=torch.empty(2, 0, dtype=torch.long),
        observed=nodes,
        train=nodes,
        y=y,
        read=lambda nodes: (x, ()),
        field=lambda: nodes,
        environment=environment if environment.numel() else None,
    )


def _group_settings(settings: Settings | None, environment: Tensor) -> InterventionSettings:
    """Return the intervention settings that define the groups."""
    if not isinstance(settings, InterventionSettings):
        settings = InterventionSettings()
    if settings.interventions != "none":
        return settings
    ids = environment.unique()
    given = 2 <= ids.numel() <= MAX_ENVIRONMENTS and bool(ids[0] >= 0)
    return replace(settings, interventions="given" if given else "inferred")


def _largest_by_chance(rows: Matrix, y: Tensor, group: Tensor, count: int) -> Tensor:
    """Return the largest share of all columns if groups are assigned at random, a scalar."""
    random = torch.Generator().manual_seed(0)
    shuffled = [_shuffled(group, y, random) for _ in range(NUM_SHUFFLES)]
    largest = [spread_of_rows(rows, y, other, count).share.max() for other in shuffled]
    return torch.stack(largest).median()


def _shuffled(group: Tensor, y: Tensor, random: torch.Generator) -> Tensor:
    """Permute the groups $[n]$ at random between nodes of the same class $[n]$."""
    order = torch.randperm(y.numel(), generator=random)
    others = order[y[order].argsort(stable=True)]
    result = torch.empty_like(group)
    result[y.argsort(stable=True)] = group[others]
    return result


def _without_own_fold(
    rows: Matrix, y: Tensor, between: GroupSpread, count: int, source: np.ndarray
) -> GroupSpread:
    """Compute again how much the shifted columns shift, between groups inferred without them.

    Columns with a large variance always shift between groups that are inferred from them, and so
    do all columns if there are few. Groups that are inferred from the other columns do not have
    this artefact. Columns of the same source $[D]$ are left out together, because the categories of
    one text column depend on each other. Other columns keep their values.
    """
    spread, share = between.spread.clone(), between.share.clone()
    is_shifted = between.is_shifted.numpy()
    sources = np.unique(source[is_shifted])
    for part in range(min(NUM_FOLDS, sources.size)):
        is_left_out = np.isin(source, sources[part::NUM_FOLDS])
        others = rows[:, ~is_left_out]
        found = spread_of_rows(rows, y, cluster_rows(others, others, count), count)
        chosen = torch.from_numpy(is_left_out & is_shifted)
        spread[chosen], share[chosen] = found.spread[chosen], found.share[chosen]
    return GroupSpread(spread, share)
