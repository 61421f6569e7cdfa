"""Columns that shift between groups of training nodes, and their shift since training."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from canet.diagnosis.context import Context
from canet.diagnosis.sections.reliance import Effect, replace_columns
from canet.methods import METHODS, InterventionSettings
from canet.methods.interventions import too_many_shift

SHIFTING = "columns that shift between groups"
CLEAR_RELIANCE = 0.05  # smallest flip rate that counts as reliance on these columns


@dataclass(frozen=True)
class GroupColumn:
    """The shift of one column between groups of training nodes of the same class."""

    name: str  # or the column index, if it has no name
    number: int  # column index
    share: float  # η²: share of the within-class variance that is between groups, 0 to 1
    # Standard deviation of the group means, without the part that is due to sampling, in the units
    # of the input table.
    spread: float
    is_shifting: bool  # whether the share is at least 0.14 and larger than by chance
    # New mean minus training mean, in spreads; NaN without a new graph or if the spread is 0.
    shift_in_spreads: float
    is_date: bool = False  # the spread is in seconds


@dataclass(frozen=True)
class BetweenGroups:
    """The columns that shift between groups of training nodes, found in the training data alone.

    A column that shifts is not necessarily misleading, and a column that does not may shift later.
    """

    groups: int  # number of groups
    uses_environments: bool  # whether the groups are the given environments, not inferred
    chance: float  # largest share of a column if the nodes of a class are grouped at random
    columns: list[GroupColumn]  # all columns, the largest share first
    # Effect of replacing the shifting columns by values of other nodes, on the training graph if it
    # was passed, else on the new graph; None if no column shifts.
    effect: Effect | None
    has_interventions: bool  # whether the model was trained with interventions
    supports_interventions: bool  # whether the method supports interventions

    @property
    def shifting(self) -> list[GroupColumn]:
        """The columns that clearly shift between groups."""
        return [column for column in self.columns if column.is_shifting]

    @property
    def furthest(self) -> GroupColumn | None:
        """The shifting column with the largest shift since training; None without a new graph."""
        known = [column for column in self.shifting if math.isfinite(column.shift_in_spreads)]
        return max(known, key=lambda column: abs(column.shift_in_spreads), default=None)

    @property
    def has_too_many(self) -> bool:
        """Whether so many columns shift that interventions would leave little to learn from."""
        return too_many_shift(len(self.shifting), len(self.columns))

    @property
    def is_relied_on(self) -> bool:
        """Whether replacing the shifting columns changes at least 5 % of the predictions."""
        return self.effect is not None and self.effect.flip_rate.value >= CLEAR_RELIANCE

    @property
    def is_risky(self) -> bool:
        """Whether the model relies on the shifting columns, and these are few."""
        return self.is_relied_on and not self.has_too_many

    @property
    def recommends_interventions(self) -> bool:
        """Whether training with interventions is recommended."""
        return self.is_risky and not self.has_interventions


def compute(context: Context) -> BetweenGroups | None:
    """Find the shifting columns in the stored training sample; None if the sample is too small."""
    screen = context.model.column_screen()
    if screen is None:
        return None
    difference = np.full(len(context.column_names), math.nan)
    for column in context.results["shift"].columns if context.new else ():
        difference[column.number] = column.after - column.before
    spread, share = screen.spread.double().numpy(), screen.share.double().numpy()
    is_date = np.zeros(len(context.column_names), dtype=bool)
    if context.encoding is not None:
        scales = context.encoding.scales
        spread = spread * [1.0 if scale is None else scale.std for scale in scales]
        is_date = np.array([scale is not None and scale.kind == "date" for scale in scales])
    in_spreads = np.full_like(difference, math.nan)
    np.divide(difference, spread, out=in_spreads, where=spread > 0)
    is_shifting, effect = screen.is_shifted.numpy(), None
    if is_shifting.any():
        chosen = np.flatnonzero(is_shifting)
        effect = replace_columns(
            context.main, SHIFTING, chosen, context.seed, context.repeats, context.on_pass
        )
    values = (share, spread, is_shifting, in_spreads, is_date)
    rows = zip(*(value.tolist() for value in values), strict=True)
    columns = [
        GroupColumn(name, i, *row)
        for i, (name, row) in enumerate(zip(context.column_names, rows, strict=True))
    ]
    settings = getattr(context.model, "settings_", {})
    method = METHODS.get(context.model.method_name)
    supported = method is not None and issubclass(method.settings_type, InterventionSettings)
    return BetweenGroups(
        groups=int(screen.num_groups),
        uses_environments=bool(screen.given),
        chance=float(screen.chance),
        columns=sorted(columns, key=lambda column: -column.share),
        effect=effect,
        has_interventions=settings.get("interventions", "none") != "none",
        supports_interventions=supported,
    )
