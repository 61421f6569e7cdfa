"""A section of the page: tables, charts, pseudo-environments and settings of one comparison."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import mean
from typing import Any, NamedTuple

from canet.data import DATASETS, GENERATORS, Dataset
from canet.data.benchmarks.dataset import USER_GRAPH
from canet.methods import METHODS, Settings
from canet.models import all_methods
from canet.report.comparison import NO_CONTEXT, Comparison, Contender, ReportContext, differences
from canet.report.curves import Chart, draw_chart, read_curves
from canet.report.labels import backbone_label
from canet.report.score import Score
from canet.report.section_tables import SectionTable, cost_table, score_table, variant_table
from canet.scoring.metrics import METRICS
from canet.store import RunConfig
from canet.store.summary import LEFT_OUT, OOD

ALWAYS_HIGHLIGHTED = ("erm", "canet")
MAX_COLOURED_LINES = 4
"""A chart with more lines than this shows some of them in grey."""
SPLIT_NAMES = {"train": "training", "valid": "validation", "test_id": "test, ID"}


class LayerEnvironments(NamedTuple):
    """The pseudo-environments of one layer: effective number, alignment, mean posteriors."""

    effective: Score
    alignment: Score | None
    bars: list[tuple[str, list[float]]]


class PseudoEnvironments(NamedTuple):
    """The pseudo-environments of one contender: bars of one run, means over all runs."""

    contender: Contender
    shown_run: RunConfig
    environments: int
    layers: list[LayerEnvironments]


Setting = tuple[str, Any]


@dataclass(frozen=True)
class Section:
    """The content of one section; `short_epochs` are numbers of epochs below the default."""

    comparison: Comparison
    anchor: str
    title: str
    dataset: Dataset | None  # None for a task that is not in the catalogue
    metric: str
    short_epochs: list[int]
    shifted_columns: list[tuple[Contender, list[tuple[int, float]]]]  # column, share of variance
    tables: list[SectionTable]
    charts: list[tuple[str, Chart]]
    has_grey_lines: bool
    legend: list[Contender]
    pseudo_environments: list[PseudoEnvironments]
    variants: SectionTable | None
    costs: SectionTable
    settings: list[tuple[Contender, list[Setting]]]  # those that differ from the defaults


def make_section(comparison: Comparison, context: ReportContext = NO_CONTEXT) -> Section:
    """Make the section of one comparison."""
    config = comparison.config
    marks = [config.protocol] if config.protocol != "paper" else []
    marks += [config.generator] if config.generator != GENERATORS[0] else []
    marks += [config.features] if comparison.is_structural else []
    marks += ["inductive"] if config.inductive else []
    ranked = [c for backbone in comparison.backbones for c in comparison.of(backbone)]
    everyone = [*comparison.contenders, *comparison.variants]
    epochs = {c.config.settings.get("epochs", Settings().epochs) for c in comparison.contenders}
    dataset, is_user = DATASETS.get(config.task), config.task == USER_GRAPH
    charts = list(_charts(comparison))
    name = Path(config.task).name  # the task of a graph store is its path
    return Section(
        comparison,
        anchor="-".join([name, config.protocol, *marks]),
        title=", ".join(["Your graph" if is_user else name.capitalize(), *marks]),
        dataset=dataset,
        metric=METRICS[dataset.metric].label if dataset else "score",
        short_epochs=sorted(number for number in epochs if number < Settings().epochs),
        shifted_columns=[(c, columns) for c in everyone if (columns := _shifted_columns(c))],
        tables=[score_table(comparison, b, context) for b in comparison.backbones],
        charts=charts,
        has_grey_lines=any(len(c.highlighted) < len(c.last) for _, c in charts),
        legend=legend(ranked),
        pseudo_environments=[found for c in ranked if (found := _pseudo_environments(c))],
        variants=variant_table(comparison) if comparison.variants else None,
        costs=cost_table(ranked),
        settings=[(contender, _changed_settings(contender.config)) for contender in ranked],
    )


def legend(contenders: Sequence[Contender]) -> list[Contender]:
    """One contender for each label: CaNet, the other methods, then controls."""
    unique = {contender.label: contender for contender in contenders}

    def order(contender: Contender) -> tuple[bool, int, bool]:
        method = contender.config.method
        number = ["canet", *METHODS, method].index(method)
        return bool(contender.control), number, contender.is_searched

    return sorted(unique.values(), key=order)


def _shifted_columns(contender: Contender) -> list[tuple[int, float]]:
    """Shifted columns with their mean share of variance, those found in most runs first."""
    shares: dict[int, list[float]] = {}
    for found in filter(None, (run.result.findings for run in contender.runs)):
        for column, share in zip(found.shifted_columns, found.share, strict=True):
            shares.setdefault(column, []).append(share)
    ranked = sorted(shares, key=lambda c: (-len(shares[c]), -mean(shares[c]), c))
    return [(column, mean(shares[column])) for column in ranked]


def _charts(comparison: Comparison) -> Iterator[tuple[str, Chart]]:
    for backbone in comparison.backbones:
        curves = [(c, read_curves(c)) for c in comparison.of(backbone)[::-1]]
        background = _background_labels(comparison, backbone)
        for name in ("under shift", "validation"):
            if chart := draw_chart([(c, found[name]) for c, found in curves], background):
                yield f"{backbone_label(backbone)}, {name}", chart


def _background_labels(comparison: Comparison, backbone: str) -> set[str]:
    """Labels shown in grey if there are many lines: all but ERM, CaNet and the best."""
    contenders = comparison.of(backbone)
    if len(contenders) <= MAX_COLOURED_LINES:
        return set()
    ranking = comparison.ranking(backbone)
    best = ranking.best_labels if ranking else []
    return {
        c.label
        for c in contenders
        if c.is_searched or (c.config.method not in ALWAYS_HIGHLIGHTED and c.label not in best)
    }


def _pseudo_environments(contender: Contender) -> PseudoEnvironments | None:
    """Bars of the first run: pseudo-environments of two runs cannot be matched, so not averaged."""
    inferred = [(run.config, run.result.inferred_environments) for run in contender.runs]
    runs = [(config, environments) for config, environments in inferred if environments]
    if not runs:
        return None
    shown_run, first = runs[0]
    found = [environments for _, environments in runs]
    layers = []
    for i in range(len(first.effective)):
        matches = [one.alignment[i] for one in found if one.alignment]
        effective = Score([one.effective[i] for one in found], is_share=False)
        alignment = Score(matches, is_share=False) if matches else None
        bars = [
            (SPLIT_NAMES.get(s, s.removeprefix(OOD).removeprefix(LEFT_OUT)), rows[i])
            for s, rows in first.posterior.items()
        ]
        layers.append(LayerEnvironments(effective, alignment, bars))
    return PseudoEnvironments(contender, shown_run, len(first.posterior["train"][0]), layers)


def _changed_settings(config: RunConfig) -> list[Setting]:
    known = all_methods().get(config.method)
    return differences(config.settings, asdict(known.settings_type()) if known else {})
