"""Beyond the paper: reliance on known spurious columns, and the error of the expected accuracy."""

from __future__ import annotations

from pathlib import Path
from statistics import fmean
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch_geometric.data import Data
from torch_geometric.utils import subgraph

from canet.data.benchmarks.spurious import NUM_SPURIOUS
from canet.data.graph import UserGraph
from canet.data.task import ShiftTask
from canet.diagnosis import expected_score
from canet.diagnosis.graph import read_graph, seed_of
from canet.diagnosis.sections.reliance import replace_columns
from canet.estimator.classifier import NodeClassifier
from canet.estimator.reference import build_reference
from canet.methods import METHODS
from canet.models import FittedNetwork
from canet.models.reader import Reader
from canet.paper.experiment import Experiment
from canet.paper.finished_runs import FinishedRuns
from canet.paper.scope import TaskSpec
from canet.report.figures import draw_bars, new_figure, share_legend, tidy
from canet.report.labels import backbone_label, method_label
from canet.report.score import Score
from canet.report.tables import Cell, Table
from canet.runs.evaluate import open_trainer
from canet.store import RunConfig, RunFolder
from canet.training import Trainer
from canet.training.prepared import PreparedGraph
from canet.util.rendering import save_figure
from canet.util.sparse import select_rows

DIAGNOSIS = "diagnosis.json"
"""File in a run folder: reliance on the spurious columns, and expected accuracy."""
REPEATS = 3
ID, OOD = "in distribution", "under shift"
SPURIOUS, BASE = "spurious", "base"
ESTIMATES = {
    "valid": "validation accuracy",
    "thresholded": "thresholded, confidence",
    "thresholded_entropy": "thresholded, entropy",
    "average_confidence": "calibrated confidence",
    "difference": "difference of confidences",
}
ERROR_COLUMNS = [f"error: {name}" for name in ESTIMATES.values()]
ERROR_NOTE = (
    "Absolute error of the expected accuracy in percentage points, mean over the shifted test sets "
    "(mean ± standard deviation over runs). The estimates use no labels of these sets. `error: "
    "validation accuracy` is the error if the accuracy on validation nodes is expected."
)


class DiagnosedCase(NamedTuple):
    """Runs of one method on one task that differ in their data seed."""

    spec: TaskSpec
    protocol: str
    method: str
    backbone: str

    @property
    def texts(self) -> list[Cell]:
        protocol = self.protocol if self.spec.is_spurious else "–"
        texts = [backbone_label(self.backbone), method_label(self.method)]
        return [self.spec.label, protocol, *texts]


