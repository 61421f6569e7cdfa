"""Beyond the paper: interventions beyond the environments that were seen, on three kinds of shift.

Every method is trained as published, with interventions, blind to the misleading columns, and with
every domain's columns centred; and on real shifts, which have no such columns, with and without.
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
from canet.report.figures import (
    draw_bars,
    new_figure,
    save_figure,
    shades,
    share_legend,
    tidy,
)
from canet.report.labels import backbone_label
from canet.report.score import Score
from canet.report.tables import Cell, Table
from canet.store import RunConfig
from canet.store.summary import OOD_LAST, OOD_MEAN
from canet.util import colour
from experiments.contender import ERM_BLIND, ERM_CENTRED, Contender

BACKBONES = ("gcn", "gat", "sage")
INFERRED = {"interventions": "inferred"}


ERM, CANET = Contender("ERM", "erm"), Contender("CaNet", "canet")
ERM_INFERRED = Contender("ERM, inferred", "erm", changes=INFERRED)
CANET_INFERRED = Contender("CaNet, inferred", "canet", changes=INFERRED)
CANET_GIVEN = Contender("CaNet, given", "canet", changes={"interventions": "given"})
CANET_CENTRED = Contender("CaNet, centred", "canet", CENTRED_PER_GRAPH)
CANET_BLIND = Contender("CaNet, blind", "canet", WITHOUT_SPURIOUS)
CONTENDERS = (
    *(ERM, CANET, ERM_INFERRED, CANET_INFERRED, CANET_GIVEN),
    *(ERM_CENTRED, CANET_CENTRED, ERM_BLIND, CANET_BLIND),
)
REAL_CONTENDERS = (ERM, ERM_INFERRED, CANET, CANET_INFERRED)
_, _LIGHT, _OWN, _, _DARK = shades(METHODS["canet"].colour.light, 5)
DRAWN = (
    (CANET, _OWN),
    (CANET_INFERRED, _DARK),
    (CANET_GIVEN, _LIGHT),
    (CANET_CENTRED, colour.CENTRED_PER_GRAPH_COLOUR.light),
    (CANET_BLIND, colour.WITHOUT_SPURIOUS_COLOUR.light),
)
ABLATED = ("cora", "citeseer", "pubmed")
NUM_SEEDS = 5
"""Runs on each draw of `resampled`, whose regions are small: one run tells little there."""
VARIANTS: dict[str, dict[str, Any]] = {
    "as it is": {},
    "width 1": {"intervention_width": 1.0},
    "width 3": {"intervention_width": 3.0},
    "width 10": {"intervention_width": 10.0},
    "3 groups": {"num_groups": 3},
    "12 groups": {"num_groups": 12},
    "K = 1": {"num_environments": 1},
    "K = 5": {"num_environments": 5},
    "mean of branches": {"learned_environment": False},
    "estimator of the node alone": {"estimator": "node"},
    "no regulariser": {"prior": "none"},
    "mixture prior": {"prior": "mixture"},
}
"""What is changed of CaNet with inferred interventions."""


class Case(NamedTuple):
    """A task with one generator and backbone; the generator is empty for a real shift."""

    spec: TaskSpec
    generator: str
    backbone: str

    @property
    def texts(self) -> list[Cell]:
        return [self.generator, self.spec.label, backbone_label(self.backbone)]


class Interventions(Experiment):
    """Methods with and without interventions, their controls, what it costs, and an ablation."""

    name = "interventions"
    title = "Interventions"
    tasks = ("synthetic", "cora", "citeseer", "pubmed", "twitch", "arxiv", "elliptic")
    quick_tasks = ("cora",)
    methods = ("erm", "canet")
    quick_methods = ("erm", "canet")

    def configs(self) -> list[RunConfig]:
        shifted = [
            self._jobs(case, contender)
            for case in self._shifted()
            for contender in self._contenders()
        ]
        real = [
            self._jobs(case, contender)
            for case in self._real()
            for contender in self._real_contenders()
        ]
        ablated = [self._variant(case, name) for case in self._ablated() for name in VARIANTS]
        again = [
            self._seeds(case, contender, draw)
            for case in self._small()
            for contender in (CANET_INFERRED, CANET_BLIND)
            for draw in self.scope.repeats(case.spec)
        ]
        return [config for jobs in (*shifted, *real, *ablated, *again) for config in jobs]

    def tables(self, finished: FinishedRuns) -> list[Table]:
        return [
            self._scores(finished, OOD_MEAN, "", "under shift, best validation"),
            self._scores(finished, OOD_LAST, "last", "under shift, last epoch"),
            self._scores(finished, "test_id", "id", "in distribution, best validation"),
            self._above_blind(finished),
            self._over_seeds(finished),
            self._real_costs(finished),
            self._ablation(finished),
            self._columns(finished),
        ]

    def draw(self, finished: FinishedRuns, folder: Path) -> None:
        """A row of panels for each generator, a panel for each task, CaNet's forms in it."""
        cases = self._shifted()
        generators = list(dict.fromkeys(case.generator for case in cases))
        specs = list(dict.fromkeys(case.spec for case in cases))
        shown = [(contender, tone) for contender, tone in DRAWN if contender in self._contenders()]
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
                        contender.label,
                        tone,
                        [finished.scores(self._jobs(case, contender), OOD_MEAN) for case in here],
                    )
                    for contender, tone in shown
                ]
                draw_bars(axes, [backbone_label(case.backbone) for case in here], bars)
                tidy(axes, f"{spec.label}, {generator}")
            row[0].set_ylabel("OOD accuracy %")
        share_legend(figure, panels[0][0], columns=len(shown))
        save_figure(figure, folder, self.file_name())

    def _contenders(self) -> list[Contender]:
        return [contender for contender in CONTENDERS if contender.method in self.chosen_methods]

    def _real_contenders(self) -> list[Contender]:
        return [
            contender for contender in REAL_CONTENDERS if contender.method in self.chosen_methods
        ]

    def _shifted(self) -> list[Case]:
        """The tasks whose shift is made, with each generator."""
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
        """`resampled` with the paper's backbones, where runs are repeated on every draw."""
        chosen = [c for c in self._shifted() if c.spec.task in ABLATED]
        chosen = [c for c in chosen if c.generator == "resampled" and c.backbone != "sage"]
        return chosen if "canet" in self.chosen_methods and not self.scope.quick else []

    def _backbones(self) -> tuple[str, ...]:
        return BACKBONES[:1] if self.scope.quick else BACKBONES

    def _jobs(self, case: Case, contender: Contender) -> list[RunConfig]:
        return self.runs(
            case.spec,
            contender.method,
            case.backbone,
            protocol="disjoint" if case.generator else "paper",
            features=contender.features,
            changes=contender.changes,
            generator=case.generator or GENERATORS[0],
        )

    def _seeds(self, case: Case, contender: Contender, draw: Repeat) -> list[RunConfig]:
        """A contender on one draw with every seed."""
        (config,) = [c for c in self._jobs(case, contender) if c.data_seed == draw.data_seed]
        return [replace(config, seed=seed) for seed in range(NUM_SEEDS)]

    def _variant(self, case: Case, name: str) -> list[RunConfig]:
        return self._jobs(case, Contender(name, "canet", changes=INFERRED | VARIANTS[name]))

    def _scores(self, finished: FinishedRuns, split: str, part: str, about: str) -> Table:
        rows = [
            [
                *case.texts,
                *(
                    score(finished, self._jobs(case, contender), split)
                    for contender in self._contenders()
                ),
            ]
            for case in self._shifted()
        ]
        heads = [
            "generator",
            "task",
            "backbone",
            *(contender.label for contender in self._contenders()),
        ]
        return self.table(part, about, heads, rows, [*self._about()])

    def _above_blind(self, finished: FinishedRuns) -> Table:
        """How far each form is above its own blind model, draw by draw."""
        blind = {"erm": ERM_BLIND, "canet": CANET_BLIND}
        contenders = [
            contender for contender in self._contenders() if contender not in blind.values()
        ]
        rows: list[list[Cell]] = []
        for case in self._shifted():
            for name, split in (("best validation", OOD_MEAN), ("last epoch", OOD_LAST)):
                above = [
                    difference(
                        finished,
                        self._jobs(case, contender),
                        self._jobs(case, blind[contender.method]),
                        split,
                    )
                    for contender in contenders
                ]
                rows.append([*case.texts, name, *above])
        heads = [
            "generator",
            "task",
            "backbone",
            "selection",
            *(contender.label for contender in contenders),
        ]
        notes = [
            "Points above the same method and backbone without the ten columns: mean and standard "
            "deviation of the difference, draw by draw. Under `shared` that is no upper bound.",
            *self._about(),
        ]
        about = "above their own blind models under shift"
        return self.table("blind", about, heads, rows, notes)

    def _over_seeds(self, finished: FinishedRuns) -> Table:
        """Above blind with more runs: the mean of a draw's runs, and its spread over draws."""
        rows: list[list[Cell]] = []
        for case in self._small():
            draws = self.scope.repeats(case.spec)
            cells: list[Cell] = []
            for split in (OOD_MEAN, OOD_LAST):
                means = [
                    [
                        score(finished, self._seeds(case, contender, draw), split).mean
                        for contender in (CANET_INFERRED, CANET_BLIND)
                    ]
                    for draw in draws
                ]
                cells.append(Score([own - blind for own, blind in means], len(draws)))
            rows.append([*case.texts, *cells])
        notes = [
            f"CaNet with inferred interventions above its own blind model, {NUM_SEEDS} runs on "
            "each draw: mean and standard deviation over draws of the mean over runs.",
        ]
        heads = ["generator", "task", "backbone", "best validation", "last epoch"]
        about = "above blind, with more runs on each draw"
        return self.table("seeds", about, heads, rows, notes)

    def _real_costs(self, finished: FinishedRuns) -> Table:
        rows: list[list[Cell]] = []
        both = ((ERM, ERM_INFERRED), (CANET, CANET_INFERRED))
        pairs = [pair for pair in both if pair[0] in self._real_contenders()]
        for case in self._real():
            scores = [
                score(finished, self._jobs(case, a), OOD_MEAN) for a in self._real_contenders()
            ]
            costs = [
                difference(finished, self._jobs(case, after), self._jobs(case, before), split)
                for before, after in pairs
                for split in (OOD_MEAN, OOD_LAST, "test_id")
            ]
            rows.append([*case.texts[1:], *scores, *costs])
        heads = [contender.label for contender in self._real_contenders()]
        heads += [
            f"{after.label} above: {where}"
            for _, after in pairs
            for where in ("OOD", "OOD, last epoch", "ID")
        ]
        notes = [
            "Real shifts, without such columns: what interventions cost or gain, repeat by repeat.",
            *self.notes([spec for spec in self.specs if not spec.is_spurious]),
        ]
        about = "what they cost on real shifts"
        columns = ["task", "backbone", *heads]
        return self.table("real", about, columns, rows, notes)

    def _ablation(self, finished: FinishedRuns) -> Table:
        cases = self._ablated()
        rows: list[list[Cell]] = []
        for name in VARIANTS if cases else ():
            above = [
                difference(
                    finished, self._variant(case, name), self._jobs(case, CANET_BLIND), OOD_MEAN
                )
                for case in cases
            ]
            together = Score([score.mean for score in above if score.values])
            rows.append([name, *above, together])
        heads = [f"{case.generator}, {case.spec.label}" for case in cases]
        notes = [
            "CaNet-GCN with inferred interventions: points above its own blind model at best "
            "validation, draw by draw; the last column is the mean and spread over the tasks.",
            *self._about(),
        ]
        about = "ablation"
        columns = ["variant", *heads, "mean of the tasks"]
        return self.table("ablation", about, columns, rows, notes)

    def _columns(self, finished: FinishedRuns) -> Table:
        """How many misleading columns were found, and how many others were moved with them."""
        rows: list[list[Cell]] = []
        for case in self._shifted():
            if case.backbone == BACKBONES[0]:
                jobs = self._jobs(case, CANET_INFERRED)
                found = list(_found(finished, jobs))
                misleading = Score(
                    [float(of_ten) for of_ten, _ in found], len(jobs), is_share=False
                )
                others = Score([float(base) for _, base in found], len(jobs), is_share=False)
                rows.append([*case.texts[:2], misleading, others])
        notes = [
            "Columns that clearly move between inferred groups of training nodes, given the class: "
            f"of the {NUM_SPURIOUS} misleading ones, and of all others. Mean and standard "
            "deviation over draws.",
        ]
        heads = ["generator", "task", "misleading columns found", "other columns moved"]
        about = "columns found"
        return self.table("columns", about, heads, rows, notes)

    def _about(self) -> Iterator[str]:
        yield from self.notes([spec for spec in self.specs if spec.is_spurious])
        yield (
            "Protocol `disjoint`. inferred, given: interventions for inferred groups or given "
            "environments; blind: without the misleading columns; centred: each domain's columns "
            "less their mean over it."
        )


def _found(finished: FinishedRuns, jobs: list[RunConfig]) -> Iterator[tuple[int, int]]:
    """Moved columns of each run: misleading ones, which are the last, and others."""
    for place in finished.folders(jobs):
        findings = place.read_result().findings
        assert findings is not None
        columns = findings.shifted_columns
        first = findings.num_columns - NUM_SPURIOUS
        of_block = sum(column >= first for column in columns)
        yield of_block, len(columns) - of_block
