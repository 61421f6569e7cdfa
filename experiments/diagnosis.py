"""How true is a diagnosis: expected and true scores on real transfers, for `auto` and networks.

    python -m experiments.diagnosis FILE [--part I/N] [--device cuda]

trains models on each real training set of `experiments.choice`, diagnoses them on each of its
shifted test sets as a user would, and adds a JSON object for each to FILE, as JSON lines; cases
that are already in FILE are skipped.
`python -m experiments.diagnosis FILE --table` prints the tables of the page, and the constants
`ERRORS` of `canet.diagnosis.sections.expected`.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch_geometric.data import Data
from torch_geometric.utils import subgraph

from canet.data import load_task
from canet.data.metrics import METRICS
from canet.data.task import ShiftTask
from canet.diagnosis import diagnose
from canet.diagnosis.advice import LARGE_LOSS
from canet.diagnosis.estimate import auc
from canet.diagnosis.sections.expected import KINDS, MIN_LEAD, MIN_LOSS
from canet.estimator import NodeClassifier
from canet.estimator.held_out import held_out_score
from canet.util.sparse import select_rows
from experiments.choice import CITATION, cases, group, table_text

NETWORKS = ("erm", "canet")
OF_SHARES = {2: "average_precision"}
"""Number of classes → a metric that depends on their shares; more classes: macro F1."""
LIMITS = (0.03, 0.97)
"""Quantiles of the errors of other tasks between which 9 of 10 errors of a task are."""
Row = Mapping[str, Any]
Errors = dict[tuple[str, bool], tuple[float, float, float]]


class Job(NamedTuple):
    """A training set, and a model that is trained on it."""

    task: str
    protocol: str
    method: str
    shares: bool = False  # whether its metric depends on the shares of the classes


def jobs() -> Iterator[Job]:
    """All jobs."""
    for case in cases([0]):
        if case.task not in CITATION:
            for method in ("auto", *NETWORKS):
                yield Job(case.task, case.protocol, method)
            if not (case.task == "twitch" and case.protocol.startswith("without")):  # they are slow
                yield Job(case.task, case.protocol, "auto", True)


def examine(job: Job, device: str) -> Iterator[dict[str, Any]]:
    """Diagnose one model on each shifted test set, as a user without labels."""
    task = load_task(job.task, protocol=job.protocol)
    metric = OF_SHARES.get(task.num_classes, "macro_f1") if job.shares else task.metric
    model = NodeClassifier(job.method, metric=metric, device=device, random_state=0, verbose=0)
    data, new = (graph_of(task, mask) for mask in (task.in_distribution, ~task.in_distribution))
    model.fit(data)
    number, held_out = (~task.in_distribution).cumsum(0) - 1, held_out_score(model, data)
    scorer = METRICS[metric].of_class(model.calibration_.positive)
    for name, nodes in task.test_ood.items():
        rows = number[nodes]
        found = diagnose(model, data, new, nodes=rows, repeats=3, held_out=held_out or False)
        assert found.expected is not None
        logits = torch.from_numpy(model.predict_proba(new, nodes=rows, calibrated=False)).log()
        yield {
            **job._asdict(),
            "metric": metric,
            "test": name,
            "nodes": found.expected.nodes,
            "validation": round(found.expected.validation, 5),
            "held_out": round(found.expected.held_out, 5),
            "confidence": round(found.expected.confidence, 5),
            "actual": round(float(scorer(logits, task.data.y[nodes])), 5),
            "columns": any(one.is_at_risk for one in found.risks),
            "classes": bool(found.shift and found.shift.changed_classes),
            "baseline": found.expected.baseline,
        }


def graph_of(task: ShiftTask, mask: Tensor) -> Data:
    """The subgraph of the nodes in a mask $[N]$, with the splits of training and without labels of
    shifted nodes."""
    nodes = mask.nonzero().squeeze(1)
    edges, _ = subgraph(mask, task.data.edge_index, relabel_nodes=True)
    y = torch.full((task.num_nodes,), -1)
    data = Data(x=select_rows(task.data.x, nodes), edge_index=edges)
    for name, own in (("train_mask", task.train), ("val_mask", task.valid)):
        chosen = torch.zeros(task.num_nodes, dtype=torch.bool)
        chosen[own] = True
        data[name] = chosen[nodes]
        y[own] = task.data.y[own]
    data.y = y[nodes]
    for name in ("batch", "environment", "time"):
        if (column := task.data.get(name)) is not None:
            data[name] = column[nodes]
    return data


def errors_of(rows: Sequence[Row]) -> Errors:
    """The constants `ERRORS` of the package from some transfers; each task counts the same."""
    found = {}
    for kind in dict.fromkeys(KINDS.values()):
        own = [row for row in rows if KINDS[row["metric"]] == kind]
        tasks = [task_of(row) for row in own]
        weight = np.array([1 / tasks.count(task) for task in tasks])
        for known in (True, False):
            lost = np.array([row["actual"] - estimate(row, known) for row in own])
            order = np.argsort(lost)
            share = (np.cumsum(weight[order]) - weight[order] / 2) / weight.sum()
            low, high = np.interp(LIMITS, share, lost[order])
            centre = np.average(lost, weights=weight)
            found[kind, known] = (round(low, 3), round(centre, 3), round(high, 3))
    return found


def estimate(row: Row, known: bool) -> float:
    """The estimate before any correction, with or without the score on held-out parts."""
    return (row["confidence"] + row["held_out"]) / 2 if known else row["confidence"]


def task_of(row: Row) -> str:
    """The row of the tables to which a transfer belongs."""
    return group((row["task"], row["protocol"], "", row["test"]))


class Judged(NamedTuple):
    """What a diagnosis said about a transfer, with the errors of other tasks, and the truth."""

    task: str
    method: str
    value: float
    low: float
    high: float
    validation: float
    actual: float
    uses: bool  # whether it said "Use the model"

    @property
    def fails(self) -> bool:
        return self.actual < self.validation - LARGE_LOSS


def judged(rows: Sequence[Row], known: bool = True) -> list[Judged]:
    """Judge each transfer with the errors of the transfers of all other tasks."""
    tasks = dict.fromkeys(map(task_of, rows))
    others = {task: errors_of([row for row in rows if task_of(row) != task]) for task in tasks}
    found = []
    for row in rows:
        low, centre, high = others[task_of(row)][KINDS[row["metric"]], known]
        value = float(np.clip(estimate(row, known) + centre, 0, row["validation"]))
        limits = np.clip(estimate(row, known) + np.array([low, high]), 0, 1)
        lost, lead = row["validation"] - value, value - row["baseline"]
        uses = lost < MIN_LOSS and lead >= MIN_LEAD and not (row["columns"] or row["classes"])
        scores = value, min(limits[0], value), max(limits[1], value)
        truth = row["validation"], row["actual"]
        found.append(Judged(task_of(row), row["method"], *scores, *truth, uses))
    return found


def tables(rows: Sequence[Row]) -> str:
    """The tables of the page, in Markdown."""
    plain = [row for row in rows if KINDS[row["metric"]] == "accuracy"]
    shares = [row for row in rows if KINDS[row["metric"]] != "accuracy"]
    kinds = {
        "`auto`": [one for one in judged(plain) if one.method == "auto"],
        "networks": [one for one in judged(plain) if one.method != "auto"],
        "networks, no held-out parts": [
            one for one in judged(plain, False) if one.method != "auto"
        ],
        "`auto`, average precision and F1": judged(shares),
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
    return "\n\n".join([*parts, table_text(heads, verdicts)])


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
    done = {(row["task"], row["protocol"], row["method"], row["shares"]) for row in rows}
    for job in list(jobs())[part - 1 :: count]:
        if job not in done:
            found = list(examine(job, options.device))
            with options.file.open("a") as out:
                out.writelines(json.dumps(row) + "\n" for row in found)


if __name__ == "__main__":
    main()
