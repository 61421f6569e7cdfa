"""What `auto` has chosen: the table of its models, and a summary in sentences."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from canet.errors import listed
from canet.models.auto import AVERAGE, LARGEST_CLASS
from canet.scoring.metrics import METRICS
from canet.store.result import Candidate

MIN_GAIN = 0.02
"""A model that is better than its baseline by less than this is hardly better."""


def percent(score: float | None) -> str:
    """Return a score as text; a dash if it is unknown."""
    return "–" if score is None or math.isnan(score) else f"{100 * score:.1f} %"


def compared(score: float, baseline: float, name: str) -> str:
    """Return a score, and whether it is better than the baseline with this name."""
    gain = score - baseline
    if math.isnan(gain):
        return percent(score)
    word = "better" if gain >= MIN_GAIN else "hardly better" if gain > 0 else "not better"
    return f"{percent(score)}, {word} than {name} ({percent(baseline)})"


def leaderboard_rows(candidates: Sequence[Candidate]) -> list[dict[str, Any]]:
    """Return one dict per candidate, the best first, then the rows to compare with."""
    others = [one for one in candidates if one.name in (AVERAGE, LARGEST_CLASS)]
    models = _ranked(candidates)
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


def _ranked(candidates: Sequence[Candidate]) -> list[Candidate]:
    """Return the models that were compared, failed ones last; the first is the best."""
    models = [one for one in candidates if one.name not in (AVERAGE, LARGEST_CLASS)]
    return sorted(models, key=lambda one: (-one.weight, bool(one.note), -one.likelihood))


def summary_of(model: Any) -> str:
    """Return what a `NodeClassifier` has chosen, why, and how sure that is."""
    base, rows = model.baseline_name, {one.name: one for one in model.candidates_}
    valid = compared(model.scores_["valid"], model.baselines_["valid"], base)
    scored = f"Validation {METRICS[model.metric].label}: {valid}"
    models = _ranked(model.candidates_)
    members = [one for one in models if one.weight]
    if not members:
        rule = f", epoch {model.selected_epoch_}" if model.selected_epoch_ else ""
        name = "-".join(dict.fromkeys([model.method_name, model.backbone_name]))
        return f"The model is {name}{rule}. {scored}."
    named = listed([f"{one.name} ({one.weight:.2f})" for one in members])
    count = sum(not one.note for one in models)
    chosen = f"The model averages {len(members)} of {count} models: {named}."
    if AVERAGE not in rows:
        return f"{chosen} They were trained again with their earlier weights. {scored}."
    mean, best = rows[AVERAGE], models[0]
    text = f"{chosen} {scored}; the one with the largest weight alone {percent(best.validation)}."
    if not mean.shifts:
        return f"{text} Too few labels to hold out parts: nothing is known about a shift."
    parts = listed(
        f"{percent(score)} {part.replace('without ', 'on ')}" for part, score in mean.shifts.items()
    )
    held_out = compared(mean.held_out, rows[LARGEST_CLASS].held_out, base)
    return (
        f"{text} On held-out parts of the training data: {held_out}; that one alone "
        f"{percent(best.held_out)}. By part: {parts}. Expect such differences on new data."
    )
