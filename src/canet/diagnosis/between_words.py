"""What moves between groups of training nodes in whole sentences, and what to do about it."""

from __future__ import annotations

import math
from collections.abc import Iterator

from canet.diagnosis.between import BetweenGroups, GroupColumn
from canet.diagnosis.diagnosis import Diagnosis
from canet.diagnosis.words import WORTH_TELLING, column_text
from canet.methods import METHODS, InterventionSettings

MOST_NAMED = 3
CAVEAT = (
    "A column that moves between groups need not mislead, and one that does not may still move "
    "later."
)


def group_words(found: Diagnosis) -> list[str]:
    """Which columns move between groups, how far they moved since, what to do, and a caveat."""
    between = found.between_groups
    return [] if between is None else [*_seen(between), *_advice(between, found.model.method)]


def relies_on_moving(found: Diagnosis) -> bool:
    """Whether predictions rely on columns that clearly move between groups, and few do."""
    between = found.between_groups
    if between is None or between.relied_on is None or not between.worth_a_try:
        return False
    return between.relied_on.flipped.value >= WORTH_TELLING


def _seen(between: BetweenGroups) -> Iterator[str]:
    clear, every = between.clear, f"Of {len(between.columns):,} columns"
    groups = f"{between.groups} groups of training nodes (inferred from their features)"
    if between.given:
        groups = f"the {between.groups} environments of training"
    if not clear:
        yield f"{every} none clearly moves within classes between {groups}."
        return
    verb = "moves" if len(clear) == 1 else "move"
    named = ", ".join(map(_told, clear[:MOST_NAMED]))
    yield (
        f"{every} {len(clear):,} clearly {verb} within classes between {groups}, most of all "
        f"{named}."
    )
    far = [column for column in clear if math.isfinite(column.moved)]
    furthest = max(far, key=lambda column: abs(column.moved), default=clear[0])
    if furthest not in clear[:MOST_NAMED]:
        yield f"Furthest from training is {_told(furthest)}."
    if far:
        yield "A spread is the standard deviation of the groups' means."


def _told(column: GroupColumn) -> str:
    """`column 7 (η² 92 %, now 0.5 spreads up)`."""
    way = ""
    if math.isfinite(column.moved):
        up = "up" if column.moved > 0 else "down"
        way = f", now {abs(column.moved):.1f} spreads {up}"
    return f"{column_text(column.name)} (η² {100 * column.share:.0f} %{way})"


def _advice(between: BetweenGroups, method: str) -> Iterator[str]:
    effect = between.relied_on
    if effect is not None:
        what = "this column" if effect.columns == 1 else "these columns"
        flips = f"{effect.flipped.value:.0f} % of the predictions flip with values of other nodes"
        if effect.flipped.value < WORTH_TELLING:
            yield f"The model hardly relies on {what}: {flips}."
        elif between.intervened:
            yield f"The model relies on {what} though it was trained with interventions: {flips}."
        elif not between.worth_a_try:
            yield (
                f"The model relies on {what} ({flips}), too many of all columns for "
                "interventions: these would leave it little to learn from."
            )
        else:
            yield (
                f"The model relies on {what} ({flips}): unless that is right wherever it will "
                f"be used, {_fit(between, method)}, and compare."
            )
    yield CAVEAT


def _fit(between: BetweenGroups, method: str) -> str:
    """`fit again with interventions=inferred`, or CaNet where the method has no such setting."""
    known = METHODS.get(method)
    able = known is not None and issubclass(known.settings_type, InterventionSettings)
    groups = "given" if between.given else "inferred"
    return f"fit {'again' if able else 'canet'} with interventions={groups}"
