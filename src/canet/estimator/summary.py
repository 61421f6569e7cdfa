"""What `auto` has chosen: the table of its models, and a summary in sentences."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from canet.data.metrics import METRICS
from canet.errors import listed
from canet.models.auto import AVERAGE, LARGEST_CLASS
from canet.store.result import Candidate

NUM_NAMED = 3
"""Number of members that a summary names."""


def leaderboard_rows(candidates: Sequence[Candidate]) -> list[dict[str, Any]]:
    """Return one dict per candidate, the best first, then the rows to compare with."""
    others = [one for one in candidates if one.name in (AVERAGE, LARGEST_CLASS)]
    models = sorted((one for one in candidates if one not in others), key=_order)
    if others:
        best = replace(models[0], weight=0.0, seconds=0.0, note=models[0].name)
        others.insert(1, replace(best, name="best single model"))
    return [
        {
            "model": one.name,
            "weight": one.weight,
            "validation": one.validation,
            "held_out": one.held_out,
            "likelihood": one.likelihood,
            "seconds": one.seconds,
            **one.shifts,
            "note": one.note,
        }
        for one in [*models, *others]
    ]


def _order(one: Candidate) -> tuple[float, float]:
    return -one.weight, math.inf if math.isnan(one.likelihood) else -one.likelihood


def summary_of(model: Any) -> str:
    """Return what a `NodeClassifier` has chosen, why, and how sure that is."""
    metric, scores = METRICS[model.metric].label, model.scores_
    rows = {one.name: one for one in model.candidates_}
    members = sorted((one for one in rows.values() if one.weight), key=_order)
    if not members:
        rule = f", epoch {model.selected_epoch_}" if model.selected_epoch_ else ""
        name = "-".join(dict.fromkeys([model.method_name, model.backbone_name]))
        return f"The model is {name}{rule}. Validation {metric}: {_percent(scores['valid'])}."
    named = listed((f"{one.name} ({one.weight:.2f})" for one in members), NUM_NAMED)
    compared = sum(not one.note for one in rows.values())
    chosen = f"The model averages {len(members)} of {compared} models: {named}."
    if AVERAGE not in rows:
        return f"{chosen} They were trained again, with the weights of the earlier choice."
    mean, largest = rows[AVERAGE], rows[LARGEST_CLASS]
    best = max((one for one in rows.values() if not one.note), key=lambda one: one.likelihood)
    each = [(mean.validation, mean.held_out), (best.validation, best.held_out)]
    each.append((largest.validation, largest.held_out))
    if not mean.shifts:
        average, single, constant = (_percent(validation) for validation, _ in each)
        return (
            f"{chosen} On the validation nodes they have {metric} {average}, the best single model "
            f"{single}, and always the largest class {constant}. There are too few labels to hold "
            "out parts, so nothing is known about a shift."
        )
    average, single, constant = (f"{_percent(a)} and {_percent(b)}" for a, b in each)
    parts = listed(
        f"{_percent(score)} {part.replace('without ', 'on ')}"
        for part, score in mean.shifts.items()
    )
    return (
        f"{chosen} On the validation nodes and on held-out parts of the training data they have "
        f"{metric} {average}, the best single model {single}, and always the largest class "
        f"{constant}. The parts have {parts}: expect such differences on new data."
    )


def _percent(score: float) -> str:
    return f"{100 * score:.1f} %"