class Diagnoses(Experiment):
    """Reliance on the spurious columns, and error of the expected accuracy on every task."""

    name = "diagnosis"
    title = "Diagnosis"
    tasks = ("cora", "citeseer", "pubmed", "twitch", "arxiv", "elliptic")
    quick_tasks = ("cora",)
    methods = ("erm", "coral", "canet")
    quick_methods = ("erm", "canet")

    def configs(self) -> list[RunConfig]:
        return [config for case in self._cases() for config in self._jobs(case)]

    def add_measurements(self, finished: FinishedRuns, device: str) -> None:
        for case in self._cases():
            for place in finished.folders(self._jobs(case)):
                if not (place.path / DIAGNOSIS).exists():
                    trainer = open_trainer(place.read_config(), device, self.scope.data_root)
                    content = diagnose_run(trainer, place, case.spec.is_spurious)
                    place.add_json(DIAGNOSIS, content)

    def tables(self, finished: FinishedRuns) -> list[Table]:
        return [self._reliance(finished), self._errors(finished), self._expected(finished)]

    def draw(self, finished: FinishedRuns, folder: Path) -> None:
        """Draw the flip rates under shift if the spurious columns are replaced."""
        shown = [case for case in self._cases() if case.spec.is_spurious]
        specs = list(dict.fromkeys(case.spec for case in shown))
        if not specs:
            return
        figure = new_figure(1, len(specs), max(4.2, 7 / len(specs)), 3.2)
        panels = figure.subplots(1, len(specs), sharey=True, squeeze=False)[0]
        for axes, spec in zip(panels, specs, strict=True):
            cases = [case for case in shown if case.spec == spec]
            groups = list(dict.fromkeys((case.protocol, case.backbone) for case in cases))
            bars = [
                (
                    method_label(method),
                    METHODS[method].colour.light,
                    [
                        _values(finished, self._jobs(DiagnosedCase(spec, p, method, b)), OOD)
                        for p, b in groups
                    ],
                )
                for method in self.chosen_methods
            ]
            draw_bars(axes, [f"{p}\n{backbone_label(b)}" for p, b in groups], bars)
            axes.set_ylim(0, 100)
            tidy(axes, spec.label)
        panels[0].set_ylabel("predictions that change %")
        share_legend(figure, panels[0], columns=len(self.chosen_methods))
        save_figure(figure, folder, self.file_name())

    def _cases(self) -> list[DiagnosedCase]:
        return [
            DiagnosedCase(spec, protocol, method, backbone)
            for spec in self.specs
            for protocol in spec.protocols
            for backbone in self.backbones
            for method in self.chosen_methods
        ]

    def _jobs(self, case: DiagnosedCase) -> list[RunConfig]:
        return self.runs(case.spec, case.method, case.backbone, protocol=case.protocol)

    def _reliance(self, finished: FinishedRuns) -> Table:
        rows: list[list[Cell]] = []
        for case in self._cases():
            if case.spec.is_spurious:
                jobs = self._jobs(case)
                found = [_diagnosis(place)["reliance"] for place in finished.folders(jobs)]
                scores = [
                    Score([one[where][block][what] for one in found], len(jobs))
                    for where in (ID, OOD)
                    for what, block in (
                        ("flipped", SPURIOUS),
                        ("lost", SPURIOUS),
                        ("flipped", BASE),
                    )
                ]
                rows.append([*case.texts, *scores])
        words = ("flip rate, spurious columns", "accuracy loss", "flip rate, other columns")
        short = {ID: "ID", OOD: "OOD"}
        heads = [f"{short[where]}: {word}" for where in (ID, OOD) for word in words]
        notes = [
            *self.notes(),
            "Flip rate: percent of the predictions that change if the ten spurious columns (or all "
            "other columns) of every node are replaced by those of a node of another domain, mean "
            f"over {REPEATS} draws. Accuracy loss: in percentage points, on nodes that are not "
            "training nodes. ID: in distribution, domains 1 to 3; OOD: under shift, domains 4 to "
            "6. A model that ignores the columns has 0.",
        ]
        about = "reliance on the spurious columns"
        columns = ["task", "protocol", "backbone", "method", *heads]
        return self.table("", about, columns, rows, notes)

    def _errors(self, finished: FinishedRuns) -> Table:
        """Errors of the estimates on each task, over all models."""
        groups: dict[tuple[str, str], list[RunConfig]] = {}
        for case in self._cases():
            task, protocol, *_ = map(str, case.texts)
            groups.setdefault((task, protocol), []).extend(self._jobs(case))
        rows: list[list[Cell]] = [
            [task, protocol, *self._error_scores(finished, jobs)]
            for (task, protocol), jobs in groups.items()
        ]
        about = "error of the expected accuracy, all models"
        columns = ["task", "protocol", *ERROR_COLUMNS]
        return self.table("errors", about, columns, rows, [ERROR_NOTE])

    def _expected(self, finished: FinishedRuns) -> Table:
        rows: list[list[Cell]] = []
        for case in self._cases():
            jobs = self._jobs(case)
            found = [_diagnosis(place)["expected"] for place in finished.folders(jobs)]
            valid, actual = (
                Score([fmean(s[key] for s in one.values()) for one in found], len(jobs))
                for key in ("valid", "actual")
            )
            rows.append([*case.texts, valid, actual, *self._error_scores(finished, jobs)])
        notes = [*self.notes(), ERROR_NOTE]
        columns = ["task", "protocol", "backbone", "method", "valid", "OOD", *ERROR_COLUMNS]
        about = "error of the expected accuracy"
        return self.table("expected", about, columns, rows, notes)

    def _error_scores(self, finished: FinishedRuns, jobs: list[RunConfig]) -> list[Score]:
        """Mean absolute error over the shifted sets, for each estimate."""
        found = [_diagnosis(place)["expected"] for place in finished.folders(jobs)]
        return [
            Score(
                [fmean(abs(s[name] - s["actual"]) for s in one.values()) for one in found],
                len(jobs),
            )
            for name in ESTIMATES
        ]


