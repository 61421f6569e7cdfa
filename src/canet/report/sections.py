"""A section of the page: tables, charts, pseudo-environments and settings of one comparison."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import mean

from markupsafe import Markup

from canet.data import DATASETS, GENERATORS, Dataset
from canet.data.benchmarks.dataset import USER_GRAPH
from canet.methods import METHODS, Settings
from canet.report.comparison import NO_CONTEXT, Comparison, Contender, ReportContext
from canet.report.curves import curve_figure
from canet.report.page_tables import (
    PageTable,
    cost_table,
    environment_tables,
    score_table,
    settings_table,
    variant_table,
)
from canet.scoring.metrics import METRICS
from canet.util.rendering import inline_svg


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
    tables: list[PageTable]
    curves: Markup | None
    environments: list[PageTable]
    folded: list[PageTable]  # tables that the reader opens


def make_section(comparison: Comparison, context: ReportContext = NO_CONTEXT) -> Section:
    """Make the section of one comparison."""
    config = comparison.config
    marks = [config.protocol] if config.protocol != "paper" else []
    marks += [config.generator] if config.generator != GENERATORS[0] else []
    marks += [config.features] if comparison.is_structural else []
    marks += ["inductive"] if config.inductive else []
    ranked = list[Contender]()
    for backbone in comparison.backbones:
        ranked += [c for c in comparison.of(backbone) if c not in ranked]
    everyone = [*comparison.contenders, *comparison.variants]
    epochs = {c.config.settings.get("epochs", Settings().epochs) for c in comparison.contenders}
    dataset, is_user = DATASETS.get(config.task), config.task == USER_GRAPH
    metric = METRICS[dataset.metric].label if dataset else "score"
    name = Path(config.task).name  # the task of a graph store is its path
    folded = [variant_table(comparison, metric)] if comparison.variants else []
    figure = curve_figure(comparison, legend(ranked))
    return Section(
        comparison,
        anchor="-".join([name, config.protocol, *marks]),
        title=", ".join(["Your graph" if is_user else name.capitalize(), *marks]),
        dataset=dataset,
        metric=metric,
        short_epochs=sorted(number for number in epochs if number < Settings().epochs),
        shifted_columns=[(c, columns) for c in everyone if (columns := _shifted_columns(c))],
        tables=[score_table(comparison, b, metric, context) for b in comparison.backbones],
        curves=inline_svg(figure, [c.colour for c in ranked]) if figure else None,
        environments=[table for c in ranked for table in environment_tables(c)],
        folded=[*folded, settings_table(ranked), cost_table(ranked)],
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
