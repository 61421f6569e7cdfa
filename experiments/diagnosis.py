"""How true is a diagnosis: expected and true scores on real transfers, for `auto` and networks.

    python -m experiments.diagnosis FILE [--part I/N] [--device cuda]

trains the models of `auto` on each real training set of `experiments.choice`, estimates their
scores on each of its shifted test sets without labels, and adds a JSON object for each to FILE, as
JSON lines; training sets that are already in FILE are skipped.
`python -m experiments.diagnosis FILE --table` prints the tables of the page, and the constants
`ERRORS` of `canet.diagnosis.sections.expected`.
"""

from __future__ import annotations

import argparse
import json
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from itertools import combinations
from pathlib import Path
from statistics import mean
from typing import Any, NamedTuple

import numpy as np
import torch

from canet.diagnosis.advice import LARGE_LOSS
from canet.diagnosis.sections.expected import (
    KINDS,
    MAX_LOSS,
    MIN_LEAD,
    Source,
    expected_score,
)
from canet.diagnosis.sections.shift import class_shares
from canet.models import Fitted
from canet.models.parts import VALID, Logits
from canet.scoring.intervals import auc
from canet.scoring.metrics import METRICS, Metric, rarer_class
from experiments.choice import AUTO, CITATION, Case, cases, group, table_text, train

NETWORKS = ("erm-gcn", "canet-gcn dropout=0.2 interventions=inferred", "erm-sage norm=layer")
TRAINING = "training"
SOURCES: tuple[Source, ...] = ("auto", "held_out", "confidence")
LIMITS = (0.02, 0.98)
"""Quantiles of the errors of other tasks between which 9 of 10 errors of a task are."""
Row = Mapping[str, Any]
Errors = dict[tuple[str, Source], tuple[float, float, float]]
Arrays = Mapping[str, np.ndarray]
"""Part (`valid`, a held-out part, or `ood/` and a test set) → logits $[n, C]$ or labels $[n]$."""


def examine(case: Case, device: str) -> Iterator[dict[str, Any]]:
    """Train on one training set, and estimate the scores on each shifted test set."""
    task, _, parts, tried, average = train(case, device)
    y = {part: own.y[parts.nodes(part)].numpy() for part, own in parts.tasks.items()}
    y |= {f"ood/{name}": task.y[nodes].numpy() for name, nodes in task.test_ood.items()}
    y[TRAINING] = task.y[task.train].numpy()
    named = {one.name: one for one in tried if one.model is not None}
    weights = {one.name: one.weight for one in average.candidates if one.weight}
    members = [named[name].logits for name in weights]
    mean_logits = {part: average.mean([own[part] for own in members]) for part in parts.tasks}
    models: dict[str, tuple[Fitted | None, Logits]] = {AUTO: (average, mean_logits)}
    models |= {name: (named[name].model, named[name].logits) for name in NETWORKS if name in named}
    for name, (model, of_parts) in models.items():
        assert model is not None
        shifted = {k: v for k, v in model.logits(task).items() if k.startswith("ood/")}
        logits = {part: v.double().numpy() for part, v in {**of_parts, **shifted}.items()}
        for row in rows_of(logits, y, task.metric):
            yield {"task": case.task, "protocol": case.protocol, "model": name, **row}


