"""Which columns shift between groups of training nodes, and how far they shifted since."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from canet.diagnosis.examination import Examination
from canet.diagnosis.sections.reliance import Effect, exchanged
from canet.methods import METHODS, InterventionSettings
from canet.methods.interventions import too_many_shift

VARYING = "columns that shift between groups"
CLEAR_RELIANCE = 0.05  # of the predictions that flip


@dataclass(frozen=True)
class GroupColumn:
    """How much one column shifts between groups of training nodes of the same class."""

    name: str  # of the column, or its number
    number: int  # of the column
    share: float  # of its variance within a class that lies between groups (η²), 0 to 1
    # Standard deviation of the groups' means, less what sampling gives, in the units of the table
    # that the graph was read from.
    spread: float
    clear: bool  # whether the share is large (0.14 or more), and larger than by chance.
    # Its mean on the new graph less that of training, in spreads; NaN without a new graph, or
    # without a spread.
    shifted: float
    is_date: bool = False  # then the spread is in seconds


@dataclass(frozen=True)
class BetweenGroups:
    """Which columns shift between groups of training nodes, known from training alone.

    A column that shifts is not always misleading, and one that does not may still shift later.
    """

    groups: int  # how many groups there are
    given: bool  # whether they are environments that were given; else they were inferred
    # The largest share of all columns where nodes of a class are assigned to groups at random.
    chance: float
    columns: list[GroupColumn]  # all of them, the largest share first
    # What drawing the clear ones from other nodes does to the predictions, on the training graph,
    # or on the new one where that is not given; None where none is clear.
    relied_on: Effect | None
    intervened: bool  # whether the model was trained with interventions, which shift such columns
    can_intervene: bool  # whether the method has interventions

    @property
    def clear(self) -> list[GroupColumn]:
        """The columns that clearly shift."""
        return [column for column in self.columns if column.clear]

    @property
    def furthest(self) -> GroupColumn | None:
        """The clear column that shifted most since training; None without a new graph."""
        known = [column for column in self.clear if math.isfinite(column.shifted)]
        return max(known, key=lambda column: abs(column.shifted), default=None)

    @property
    def too_many(self) -> bool:
        """Whether interventions on so many columns leave the model little to learn from."""
        return too_many_shift(len(self.clear), len(self.columns))

    @property
    def relies(self) -> bool:
        """Whether 5 % of the predictions or more flip with the clear columns of other nodes."""
        return self.relied_on is not None and self.relied_on.flipped.value >= CLEAR_RELIANCE

    @property
    def risky(self) -> bool:
        """Whether predictions rely on the clear columns, and these are few enough to intervene."""
        return self.relies and not self.too_many

    @property
    def advises_interventions(self) -> bool:
        """Whether training with interventions is worth a try."""
        return self.risky and not self.intervened


def examine(exam: Examination) -> BetweenGroups | None:
    """Groups of the training nodes that the model keeps; None where these are too few."""
    screen = exam.model.column_screen()
    if screen is None:
        return None
    change = np.full(len(exam.names), math.nan)
    for column in exam.parts["shift"].columns if exam.new else ():
        change[column.number] = column.after - column.before
    spread, share = screen.spread.double().numpy(), screen.share.double().numpy()
    dates = np.zeros(len(exam.names), dtype=bool)
    if exam.encoding is not None:
        made = [exam.encoding.columns[i] for i in exam.encoding.sources]
        spread = spread * [column.std for column in made]
        dates = np.array([column.kind == "date" for column in made])
    shifted = np.divide(change, spread, out=np.full_like(change, math.nan), where=spread > 0)
    clear, relied_on = screen.clear.numpy(), None
    if clear.any():
        chosen = np.flatnonzero(clear)
        relied_on = exchanged(exam.main, VARYING, chosen, exam.seed, exam.repeats, exam.tick)
    rows = zip(*(v.tolist() for v in (share, spread, clear, shifted, dates)), strict=True)
    columns = [
        GroupColumn(name, i, *row)
        for i, (name, row) in enumerate(zip(exam.names, rows, strict=True))
    ]
    settings = getattr(exam.model, "settings_", {})
    method = METHODS.get(exam.model.method)
    return BetweenGroups(
        groups=int(screen.num_groups),
        given=bool(screen.given),
        chance=float(screen.chance),
        columns=sorted(columns, key=lambda column: -column.share),
        relied_on=relied_on,
        intervened=settings.get("interventions", "none") != "none",
        can_intervene=method is not None and issubclass(method.settings_type, InterventionSettings),
    )
