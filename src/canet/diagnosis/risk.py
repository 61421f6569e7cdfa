"""Reliance and shift of each feature block, side by side."""

import math
from dataclasses import dataclass

from canet.diagnosis.blocks import OTHERS, Blocks
from canet.diagnosis.columns import ColumnShift
from canet.diagnosis.sections.reliance import Reliance
from canet.diagnosis.sections.shift import Shift
from canet.scoring.intervals import Estimate

MAX_ROWS = 10


@dataclass(frozen=True)
class Risk:
    """How much a model relies on a feature block, and how much that has shifted."""

    name: str
    reliance: Estimate
    shift: float  # of its column that has shifted most, 0 to 1; NaN without a new graph
    column: ColumnShift | None  # this column
    is_relied_on: bool

    @property
    def is_at_risk(self) -> bool:
        """Whether the model relies on the block, and it has clearly shifted."""
        return self.is_relied_on and self.column is not None and self.column.has_shifted


def risks_of(reliance: Reliance, shift: Shift | None, blocks: Blocks) -> list[Risk]:
    """The ten blocks with the largest product of reliance and shift; without shift, of reliance."""
    columns = {} if shift is None else {one.number: one for one in shift.columns}
    effects = [effect for effect in reliance.features if effect.name != OTHERS]
    rows = []
    for effect in effects or reliance.features:
        inside = [columns[i] for i in blocks[effect.name].tolist() if i in columns]
        # The shifts of two categories are equal except for rounding: then, the more frequent one.
        most = max(inside, key=lambda one: (round(one.effect, 9), one.before), default=None)
        moved = math.nan if most is None else most.effect
        rows.append(Risk(effect.name, effect.size, moved, most, effect.is_relevant))

    def product(one: Risk) -> float:
        return max(one.reliance.value, 0.0) * (1.0 if math.isnan(one.shift) else one.shift)

    return sorted(rows, key=product, reverse=True)[:MAX_ROWS]