def rows_of(logits: Arrays, y: Arrays, metric: str) -> Iterator[dict[str, Any]]:
    """Estimated and true scores of a model on each test set.

    They are for the metric of the task and for one that depends on the shares of the classes:
    average precision for two classes, else macro F1.
    """
    classes = logits[VALID].shape[1]
    counts = np.bincount(y[TRAINING], minlength=classes)
    rarer = rarer_class(counts) if classes == 2 else None
    held_out = [part for part in logits if part != VALID and not part.startswith("ood/")]
    for name in (metric, "average_precision" if classes == 2 else "macro_f1"):
        scorer = METRICS[name].of_class(rarer)
        score = mean(_score(scorer, logits[part], y[part]) for part in held_out)
        for part in (part for part in logits if part.startswith("ood/")):
            about = (logits[VALID], y[VALID], logits[part])
            found = expected_score(*about, held_out=score, metric=name, rarer=rarer)
            predicted = [
                np.bincount(logits[p].argmax(axis=1), minlength=classes) for p in (VALID, part)
            ]
            shares = class_shares(range(classes), [counts, *predicted, np.full(1, np.nan)])
            yield {
                "test": part.removeprefix("ood/"),
                "metric": name,
                "nodes": len(y[part]),
                "validation": round(found.validation, 5),
                "held_out": round(score, 5),
                "confidence": round(found.confidence, 5),
                "baseline": round(found.baseline, 5),
                "actual": round(_score(scorer, logits[part], y[part]), 5),
                "class_changed": any(one.has_vanished or one.has_doubled for one in shares),
            }


def _score(metric: Metric, logits: np.ndarray, y: np.ndarray) -> float:
    return float(metric(torch.from_numpy(logits), torch.from_numpy(y)))


def errors_of(rows: Sequence[Row]) -> Errors:
    """The constants `ERRORS` of the package from some transfers.

    A task counts as the square root of the number of its transfers: it is neither one case nor as
    many as its transfers.
    """
    found: Errors = {}
    for kind in dict.fromkeys(KINDS[row["metric"]] for row in rows):
        for source in SOURCES:
            own = [row for row in rows if KINDS[row["metric"]] == kind and uses(row, source)]
            tasks = [task_of(row) for row in own]
            weight = np.array([tasks.count(task) ** -0.5 for task in tasks])
            error = np.array([row["actual"] - estimate(row, source) for row in own])
            order = np.argsort(error)
            share = (np.cumsum(weight[order]) - weight[order] / 2) / weight.sum()
            low, high = np.interp(LIMITS, share, error[order]).tolist()
            centre = np.average(error, weights=weight)
            found[kind, source] = (round(low, 3), round(float(centre), 3), round(high, 3))
    return found


def uses(row: Row, source: Source) -> bool:
    """Whether the errors of a model are those of an estimate from a source."""
    return (row["model"] == AUTO) == (source == "auto")


def estimate(row: Row, source: Source) -> float:
    """The estimate before any correction."""
    both = (row["confidence"] + row["held_out"]) / 2
    return float(row["confidence"] if source == "confidence" else both)


def task_of(row: Row) -> str:
    """The row of the tables to which a transfer belongs."""
    return group((row["task"], row["protocol"], "", row["test"]))


class Judged(NamedTuple):
    """What a diagnosis said about a transfer, with the errors of other tasks, and the truth."""

    task: str
    value: float
    low: float
    high: float
    validation: float
    actual: float
    uses: bool  # whether it said "Use the model"

    @property
    def fails(self) -> bool:
        return self.actual < self.validation - LARGE_LOSS


def judged(rows: Sequence[Row], source: Source) -> list[Judged]:
    """Judge each transfer with the errors of the transfers of all other tasks."""
    own = [row for row in rows if uses(row, source)]
    tasks = dict.fromkeys(map(task_of, own))
    others = {task: errors_of([row for row in rows if task_of(row) != task]) for task in tasks}
    found = []
    for row in own:
        low, centre, high = others[task_of(row)][KINDS[row["metric"]], source]
        first = estimate(row, source)
        value = float(np.clip(first + centre, 0, row["validation"]))
        low, high = np.clip(first + low, 0, value), np.clip(first + high, value, 1)
        is_used = (
            row["validation"] - value <= MAX_LOSS[source] and KINDS[row["metric"]] == "accuracy"
        )
        is_used = is_used and value >= row["baseline"] + MIN_LEAD
        scores = value, float(low), float(high), row["validation"], row["actual"]
        found.append(Judged(task_of(row), *scores, is_used and not row["class_changed"]))
    return found


