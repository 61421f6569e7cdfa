"""A study of interventions on three kinds of spurious shift and on real shifts.

On spurious shifts, each method is trained as published, with interventions, and as two controls:
without the spurious columns, and centred per graph. On real shifts, it is trained with and without
interventions.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

from canet.data import CENTRED_PER_GRAPH, GENERATORS, WITHOUT_SPURIOUS
from canet.data.benchmarks.spurious import NUM_SPURIOUS
from canet.methods import METHODS
from canet.paper.experiment import Experiment, difference, score
from canet.paper.finished_runs import FinishedRuns
from canet.paper.scope import Repeat, TaskSpec
from canet.report.comparison import CONTROLS
from canet.report.figures import (
    draw_bars,
    new_figure,
    shades,
    share_legend,
    tidy,
)
from canet.report.labels import backbone_label
from canet.report.score import Score
from canet.report.tables import Cell, Table
from canet.store import RunConfig
from canet.store.summary import OOD_LAST, OOD_MEAN
from canet.util.rendering import save_figure
from experiments.method_variant import ERM_CENTRED_PER_GRAPH, ERM_WITHOUT_SPURIOUS, MethodVariant

BACKBONES = ("gcn", "gat", "sage")
INFERRED = {"interventions": "inferred"}


ERM, CANET = MethodVariant("ERM", "erm"), MethodVariant("CaNet", "canet")
ERM_INFERRED = MethodVariant("ERM, inferred", "erm", changes=INFERRED)
CANET_INFERRED = MethodVariant("CaNet, inferred", "canet", changes=INFERRED)
CANET_GIVEN = MethodVariant("CaNet, given", "canet", changes={"interventions": "given"})
CANET_CENTRED_PER_GRAPH = MethodVariant("CaNet, centred per graph", "canet", CENTRED_PER_GRAPH)
CANET_WITHOUT_SPURIOUS = MethodVariant(
    "CaNet, without the spurious columns", "canet", WITHOUT_SPURIOUS
)
VARIANTS = (
    *(ERM, CANET, ERM_INFERRED, CANET_INFERRED, CANET_GIVEN),
    *(ERM_CENTRED_PER_GRAPH, CANET_CENTRED_PER_GRAPH, ERM_WITHOUT_SPURIOUS, CANET_WITHOUT_SPURIOUS),
)
REAL_VARIANTS = (ERM, ERM_INFERRED, CANET, CANET_INFERRED)
_, _LIGHT, _OWN, _, _DARK = shades(METHODS["canet"].colour.light, 5)
DRAWN = (
    (CANET, _OWN),
    (CANET_INFERRED, _DARK),
    (CANET_GIVEN, _LIGHT),
    (CANET_CENTRED_PER_GRAPH, CONTROLS[CENTRED_PER_GRAPH].colour.light),
    (CANET_WITHOUT_SPURIOUS, CONTROLS[WITHOUT_SPURIOUS].colour.light),
)
ABLATED = ("cora", "citeseer", "pubmed")
NUM_SEEDS = 5
"""Runs on each draw of `resampled`. Its regions are small, so single runs vary much."""
ABLATIONS: dict[str, dict[str, Any]] = {
    "no change": {},
    "width 1": {"intervention_width": 1.0},
    "width 3": {"intervention_width": 3.0},
    "width 10": {"intervention_width": 10.0},
    "3 groups": {"num_groups": 3},
    "12 groups": {"num_groups": 12},
    "K = 1": {"num_environments": 1},
    "K = 5": {"num_environments": 5},
    "mean of branches": {"learned_environment": False},
    "estimator of the node only": {"estimator": "node"},
    "no regulariser": {"prior": "none"},
    "mixture prior": {"prior": "mixture"},
}
"""Name of a variant of CaNet with inferred interventions → changed settings."""


class Case(NamedTuple):
    """A task with one generator and backbone; the generator is empty for a real shift."""

    spec: TaskSpec
    generator: str
    backbone: str

    @property
    def texts(self) -> list[Cell]:
        return [self.generator, self.spec.label, backbone_label(self.backbone)]


class Interventions(Experiment):
    """Methods with and without interventions, controls, real shifts, and an ablation."""

    name = "interventions"
    title = "Interventions"
    tasks = ("synthetic", "cora", "citeseer", "pubmed", "twitch", "arxiv", "elliptic")
    quick_tasks = ("cora",)
    methods = ("erm", "canet")
    quick_methods = ("erm", "canet")

    def configs(self) -> list[RunConfig]:
        shifted = [
            self._jobs(case, variant) for case in self._shifted() for variant in self._variants()
        ]
        real = [
            self._jobs(case, variant) for case in self._real() for variant in self._real_variants()
        ]
        ablated = [
            self._ablation_jobs(case, name) for case in self._ablated() for name in ABLATIONS
        ]
        repeated = [
            self._seeds(case, variant, draw)
            for case in self._small()
            for variant in (CANET_INFERRED, CANET_WITHOUT_SPURIOUS)
            for draw in self.scope.repeats(case.spec)
        ]
        return [config for jobs in (*shifted, *real, *ablated, *repeated) for config in jobs]

    def tables(self, finished: FinishedRuns) -> list[Table]:
        return [
            self._scores(finished, OOD_MEAN, "", "under shift, best validation"),
            self._scores(finished, OOD_LAST, "last", "under shift, last epoch"),
            self._scores(finished, "test_id", "id", "in distribution, best validation"),
            self._above_control(finished),
            self._over_seeds(finished),
            self._real_costs(finished),
            self._ablation(finished),
            self._columns(finished),
        ]

    def draw(self, finished: FinishedRuns, folder: Path) -> None:
        """Draw a row of panels for each generator, with a panel for each task."""
        cases = self._shifted()
        generators = list(dict.fromkeys(case.generator for case in cases))
        specs = list(dict.fromkeys(case.spec for case in cases))
        shown = [(variant, tone) for variant, tone in DRAWN if variant in self._variants()]
        if not cases or not shown:
            return
        size = (len(generators), len(specs))
        figure = new_figure(*size, max(3.0, 7 / len(specs)), 2.5)
        panels = figure.subplots(*size, sharey=True, squeeze=False)
        for row, generator in zip(panels, generators, strict=True):
            for axes, spec in zip(row, specs, strict=True):
                here = [c for c in cases if (c.generator, c.spec) == (generator, spec)]
                bars = [
                    (
                        variant.label,
                        tone,
                        [finished.scores(self._jobs(case, variant), OOD_MEAN) for case in here],
                    )
                    for variant, tone in shown
                ]
                draw_bars(axes, [backbone_label(case.backbone) for case in here], bars)
                tidy(axes, f"{spec.label}, {generator}")
            row[0].set_ylabel("OOD accuracy %")
        share_legend(figure, panels[0][0], columns=len(shown))
        save_figure(figure, folder, self.file_name())

    def _variants(self) -> list[MethodVariant]:
        return [variant for variant in VARIANTS if variant.method in self.chosen_methods]

    def _real_variants(self) -> list[MethodVariant]:
        return [variant for variant in REAL_VARIANTS if variant.method in self.chosen_methods]

    def _shifted(self) -> list[Case]:
        """The tasks with spurious columns, with each generator."""
        return [
            Case(spec, generator, backbone)
            for generator in GENERATORS
            for spec in self.specs
            if spec.is_spurious
            for backbone in self._backbones()
        ]

    def _real(self) -> list[Case]:
        specs = [spec for spec in self.specs if not spec.is_spurious]
        return [Case(spec, "", backbone) for spec in specs for backbone in BACKBONES]

    def _ablated(self) -> list[Case]:
        chosen = [c for c in self._shifted() if c.spec.task in ABLATED and c.backbone == "gcn"]
        return chosen if "canet" in self.chosen_methods and not self.scope.quick else []

    def _small(self) -> list[Case]:
        """`resampled` with the backbones of the paper, where each draw has several runs."""
        chosen = [c for c in self._shifted() if c.spec.task in ABLATED]
        chosen = [c for c in chosen if c.generator == "resampled" and c.backbone != "sage"]
        return chosen if "canet" in self.chosen_methods and not self.scope.quick else []

    def _backbones(self) -> tuple[str, ...]:
        return BACKBONES[:1] if self.scope.quick else BACKBONES

    def _jobs(self, case: Case, variant: MethodVariant) -> list[RunConfig]:
        return self.runs(
            case.spec,
            variant.method,
            case.backbone,
            protocol="disjoint" if case.generator else "paper",
            features=variant.features,
            changes=variant.changes,
            generator=case.generator or GENERATORS[0],
        )

    def _seeds(self, case: Case, variant: MethodVariant, draw: Repeat) -> list[RunConfig]:
        """Runs of a variant on one draw with all seeds."""
        (config,) = [c for c in self._jobs(case, variant) if c.data_seed == draw.data_seed]
        return [replace(config, seed=seed) for seed in range(NUM_SEEDS)]

    def _ablation_jobs(self, case: Case, name: str) -> list[RunConfig]:
        return self._jobs(case, MethodVariant(name, "canet", changes=INFERRED | ABLATIONS[name]))

    def _scores(self, finished: FinishedRuns, split: str, part: str, subtitle: str) -> Table:
        rows = [
            [
                *case.texts,
                *(
                    score(finished, self._jobs(case, variant), split)
                    for variant in self._variants()
                ),
            ]
            for case in self._shifted()
        ]
        heads = [
            "generator",
            "task",
            "backbone",
            *(variant.label for variant in self._variants()),
        ]
        return self.table(part, subtitle, heads, rows, [*self._shared_notes()])

    def _above_control(self, finished: FinishedRuns) -> Table:
        """Score of each variant minus that of its control, paired by draw."""
        controls = {"erm": ERM_WITHOUT_SPURIOUS, "canet": CANET_WITHOUT_SPURIOUS}
        variants = [variant for variant in self._variants() if variant not in controls.values()]
        rows: list[list[Cell]] = []
        for case in self._shifted():
            for name, split in (("best validation", OOD_MEAN), ("last epoch", OOD_LAST)):
                above = [
                    difference(
                        finished,
                        self._jobs(case, variant),
                        self._jobs(case, controls[variant.method]),
                        split,
                    )
                    for variant in variants
                ]
                rows.append([*case.texts, name, *above])
        heads = [
            "generator",
            "task",
            "backbone",
            "selection",
            *(variant.label for variant in variants),
        ]
        notes = [
            "Score minus that of the same method and backbone without the spurious columns, in "
            "points, paired by draw: mean ± standard deviation. Under `shared` this control is "
            "not an upper bound.",
            *self._shared_notes(),
        ]
        subtitle = "difference from the control without the spurious columns, under shift"
        return self.table("control", subtitle, heads, rows, notes)

    def _over_seeds(self, finished: FinishedRuns) -> Table:
        """Difference from the control with several runs per draw: mean and spread over draws."""
        rows: list[list[Cell]] = []
        for case in self._small():
            draws = self.scope.repeats(case.spec)
            cells: list[Cell] = []
            for split in (OOD_MEAN, OOD_LAST):
                means = [
                    [
                        score(finished, self._seeds(case, variant, draw), split).mean
                        for variant in (CANET_INFERRED, CANET_WITHOUT_SPURIOUS)
                    ]
                    for draw in draws
                ]
                cells.append(Score([own - control for own, control in means], len(draws)))
            rows.append([*case.texts, *cells])
        notes = [
            "CaNet with inferred interventions minus CaNet without the spurious columns, in "
            f"points: mean over {NUM_SEEDS} runs on each draw, then mean ± standard deviation "
            "over draws.",
        ]
        heads = ["generator", "task", "backbone", "best validation", "last epoch"]
        subtitle = "difference from the control, with several runs on each draw"
        return self.table("seeds", subtitle, heads, rows, notes)

    def _real_costs(self, finished: FinishedRuns) -> Table:
        rows: list[list[Cell]] = []
        both = ((ERM, ERM_INFERRED), (CANET, CANET_INFERRED))
        pairs = [pair for pair in both if pair[0] in self._real_variants()]
        for case in self._real():
            scores = [score(finished, self._jobs(case, a), OOD_MEAN) for a in self._real_variants()]
            costs = [
                difference(finished, self._jobs(case, after), self._jobs(case, before), split)
                for before, after in pairs
                for split in (OOD_MEAN, OOD_LAST, "test_id")
            ]
            rows.append([*case.texts[1:], *scores, *costs])
        heads = [variant.label for variant in self._real_variants()]
        heads += [
            f"{after.label} − {before.label}: {where}"
            for before, after in pairs
            for where in ("OOD", "OOD, last epoch", "ID")
        ]
        notes = [
            "Real shifts, without spurious columns: scores with interventions minus those "
            "without, in points, paired by repeat.",
            *self.notes([spec for spec in self.specs if not spec.is_spurious]),
        ]
        subtitle = "effect on real shifts"
        columns = ["task", "backbone", *heads]
        return self.table("real", subtitle, columns, rows, notes)

    def _ablation(self, finished: FinishedRuns) -> Table:
        cases = self._ablated()
        rows: list[list[Cell]] = []
        for name in ABLATIONS if cases else ():
            above = [
                difference(
                    finished,
                    self._ablation_jobs(case, name),
                    self._jobs(case, CANET_WITHOUT_SPURIOUS),
                    OOD_MEAN,
                )
                for case in cases
            ]
            together = Score([score.mean for score in above if score.values])
            rows.append([name, *above, together])
        heads = [f"{case.generator}, {case.spec.label}" for case in cases]
        notes = [
            "CaNet-GCN with inferred interventions minus CaNet-GCN without the spurious columns, "
            "in points, at best validation, paired by draw. The last column is mean ± standard "
            "deviation over the tasks.",
            *self._shared_notes(),
        ]
        subtitle = "ablation"
        columns = ["variant", *heads, "mean of the tasks"]
        return self.table("ablation", subtitle, columns, rows, notes)

    def _columns(self, finished: FinishedRuns) -> Table:
        """Number of spurious columns and of other columns that were found to shift."""
        rows: list[list[Cell]] = []
        for case in self._shifted():
            if case.backbone == BACKBONES[0]:
                jobs = self._jobs(case, CANET_INFERRED)
                found = list(_found(finished, jobs))
                spurious = Score([float(count) for count, _ in found], len(jobs), is_share=False)
                others = Score([float(count) for _, count in found], len(jobs), is_share=False)
                rows.append([*case.texts[:2], spurious, others])
        notes = [
            "Number of columns that shift between inferred groups of training nodes of the same "
            f"class: among the {NUM_SPURIOUS} spurious columns, and among all others. Mean ± "
            "standard deviation over draws.",
        ]
        heads = ["generator", "task", "spurious columns found", "other columns found"]
        subtitle = "shifted columns"
        return self.table("columns", subtitle, heads, rows, notes)

    def _shared_notes(self) -> Iterator[str]:
        yield from self.notes([spec for spec in self.specs if spec.is_spurious])
        yield (
            "Disjoint protocol: test nodes are new nodes. inferred, given: interventions for "
            "inferred groups or for given environments. centred per graph: the mean over each "
            "domain is subtracted from all columns."
        )


def _found(finished: FinishedRuns, jobs: list[RunConfig]) -> Iterator[tuple[int, int]]:
    """Number of shifted columns of each run: spurious columns, which are the last, and others."""
    for run_folder in finished.folders(jobs):
        findings = run_folder.read_result().findings
        assert findings is not None
        columns = findings.shifted_columns
        first = findings.num_columns - NUM_SPURIOUS
        num_spurious = sum(column >= first for column in columns)
        yield num_spurious, len(columns) - num_spurious
