"""How true is a diagnosis: expected and true scores on real transfers, for `auto` and networks.

    python -m experiments.diagnosis FILE [--part I/N] [--device cuda]

trains models on each real training set of `experiments.choice`, diagnoses them on each of its
shifted test sets as a user would, and adds a JSON object for each to FILE, as JSON lines; cases
that are already in FILE are skipped.
`python -m experiments.diagnosis FILE --table` prints the tables of the page, and the constants
`ERRORS` of `canet.diagnosis.sections.expected`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch_geometric.data import Data
from torch_geometric.utils import subgraph

from canet.data import load_task
from canet.data.metrics import METRICS
from canet.data.task import ShiftTask
from canet.diagnosis import diagnose
from canet.estimator import NodeClassifier
from canet.estimator.held_out import held_out_score
from canet.util.sparse import select_rows
from experiments.choice import CITATION, cases

NETWORKS = ("erm", "canet")
OF_SHARES = {2: "average_precision"}
"""Number of classes → a metric that depends on their shares; more classes: macro F1."""
QUANTILES = (0.05, 0.5, 0.95)
Row = Mapping[str, Any]


class Job(NamedTuple):
    """A training set, and a model that is trained on it."""

    task: str
    protocol: str
    method: str
    metric: str  # or empty, for that of the task


def jobs() -> Iterator[Job]:
    """All jobs."""
    for case in cases([0]):
        if case.task not in CITATION:
            for method in ("auto", *NETWORKS):
                yield Job(case.task, case.protocol, method, "")
            if not (case.task == "twitch" and case.protocol.startswith("without")):  # they are slow
                yield Job(case.task, case.protocol, "auto", "shares")


def examine(job: Job, device: str) -> Iterator[dict[str, Any]]:
    """Diagnose one model on each shifted test set, as a user without labels."""
    task = load_task(job.task, protocol=job.protocol)
    metric = OF_SHARES.get(task.num_classes, "macro_f1") if job.metric else task.metric
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