def tables(rows: Sequence[Row]) -> str:
    """The tables of the page, in Markdown."""
    plain = [row for row in rows if KINDS[row["metric"]] == "accuracy"]
    shares = [row for row in rows if KINDS[row["metric"]] != "accuracy"]
    kinds = {
        "`auto`": judged(plain, "auto"),
        "networks": judged(plain, "held_out"),
        "networks, confidence alone": judged(plain, "confidence"),
        "`auto`, average precision and F1": judged(shares, "auto"),
    }
    heads = [
        "",
        "transfers",
        "mean error",
        "bias",
        "validation score",
        "in range",
        "width",
        "AUROC",
    ]
    parts = [table_text(heads, [_summary(name, own) for name, own in kinds.items()])]
    for name in ("`auto`", "networks"):
        own = kinds[name]
        by_task = {task: [one for one in own if one.task == task] for task in map(_task, own)}
        parts.append(table_text(heads, [_summary(task, part) for task, part in by_task.items()]))
    verdicts = []
    for name, own in kinds.items():
        bad = [one.uses for one in own if one.fails]
        good = [one.uses for one in own if not one.fails]
        verdicts.append([name, *(f"{sum(x)} of {len(x)}" for x in (bad, good))])
    heads = ['"Use the model"', "lost more than 10 points", "lost less"]
    return "\n\n".join([*parts, table_text(heads, verdicts), _pairs(plain)])


def _pairs(rows: Sequence[Row]) -> str:
    """How often the one of two models with the higher expected score is the better one."""
    by_transfer = defaultdict(list)
    for row in rows:
        transfer = tuple(row[name] for name in ("task", "protocol", "test", "metric"))
        value = min(estimate(row, "held_out"), row["validation"])
        by_transfer[transfer].append((value, row["actual"]))
    pairs = [
        (abs(a[0] - b[0]), (a[0] - b[0]) * (a[1] - b[1]) > 0)
        for own in by_transfer.values()
        for a, b in combinations(own, 2)
    ]
    cells = []
    for low, high in ((0, 0.05), (0.05, 0.1), (0.1, 1)):
        right = [is_right for gap, is_right in pairs if low <= gap < high]
        cells.append(f"{100 * sum(right) / max(1, len(right)):.0f} %")
    heads = ["difference of two expected scores", "below 5 points", "5 to 10", "above 10"]
    return table_text(heads, [["the model with the higher one is better", *cells]])


def _task(one: Judged) -> str:
    return one.task


def _summary(name: str, own: Sequence[Judged]) -> list[str]:
    """Errors in points, coverage and width of the range, and AUROC of the warning."""
    error = np.array([one.value - one.actual for one in own])
    naive = np.array([one.validation - one.actual for one in own])
    inside = np.mean([one.low <= one.actual <= one.high for one in own])
    width = np.mean([one.high - one.low for one in own])
    lost = np.array([one.validation - one.value for one in own])
    fails = np.array([one.fails for one in own])
    cells = [f"{100 * np.abs(error).mean():.1f}", f"{100 * error.mean():+.1f}"]
    cells += [f"{100 * np.abs(naive).mean():.1f}", f"{100 * inside:.0f} %", f"{100 * width:.0f}"]
    both = fails.any() and not fails.all()
    warning = f"{auc(lost[~fails], lost[fails]):.2f}" if both else "–"
    return [name, str(len(own)), *cells, warning]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("file", type=Path)
    parser.add_argument("--part", default="1/1")
    parser.add_argument("--device", default="auto")
    parser.add_argument("--table", action="store_true")
    options = parser.parse_args()
    rows = []
    if options.file.exists():
        rows = [json.loads(line) for line in options.file.read_text().splitlines()]
    if options.table:
        print(tables(rows), errors_of(rows), sep="\n\n")
        return
    part, count = map(int, options.part.split("/"))
    done = {(row["task"], row["protocol"]) for row in rows}
    real = [case for case in cases([0]) if case.task not in CITATION]
    for case in real[part - 1 :: count]:
        if (case.task, case.protocol) not in done:
            found = list(examine(case, options.device))
            with options.file.open("a") as out:
                out.writelines(json.dumps(row) + "\n" for row in found)


if __name__ == "__main__":
    main()
