"""The tables of one comparison: scores, other settings, time and memory; a row per contender."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from statistics import mean, median
from typing import Any, NamedTuple

from canet.report.comparison import Comparison, Contender, differences
from canet.report.context import ReportContext
from canet.report.labels import backbone_label
from canet.report.score import Score, rank
from canet.report.tables import Cell, Table
from canet.store.summary import LEFT_OUT, OOD, OOD_MEAN


class Column(NamedTuple):
    """Name of a column, what is shown below it, and a cell for each contender."""

    name: str
    about: str
    cells: Sequence[Cell]


class SectionTable(NamedTuple):
    """A table with a row per contender."""

    table: Table  # its first column names the contenders, its note is the caption
    below: Sequence[str]  # what is shown below the name of each column
    contenders: Sequence[tuple[Contender, str]]  # that of each row, and a word about it
    ranked: bool  # whether rows are in the order of the first score


def score_table(
    comparison: Comparison, backbone: str, metric: str, context: ReportContext
) -> SectionTable:
    """The contenders of a backbone, the best of each column marked, published numbers below."""
    contenders = comparison.of(backbone)
    columns = [
        _column(split, _compared(contenders, split, context), context)
        for split in comparison.splits
    ]
    rows = [(contender, "") for contender in contenders]
    return _with_spread(backbone_label(backbone), metric, rows, columns, ranked=True)


def variant_table(comparison: Comparison, metric: str, context: ReportContext) -> SectionTable:
    """The same methods with other settings, each named by what is other; nothing is marked."""

    def key(contender: Contender) -> tuple[str, str, str]:
        config = contender.config
        return config.backbone, config.method, config.features

    main = {key(c): c for c in comparison.contenders if not c.searched}
    variants = sorted(comparison.variants, key=key)
    rows = []
    for variant in variants:
        changed = differences(variant.config.settings, main[key(variant)].config.settings)
        words = [f"{name} = {setting_text(value)}" for name, value in changed]
        rows.append((variant, ", ".join([backbone_label(variant.config.backbone), *words])))
    columns = [
        _column(split, [variant.score(split) for variant in variants], context)
        for split in comparison.splits
    ]
    return _with_spread("Other settings", metric, rows, columns, ranked=False)


def cost_table(contenders: Sequence[Contender]) -> SectionTable:
    """What an epoch of each takes, in time and memory, and which epoch was chosen."""
    results = [[run.result for run in contender.runs] for contender in contenders]
    epochs = [mean(1000 * result.seconds_per_epoch for result in some) for some in results]
    memory = [max(result.peak_memory_mb for result in some) for some in results]
    chosen = [median(result.selected_epoch for result in some) for some in results]
    devices = [", ".join(sorted({result.device for result in some})) for some in results]
    columns = [
        Column("ms per epoch", "", [Score([value], digits=1) for value in epochs]),
        Column("peak memory", "MB", [Score([value], digits=0) for value in memory]),
        Column("epoch chosen", "median", [Score([x], digits=int(x % 1 > 0)) for x in chosen]),
        Column("device", "", devices),
    ]
    caption = "means over runs; memory is the run's peak on a GPU, the process's on a CPU"
    rows = [(contender, backbone_label(contender.config.backbone)) for contender in contenders]
    return _table("Time and memory", caption, rows, columns, ranked=False)


def setting_text(value: Any) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value).lower()


def _compared(
    contenders: Sequence[Contender], split: str, context: ReportContext
) -> Sequence[Score]:
    """Scores on a split; extra sets have no best, and controls, which come last, are never it."""
    scores = []
    for contender in contenders:
        paper = None if contender.searched else context.published(contender.config, split)
        scores.append(replace(contender.score(split), published=paper))
    if any(split == extra.name for extra in context.extra_sets):
        return scores
    rivals = sum(not contender.control for contender in contenders)
    return [*rank(scores[:rivals]), *scores[rivals:]]


def _column(split: str, scores: Sequence[Score], context: ReportContext) -> Column:
    if split == OOD_MEAN:
        return Column("OOD mean", "all shifted sets", scores)
    if split == "test_id":
        return Column("ID", "not shifted", scores)
    if split.startswith(LEFT_OUT):
        return Column(split.removeprefix(LEFT_OUT), "not in the paper", scores)
    extra = {extra.name: extra.about for extra in context.extra_sets}
    return Column(split.removeprefix(OOD), extra.get(split, "shifted"), scores)


def _with_spread(
    title: str,
    metric: str,
    rows: Sequence[tuple[Contender, str]],
    columns: Sequence[Column],
    ranked: bool,
) -> SectionTable:
    """After the scores come what is lost under shift and what their spread is taken over."""
    everyone = [contender for contender, _ in rows]
    rules = sorted({run.result.selection for c in everyone for run in c.runs})
    bases = {contender.basis for contender in everyone}
    what = "one run each"
    if any(len(contender.runs) > 1 for contender in everyone):
        what = "mean ± standard deviation" + (f" over {bases.pop()}" if len(bases) == 1 else "")
    caption = f"{metric} in %, {what}, epoch by {' or '.join(rules)}"
    lost = [c.score("test_id").mean - c.score(OOD_MEAN).mean for c in everyone]
    added = [Column("lost", "ID − OOD", [Score([points], digits=1) for points in lost])]
    one_draw = [c.score_over_runs(OOD_MEAN) for c in everyone]
    if any(len(c.draws) > 1 and len(s.values) > 1 for c, s in zip(everyone, one_draw, strict=True)):
        cells = [score if len(score.values) > 1 else Score([]) for score in one_draw]
        added.append(Column("one draw", "OOD over its runs", cells))
    counts = [Score([len(c.runs)], digits=0, note=c.basis) for c in everyone]
    added.append(Column("runs", "spread over", counts))
    return _table(title, caption, rows, [*columns, *added], ranked)


def _table(
    title: str,
    caption: str,
    rows: Sequence[tuple[Contender, str]],
    columns: Sequence[Column],
    ranked: bool,
) -> SectionTable:
    columns = [Column("method", "", [contender.label for contender, _ in rows]), *columns]
    names, below, cells = zip(*columns, strict=True)
    table = Table("", title, names, list(zip(*cells, strict=True)), [caption])
    return SectionTable(table, below, rows, ranked)
