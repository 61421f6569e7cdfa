"""The tables of one comparison: scores, other settings, time and memory."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from statistics import mean, median
from typing import Any, NamedTuple

from canet.report.comparison import Comparison, Contender, ReportContext, differences
from canet.report.labels import backbone_label
from canet.report.score import Score, rank
from canet.report.tables import Cell
from canet.store.summary import LEFT_OUT, OOD, OOD_MEAN


class TableColumn(NamedTuple):
    """Head of a column, the subtitle below it, and a cell for each row."""

    name: str
    subtitle: str
    cells: Sequence[Cell]


class SectionTable(NamedTuple):
    """A table with a row per contender."""

    title: str
    rows: Sequence[tuple[Contender, str]]  # the contender of each row, and a subtitle
    columns: Sequence[TableColumn]
    is_sorted: bool = False  # whether rows are sorted by the first column


def score_table(comparison: Comparison, backbone: str, context: ReportContext) -> SectionTable:
    """Scores of all contenders with a backbone; the best of each column is marked."""
    contenders = comparison.of(backbone)
    columns = [_column(split, _compared(contenders, split, context)) for split in comparison.splits]
    rows = [(contender, "") for contender in contenders]
    return SectionTable(
        backbone_label(backbone), rows, [*columns, *_spread_columns(contenders)], True
    )


def variant_table(comparison: Comparison) -> SectionTable:
    """Scores of the same methods with other settings; each row names the changed settings."""

    def key(contender: Contender) -> tuple[str, str, str]:
        config = contender.config
        return config.backbone, config.method, config.features

    main = {key(c): c for c in comparison.contenders if not c.is_searched}
    variants = sorted(comparison.variants, key=key)
    rows = []
    for variant in variants:
        changed = differences(variant.config.settings, main[key(variant)].config.settings)
        words = [f"{name} = {setting_text(value)}" for name, value in changed]
        rows.append((variant, ", ".join([backbone_label(variant.config.backbone), *words])))
    columns = [
        _column(split, [variant.score(split) for variant in variants])
        for split in comparison.splits
    ]
    return SectionTable("Other settings", rows, [*columns, *_spread_columns(variants)])


def cost_table(contenders: Sequence[Contender]) -> SectionTable:
    """Time per epoch, peak memory and selected epoch of each contender."""
    results = [[run.result for run in contender.runs] for contender in contenders]
    epochs = [mean(1000 * result.seconds_per_epoch for result in some) for some in results]
    memory = [max(result.peak_memory_mb for result in some) for some in results]
    selected = [median(result.selected_epoch for result in some) for some in results]
    devices = [", ".join(sorted({result.device for result in some})) for some in results]
    columns = [
        TableColumn("ms per epoch", "", [_quantity(value, 1) for value in epochs]),
        TableColumn("peak memory", "MB", [_quantity(value, 0) for value in memory]),
        TableColumn("selected epoch", "median", [_quantity(x, int(x % 1 > 0)) for x in selected]),
        TableColumn("device", "", devices),
    ]
    rows = [(contender, backbone_label(contender.config.backbone)) for contender in contenders]
    return SectionTable("Time and memory", rows, columns)


def setting_text(value: Any) -> str:
    """A setting's value as a page shows it."""
    return f"{value:g}" if isinstance(value, float) else str(value).lower()


def _compared(
    contenders: Sequence[Contender], split: str, context: ReportContext
) -> Sequence[Score]:
    """Scores on a split, ranked; controls, which come last, have no rank."""
    scores = []
    for contender in contenders:
        paper = None if contender.is_searched else context.published(contender.config, split)
        scores.append(replace(contender.score(split), published=paper))
    count = sum(not contender.control for contender in contenders)
    return [*rank(scores[:count]), *scores[count:]]


def _column(split: str, scores: Sequence[Score]) -> TableColumn:
    if split == OOD_MEAN:
        return TableColumn("OOD mean", "all shifted sets", scores)
    if split == "test_id":
        return TableColumn("ID", "not shifted", scores)
    if split.startswith(LEFT_OUT):
        return TableColumn(split.removeprefix(LEFT_OUT), "not in the paper", scores)
    return TableColumn(split.removeprefix(OOD), "shifted", scores)


def _spread_columns(contenders: Sequence[Contender]) -> list[TableColumn]:
    """The columns after the scores: drop under shift, and runs that the spread is over."""
    drops = [c.score("test_id").mean - c.score(OOD_MEAN).mean for c in contenders]
    columns = [TableColumn("drop", "ID − OOD", [Score([value], digits=1) for value in drops])]
    scores = [c.score_over_runs(OOD_MEAN) for c in contenders]
    one_draw = [score if len(score.values) > 1 else Score([]) for score in scores]
    if any(s.values and len(c.draws) > 1 for c, s in zip(contenders, one_draw, strict=True)):
        columns.append(TableColumn("OOD, one draw", "spread over runs", one_draw))
    counts = [_quantity(len(c.runs), 0, c.spread_over) for c in contenders]
    return [*columns, TableColumn("runs", "spread over", counts)]


def _quantity(value: float, digits: int, note: str = "") -> Score:
    """A single number that is not a share, such as a time."""
    return Score([value], digits=digits, note=note, is_share=False)
