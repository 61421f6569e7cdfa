"""Beyond the paper: reliance of models on known spurious columns."""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch_geometric.data import Data
from torch_geometric.utils import subgraph

from canet.data.benchmarks.spurious import NUM_SPURIOUS
from canet.data.graph import Graph
from canet.data.task import ShiftTask
from canet.diagnosis.graph import read_graph, seed_of
from canet.diagnosis.sections.reliance import replace_columns
from canet.estimator.classifier import NodeClassifier
from canet.estimator.reference import build_reference
from canet.methods import METHODS
from canet.models import Learner
from canet.models.base import Reader
from canet.paper.experiment import Experiment
from canet.paper.finished_runs import FinishedRuns
from canet.paper.scope import TaskSpec
from canet.reading.prepared import PreparedGraph
from canet.report.figures import draw_bars, new_figure, share_legend, tidy
from canet.report.labels import backbone_label, method_label
from canet.report.score import Score
from canet.report.tables import Cell, Table
from canet.runs.evaluate import load_task_of, open_learner
from canet.store import RunConfig, RunFolder
from canet.util.rendering import save_figure
from canet.util.sparse import select_rows

RELIANCE = "diagnosis.json"
"""File in a run folder: reliance on the spurious columns."""
REPEATS = 3
ID, OOD = "in distribution", "under shift"
SPURIOUS, BASE = "spurious", "base"


class ReliedCase(NamedTuple):
    """Runs of one method on one task that differ in their data seed."""

    spec: TaskSpec
    protocol: str
    method: str
    backbone: str

    @property
    def texts(self) -> list[Cell]:
        texts = [backbone_label(self.backbone), method_label(self.method)]
        return [self.spec.label, self.protocol, *texts]


class SpuriousReliance(Experiment):
    """Reliance on the spurious columns."""

    name = "reliance"
    title = "Reliance"
    tasks = ("cora", "citeseer", "pubmed")
    quick_tasks = ("cora",)
    methods = ("erm", "coral", "canet")
    quick_methods = ("erm", "canet")

    def configs(self) -> list[RunConfig]:
        return [config for case in self._cases() for config in self._jobs(case)]

    def add_measurements(self, finished: FinishedRuns, device: str) -> None:
        for case in self._cases():
            for place in finished.folders(self._jobs(case)):
                if not (place.path / RELIANCE).exists():
                    config = place.read_config()
                    task = load_task_of(config, self.scope.data_root)
                    found = measure_run(open_learner(config, device), task, place)
                    place.add_json(RELIANCE, {"reliance": found})

    def tables(self, finished: FinishedRuns) -> list[Table]:
        return [self._reliance(finished)]

    def draw(self, finished: FinishedRuns, folder: Path) -> None:
        """Draw the flip rates under shift if the spurious columns are replaced."""
        shown = self._cases()
        specs = list(dict.fromkeys(case.spec for case in shown))
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
                        _values(finished, self._jobs(ReliedCase(spec, p, method, b)), OOD)
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

    def _cases(self) -> list[ReliedCase]:
        return [
            ReliedCase(spec, protocol, method, backbone)
            for spec in self.specs
            for protocol in spec.protocols
            for backbone in self.backbones
            for method in self.chosen_methods
        ]

    def _jobs(self, case: ReliedCase) -> list[RunConfig]:
        return self.runs(case.spec, case.method, case.backbone, protocol=case.protocol)

    def _reliance(self, finished: FinishedRuns) -> Table:
        rows: list[list[Cell]] = []
        for case in self._cases():
            jobs = self._jobs(case)
            found = [_reliance(place) for place in finished.folders(jobs)]
            scores = [
                Score([one[where][block][what] for one in found], len(jobs))
                for where in (ID, OOD)
                for what, block in (("flipped", SPURIOUS), ("lost", SPURIOUS), ("flipped", BASE))
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


def measure_run(learner: Learner, task: ShiftTask, place: RunFolder) -> dict[str, Any]:
    """Reliance of a finished run on the spurious columns and on all others."""
    model = as_classifier(learner, task, place)
    columns = np.arange(task.num_features)
    blocks = {SPURIOUS: columns[-NUM_SPURIOUS:], BASE: columns[:-NUM_SPURIOUS]}
    graphs = {ID: task.in_distribution, OOD: ~task.in_distribution}
    return {
        where: {
            name: _effect(model, induced_subgraph(task, mask), name, chosen)
            for name, chosen in blocks.items()
        }
        for where, mask in graphs.items()
    }


def as_classifier(learner: Learner, task: ShiftTask, place: RunFolder) -> NodeClassifier:
    """Convert a finished run to a `NodeClassifier`."""
    config = place.read_config()
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
    model.left_out_, model.both_ways_ = [], False
    model.fitted_ = learner.load(task, place)
    own = Graph(task.data.x, task.data.edge_index, batch=task.data.batch)
    reader = Reader(model.fitted_, PreparedGraph(own))
    model.reference_ = build_reference(task, reader, config.seed)
    model.calibration_ = model.reference_.calibrate(task.metric, weighted=False)
    return model


def induced_subgraph(task: ShiftTask, mask: Tensor) -> Data:
    """The subgraph of the nodes in a mask $[N]$; only test nodes keep their labels."""
    nodes = mask.nonzero().squeeze(1)
    edges, _ = subgraph(mask, task.data.edge_index, relabel_nodes=True)
    test_nodes = torch.cat([task.test_id, *task.test_ood.values()])
    y = torch.full((task.num_nodes,), -1)
    y[test_nodes] = task.y[test_nodes]
    data = Data(
        x=select_rows(task.data.x, nodes),
        edge_index=edges,
        y=y[nodes],
    )
    if task.data.environment is not None:
        data.environment = task.data.environment[nodes]
    return data


def _effect(model: NodeClassifier, graph: Data, name: str, columns: np.ndarray) -> dict[str, float]:
    effect = replace_columns(read_graph(model, graph), name, columns, seed_of(model), REPEATS)
    assert effect.lost is not None
    return {"flipped": effect.changed.value, "lost": effect.lost.value}


def _reliance(place: RunFolder) -> dict[str, Any]:
    content: dict[str, Any] = place.read_json(RELIANCE)["reliance"]
    return content


def _values(finished: FinishedRuns, jobs: list[RunConfig], where: str) -> list[float]:
    places = finished.folders(jobs)
    return [_reliance(place)[where][SPURIOUS]["flipped"] for place in places]
