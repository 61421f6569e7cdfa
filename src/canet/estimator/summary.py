"""Texts about a fitted classifier: what `auto` has chosen, a summary, and the model card."""

import math
import re
from collections.abc import Sequence
from dataclasses import replace
from html import escape
from typing import Any

from canet.errors import listed, printable
from canet.estimator.base import BaseClassifier
from canet.models.auto import AVERAGE, LARGEST_CLASS
from canet.scoring.metrics import METRICS
from canet.store.result import Candidate, versions

MIN_GAIN = 0.02  # a model that is better than its baseline by less than this is hardly better


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
    names = ("weight", "validation", "held_out", "likelihood", "seconds")
    rows = [
        {"model": one.name, **{n: getattr(one, n) for n in names}, **one.shifts, "note": one.note}
        for one in [*models, *others]
    ]
    return [{printable(name): cell for name, cell in row.items()} for row in rows]


def _ranked(candidates: Sequence[Candidate]) -> list[Candidate]:
    """Return the models that were compared, failed ones last; the first is the best."""
    models = [one for one in candidates if one.name not in (AVERAGE, LARGEST_CLASS)]
    return sorted(models, key=lambda one: (-one.weight, bool(one.note), -one.likelihood))


def summary_of(model: BaseClassifier) -> str:
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


def model_card(model: BaseClassifier, has_reference: bool) -> str:
    """Return the model card: a Markdown summary of a fitted `NodeClassifier`, for people."""
    data, encoding = model.data_, model.encoding_
    is_auto = model.compares_models
    name = model.method_name if is_auto else f"{model.method_name}-{model.backbone_name}"
    rule = "weights by held-out likelihood" if is_auto else "epoch with the best validation score"
    columns = f"arrays without names; left out: {listed(model.left_out_ or ['none'])}"
    if encoding is not None:
        columns = listed(map(_escaped, encoding.blocks), len(encoding.blocks))
    installed = ", ".join(f"{package} {version}" for package, version in versions().items())
    classes = listed(map(_escaped, model.classes_), len(model.classes_))
    seen = listed(map(_escaped, model.environments_seen_ or ["none"]))
    reference = "up to 5,000 training nodes (features, labels, representations)"
    lines = [
        f"# Model card: {name}",
        "",
        "Written by `NodeClassifier.save`. Predict with `canet predict` or `canet.load`.",
        "",
        "| | |",
        "|---|---|",
        f"| Model | {name}, {installed} |",
        f"| Classes | {len(model.classes_)}: {classes} |",
        f"| Features | {model.n_features_in_:,}; columns: {columns} |",
        f"| Training graph | {data['nodes']:,} nodes, {data['edges']:,} edges as used |",
        f"| Data digest | `{data['digest']}` |",
        f"| Environments used | {seen} |",
        f"| Training rows in this folder | {reference if has_reference else 'none'} |",
        "",
        f"## Scores: {METRICS[model.metric].label}, {rule}",
        "",
        f"| split | nodes | score | {_escaped(model.baseline_name)} |",
        "|---|--:|--:|--:|",
    ]
    for split, score in model.scores_.items():
        shown = percent(score), percent(model.baselines_[split])
        lines.append(f"| {split} | {data[split]:,} | {' | '.join(shown)} |")
    if is_auto:
        heads = ("weight", "validation", "held out")
        lines += ["", "## Models", "", f"| model | {' | '.join(heads)} |", "|---|--:|--:|--:|"]
        for row in leaderboard_rows(model.candidates_):
            shown = percent(row["validation"]), percent(row["held_out"])
            cells = _escaped(row["model"]), f"{row['weight']:.2f}", *shown
            lines.append(f"| {' | '.join(cells)} |")
    changed = ", ".join(f"{name}={value}" for name, value in model.settings_.items())
    heading = "## Settings of all models, if not named above" if is_auto else "## Settings"
    lines += ["", heading, "", f"`{changed}`", "", "## Diagnosis", ""]
    if model.diagnosis_:
        lines += [f"    {printable(line)}".rstrip() for line in model.diagnosis_.splitlines()]
    else:
        lines += ["None was run before the model was saved. `canet diagnose MODEL GRAPH` runs one."]
    return "\n".join(lines) + "\n"


def _escaped(name: object) -> str:
    """Return a name of the user's data as Markdown that shows it as it is, in one line."""
    text = escape(" ".join(printable(name).split()), quote=False)
    return re.sub(r"([\\`*_\[\]|~:@$])", r"\\\1", text)
