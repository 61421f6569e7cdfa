"""A comparison as the page shows it: tables, charts, inferred environments, settings, costs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from statistics import mean
from typing import Any, NamedTuple

from canet.data import DATASETS, GENERATORS, Dataset
from canet.data.metrics import METRIC_NAMES
from canet.methods import EVERY_METHOD, METHODS, Settings
from canet.report.comparison import Comparison, Contender, differences
from canet.report.context import NO_CONTEXT, ReportContext
from canet.report.curves import Chart, draw_chart, read_curves
from canet.report.labels import backbone_label
from canet.report.score import Score
from canet.report.section_tables import SectionTable, cost_table, score_table, variant_table
from canet.store import RunConfig
from canet.store.summary import LEFT_OUT, OOD

ALWAYS_SHOWN = ("erm", "canet")
FEW_LINES = 4
"""Up to so many lines of a chart are all in colour."""
SPLIT_NAMES = {"train": "training", "valid": "validation", "test_id": "test, ID"}


class LayerEnvironments(NamedTuple):
    """Environments that one layer infers: how many are used, do they match, mean posteriors."""

    effective: Score
    alignment: Score | None
    bars: list[tuple[str, list[float]]]


class Inferred(NamedTuple):
    """Environments of one contender; bars are those of the run `shown`, numbers those of all."""

    contender: Contender
    shown: RunConfig
    environments: int
    layers: list[LayerEnvironments]


Setting = tuple[str, Any]


@dataclass(frozen=True)
class Section:
    """All there is to show of one comparison; `short_epochs` are numbers below the default."""

    comparison: Comparison
    anchor: str
    title: str
    dataset: Dataset | None  # None for a task that is not in the catalogue
    metric: str
    short_epochs: list[int]
    moved: list[tuple[Contender, list[tuple[int, float]]]]  # columns that shift, and their shares
    tables: list[SectionTable]
    charts: list[tuple[str, Chart]]
    legend: list[Contender]
    inferred: list[Inferred]
    variants: SectionTable | None
    costs: SectionTable
    setups: list[tuple[Contender, list[Setting]]]  # what is not the default of its method


def make_section(comparison: Comparison, context: ReportContext = NO_CONTEXT) -> Section:
    """Lay out one comparison."""
    config = comparison.config
    marks = [config.protocol] if config.protocol != "paper" else []
    marks += [config.generator] if config.generator != GENERATORS[0] else []
    marks += [config.features] if comparison.is_structural else []
    marks += ["inductive"] if config.inductive else []
    ranked = [c for backbone in comparison.backbones for c in comparison.of(backbone)]
    everyone = [*comparison.contenders, *comparison.variants]
    epochs = {c.config.settings.get("epochs", Settings().epochs) for c in comparison.contenders}
    dataset = DATASETS.get(config.task)
    return Section(
        comparison,
        anchor="-".join([config.task, config.protocol, *marks]),
        title=", ".join([config.task.capitalize(), *marks]),
        dataset=dataset,
        metric=METRIC_NAMES[dataset.metric] if dataset else "score",
        short_epochs=sorted(number for number in epochs if number < Settings().epochs),
        moved=[(contender, moved) for contender in everyone if (moved := _moved(contender))],
        tables=[score_table(comparison, b, context) for b in comparison.backbones],
        charts=list(_charts(comparison)),
        legend=legend(ranked),
        inferred=[one for contender in ranked if (one := _inferred(contender))],
        variants=variant_table(comparison, context) if comparison.variants else None,
        costs=cost_table(ranked),
        setups=[(contender, _changed(contender.config)) for contender in ranked],
    )


def legend(contenders: Sequence[Contender]) -> list[Contender]:
    """One contender for each label: CaNet, the other methods as listed, then controls."""
    unique = {contender.label: contender for contender in contenders}

    def place(contender: Contender) -> tuple[bool, int, bool]:
        method = contender.config.method
        number = ["canet", *METHODS, method].index(method)
        return bool(contender.control), number, contender.searched

    return sorted(unique.values(), key=place)


def _moved(contender: Contender) -> list[tuple[int, float]]:
    """Columns that interventions found to shift between groups, by how many runs and how much."""
    shares: dict[int, list[float]] = {}
    for found in filter(None, (run.result.findings for run in contender.runs)):
        for column, share in zip(found.shifted_columns, found.share, strict=True):
            shares.setdefault(column, []).append(share)
    ranked = sorted(shares, key=lambda c: (-len(shares[c]), -mean(shares[c]), c))
    return [(column, 100 * mean(shares[column])) for column in ranked]


def _charts(comparison: Comparison) -> Iterator[tuple[str, Chart]]:
    for backbone in comparison.backbones:
        curves = [(c, read_curves(c)) for c in comparison.of(backbone)[::-1]]
        quiet = _quiet(comparison, backbone)
        for name in ("under shift", "validation"):
            if chart := draw_chart([(c, found[name]) for c, found in curves], quiet):
                yield f"{backbone_label(backbone)}, {name}", chart


def _quiet(comparison: Comparison, backbone: str) -> set[str]:
    """Labels that are grey where there are many: not ERM, CaNet, the best nor a control."""
    contenders = comparison.of(backbone)
    if len(contenders) <= FEW_LINES:
        return set()
    verdict = comparison.verdict(backbone)
    best = [contender.label for contender in verdict.best] if verdict else []
    return {
        c.label
        for c in contenders
        if c.searched or (c.config.method not in ALWAYS_SHOWN and c.label not in best)
    }


def _inferred(contender: Contender) -> Inferred | None:
    """Bars of the first run: environments have no names, so those of two runs do not add up."""
    inferred = [(run.config, run.result.inferred_environments) for run in contender.runs]
    runs = [(config, environments) for config, environments in inferred if environments]
    if not runs:
        return None
    shown, first = runs[0]
    found = [environments for _, environments in runs]
    layers = []
    for i in range(len(first.effective)):
        matches = [one.alignment[i] for one in found if one.alignment]
        effective = Score([one.effective[i] for one in found])
        bars = [(_split_name(name), rows[i]) for name, rows in first.posterior.items()]
        layers.append(LayerEnvironments(effective, Score(matches) if matches else None, bars))
    return Inferred(contender, shown, len(first.posterior["train"][0]), layers)


def _split_name(split: str) -> str:
    return SPLIT_NAMES.get(split, split.removeprefix(OOD).removeprefix(LEFT_OUT))


def _changed(config: RunConfig) -> list[Setting]:
    known = EVERY_METHOD.get(config.method)
    return differences(config.settings, asdict(known.settings_type()) if known else {})
