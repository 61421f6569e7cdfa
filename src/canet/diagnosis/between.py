"""Which columns moved between groups of training nodes, and how far they moved since."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from canet.diagnosis.graph import Model
from canet.diagnosis.reliance import Effect
from canet.diagnosis.shift import Shift
from canet.methods.interventions import too_many_move

MOVING = "columns that move between groups"


@dataclass(frozen=True)
class GroupColumn:
    """How much one column moves between groups of training nodes of the same class.

    Args:
        name: Of the column, or its number.
        number: Of the column.
        share: Of its variance within a class that lies between groups (η²), 0 to 1.
        spread: Standard deviation of the groups' means, less what sampling gives, in the column's
            own units.
        clear: Whether the share is large (0.14 or more), and larger than by chance.
        moved: Its mean on the new graph less that of training, in spreads; NaN without a new
            graph, or without a spread.
    """

    name: str
    number: int
    share: float
    spread: float
    clear: bool
    moved: float


@dataclass(frozen=True)
class BetweenGroups:
    """Which columns move between groups of training nodes, told at fit and of training alone.

    A column that moves need not mislead, and one that does not may still move later.

    Args:
        groups: How many groups there are.
        given: Whether they are environments that were given; else they were inferred.
        chance: The largest share of all columns where nodes of a class are dealt to groups at
            random.
        columns: All of them, the largest share first.
        relied_on: What drawing the clear ones from other nodes does to the predictions, on the
            training graph, or on the new one where that is not given; None where none is clear.
        intervened: Whether the model was trained with interventions, which move such columns.
    """

    groups: int
    given: bool
    chance: float
    columns: list[GroupColumn]
    relied_on: Effect | None
    intervened: bool

    @property
    def clear(self) -> list[GroupColumn]:
        """The columns that clearly move."""
        return [column for column in self.columns if column.clear]

    @property
    def worth_a_try(self) -> bool:
        """Whether interventions move few enough columns to leave the model something to learn."""
        return not too_many_move(len(self.clear), len(self.columns))


def clear_columns(model: Model) -> np.ndarray:
    """Numbers of the columns that clearly moved between groups in training, ascending."""
    screen = model.reference_.screen
    return np.empty(0, np.int64) if screen is None else np.flatnonzero(screen.clear.numpy())


def between_groups(
    model: Model, shift: Shift | None, names: Sequence[str], relied_on: Effect | None
) -> BetweenGroups | None:
    """What a model remembers of groups of its training nodes; None where it remembers none.

    Args:
        model: The fitted model.
        shift: What moved to the new graph, if there is one.
        names: Of the columns.
        relied_on: What drawing `clear_columns` from other nodes does.
    """
    screen = model.reference_.screen
    if screen is None:
        return None
    change = np.full(len(names), math.nan)
    for column in shift.columns if shift is not None else ():
        change[column.number] = column.after - column.before
    spread = screen.spread.double().numpy()
    moved = np.divide(change, spread, out=np.full_like(change, math.nan), where=spread > 0)
    share, clear = screen.share.double().numpy(), screen.clear.numpy()
    columns = [
        GroupColumn(
            names[i], int(i), float(share[i]), float(spread[i]), bool(clear[i]), float(moved[i])
        )
        for i in np.argsort(-share, kind="stable")
    ]
    settings = getattr(model, "settings_", {})
    return BetweenGroups(
        groups=int(screen.num_groups),
        given=bool(screen.given),
        chance=float(screen.chance),
        columns=columns,
        relied_on=relied_on,
        intervened=settings.get("interventions", "none") != "none",
    )
