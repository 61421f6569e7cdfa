"""The model card: a Markdown summary of a fitted classifier, for people."""

from __future__ import annotations

import re
from html import escape
from typing import Any

from canet.errors import listed, printable
from canet.estimator.summary import percent
from canet.scoring.metrics import METRICS
from canet.store.result import versions


def model_card(model: Any, has_reference: bool) -> str:
    """Return the Markdown text of a fitted `NodeClassifier`."""
    data, encoding = model.data_, model.encoding_
    is_auto = model.compares_models
    name = model.method_name if is_auto else f"{model.method_name}-{model.backbone_name}"
    rule = "weights by held-out likelihood" if is_auto else "epoch with the best validation score"
    columns = f"arrays without names; left out: {listed(model.left_out_ or ['none'])}"
    if encoding is not None:
        columns = listed(map(_escaped, encoding.blocks), len(encoding.blocks))
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
        f"| Model | {name}, {versions_text()} |",
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
        for row in model.leaderboard_rows():
            shown = percent(row["validation"]), percent(row["held_out"])
            cells = _escaped(row["model"]), f"{row['weight']:.2f}", *shown
            lines.append(f"| {' | '.join(cells)} |")
    changed = ", ".join(f"{name}={value}" for name, value in model.settings_.items())
    lines += [
        "",
        "## Settings of all models, if not named above" if is_auto else "## Settings",
        "",
        f"`{changed}`",
        "",
        "## Diagnosis",
        "",
    ]
    if model.diagnosis_:
        lines += [f"    {line}".rstrip() for line in printable(model.diagnosis_).splitlines()]
    else:
        lines.append(
            "None was run before the model was saved. `canet diagnose MODEL GRAPH` runs one."
        )
    return "\n".join(lines) + "\n"


def _escaped(name: object) -> str:
    """Return a name of the user's data as Markdown that shows it as it is, in one line."""
    text = escape(" ".join(printable(name).split()), quote=False)
    return re.sub(r"([\\`*_\[\]|~:@$])", r"\\\1", text)


def versions_text() -> str:
    """Return the versions in one line."""
    return ", ".join(f"{name} {version}" for name, version in versions().items())