def diagnose_run(trainer: Trainer, place: RunFolder, is_spurious: bool) -> dict[str, Any]:
    """Reliance of a finished run, and its expected accuracy on each shifted set."""
    model = as_classifier(trainer, place)
    graphs = {ID: induced_subgraph(trainer.task, trainer.task.in_distribution)}
    graphs[OOD] = induced_subgraph(trainer.task, ~trainer.task.in_distribution)
    content: dict[str, Any] = {"expected": _expected_scores(model, trainer.task)}
    if is_spurious:
        columns = np.arange(trainer.task.num_features)
        blocks = {SPURIOUS: columns[-NUM_SPURIOUS:], BASE: columns[:-NUM_SPURIOUS]}
        content["reliance"] = {
            where: {name: _effect(model, graph, name, chosen) for name, chosen in blocks.items()}
            for where, graph in graphs.items()
        }
    return content


def as_classifier(trainer: Trainer, place: RunFolder) -> NodeClassifier:
    """Convert a finished run to a `NodeClassifier`."""
    task, config = trainer.task, place.read_config()
    model = NodeClassifier(
        config.method,
        config.backbone,
        metric=task.metric,
        undirected=False,
        random_state=config.seed,
        verbose=0,
    )
    model.classes_ = np.arange(task.num_classes)
    model.n_features_in_ = task.num_features
    model.encoding_ = None
    model.fitted_ = FittedNetwork(trainer.load(place), config.backbone)
    own = UserGraph(task.data.x, task.data.edge_index, task.data.get("batch"))
    reader = Reader(model.fitted_, PreparedGraph(own))
    model.reference_ = build_reference(task, reader, config.seed)
    model.calibration_ = model.reference_.calibrate(with_bias=False)
    return model


def induced_subgraph(task: ShiftTask, mask: Tensor) -> Data:
    """The subgraph of the nodes in a mask $[N]$; only test nodes keep their labels."""
    nodes = mask.nonzero().squeeze(1)
    edges, _ = subgraph(mask, task.data.edge_index, relabel_nodes=True)
    test_nodes = torch.cat([task.test_id, *task.test_ood.values()])
    y = torch.full((task.num_nodes,), -1)
    y[test_nodes] = task.data.y[test_nodes]
    data = Data(
        x=select_rows(task.data.x, nodes),
        edge_index=edges,
        y=y[nodes],
    )
    if task.has_environments:
        data.environment = task.data.environment[nodes]
    return data


def _effect(model: NodeClassifier, graph: Data, name: str, columns: np.ndarray) -> dict[str, float]:
    effect = replace_columns(read_graph(model, graph), name, columns, seed_of(model), REPEATS)
    assert effect.score_loss is not None
    return {"flipped": effect.flip_rate.value, "lost": effect.score_loss.value}


def _expected_scores(model: NodeClassifier, task: ShiftTask) -> dict[str, dict[str, float]]:
    """Shifted set → its accuracy, the validation accuracy, and the estimates."""
    reference, data = model.reference(), task.data
    scores = {}
    for name, nodes in task.test_ood.items():
        logits = np.log(np.maximum(model.predict_proba(data, nodes=nodes), 1e-300))
        valid = reference.valid_logits.double().numpy()
        found = expected_score(valid, reference.valid_y.numpy(), logits, data.y[nodes].numpy())
        assert found.actual is not None
        values = {key: getattr(found, key).value for key in ESTIMATES}
        scores[name] = values | {"actual": found.actual.value}
    return scores


def _diagnosis(place: RunFolder) -> dict[str, Any]:
    content: dict[str, Any] = place.read_json(DIAGNOSIS)
    return content


def _values(finished: FinishedRuns, jobs: list[RunConfig], where: str) -> list[float]:
    places = finished.folders(jobs)
    return [_diagnosis(place)["reliance"][where][SPURIOUS]["flipped"] for place in places]
