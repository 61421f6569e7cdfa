"""The tables of one comparison: scores, settings, pseudo-environments, time and memory."""

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, replace
from functools import partial
from statistics import mean, median
from typing import Any, NamedTuple

from canet.models import all_methods
from canet.report.comparison import Comparison, Contender, ReportContext, differences
from canet.report.score import Score, rank
from canet.report.tables import Cell, Table
from canet.store.summary import LEFT_OUT, OOD, OOD_MEAN, FinishedRun
from canet.util.rendering import GAP

SPLIT_NAMES = {"train": "training", "valid": "validation", "test_id": "test, ID"}
NO_SCORE = Score([])
NUMBER = re.compile(r"[-+−]?\d+(\.\d+)?")  # at the start of a cell


class Row(NamedTuple):
    """The head of a row, a note below it, and the id of the section that it links to."""

    label: str
    note: str = ""
    target: str = ""
    is_control: bool = False


class Column(NamedTuple):
    """Head of a column, the subtitle below it, and a cell for each row."""

    name: str
    subtitle: str
    cells: Sequence[Cell]

    @property
    def is_text(self) -> bool:
        """Whether no cell is a number, so that the column is aligned left."""
        return not any(isinstance(cell, Score) or NUMBER.match(cell) for cell in self.cells)


class PageTable(NamedTuple):
    """A table of the page."""

    title: str
    rows: Sequence[Row]
    columns: Sequence[Column]
    caption: str = ""
    head: str = "method"  # of the heads of the rows
    is_sorted: bool = False  # whether rows are sorted by the first column


def score_table(
    comparison: Comparison, backbone: str, metric: str, context: ReportContext
) -> PageTable:
    """Scores of all contenders with a backbone; the best of each column is marked."""
    contenders = comparison.of(backbone)
    columns = _columns(comparison, contenders, partial(ranked_scores, contenders, context=context))
    return PageTable(
        comparison.title_of(backbone),
        [Row(c.label, is_control=bool(c.control)) for c in contenders],
        columns,
        _score_caption(contenders, metric),
        is_sorted=True,
    )


def variant_table(comparison: Comparison, metric: str) -> PageTable:
    """Scores of the same methods with other settings; each row names the changed settings."""

    def key(contender: Contender) -> tuple[str, str, str]:
        config = contender.config
        return config.backbone, config.method, config.features

    main = {key(c): c for c in comparison.contenders if not c.is_searched}
    variants = sorted(comparison.variants, key=key)
    rows = []
    for variant in variants:
        changed = differences(variant.config.settings, main[key(variant)].config.settings)
        note = ", ".join(filter(None, [variant.backbone, settings_text(changed)]))
        rows.append(Row(variant.label, note, is_control=bool(variant.control)))
    columns = _columns(comparison, variants, lambda split: [one.score(split) for one in variants])
    return PageTable("Other settings", rows, columns, _score_caption(variants, metric))


def settings_table(contenders: Sequence[Contender]) -> PageTable:
    """The settings of each contender, and which of them differ from the defaults."""
    changed = []
    for config in (contender.config for contender in contenders):
        known = all_methods().get(config.method)
        defaults = asdict(known.settings_type()) if known else {}
        changed.append(settings_text(differences(config.settings, defaults)) or "nothing")
    every = [settings_text(contender.config.settings.items()) for contender in contenders]
    columns = [Column("differ from the defaults", "", changed), Column("all settings", "", every)]
    return PageTable("Settings", _rows(contenders), columns)


def cost_table(contenders: Sequence[Contender]) -> PageTable:
    """Time per epoch, peak memory and selected epoch of each contender."""
    results = [[run.result for run in contender.runs] for contender in contenders]
    times = []
    for some in results:
        note = "" if any(result.epochs for result in some) else "in total"
        times.append(quantity(mean(1000 * result.seconds_per_epoch for result in some), 1, note))
    memory = [quantity(max(result.peak_memory_mb for result in some), 0) for some in results]
    selected = [median(result.selected_epoch for result in some) for some in results]
    epochs = [quantity(x, int(x % 1 > 0)) if x else NO_SCORE for x in selected]
    devices = [", ".join(sorted({result.device for result in some})) for some in results]
    columns = [
        Column("ms per epoch", "", times),
        Column("peak memory", "MB", memory),
        Column("selected epoch", "median", epochs),
        Column("device", "", devices),
    ]
    caption = "means over runs; peak memory is that of the run on a GPU, of the process on a CPU"
    return PageTable("Time and memory", _rows(contenders), columns, caption)


def environment_tables(contender: Contender) -> Iterator[PageTable]:
    """A table of pseudo-environments for each layer of a contender.

    Posteriors are those of the first run: pseudo-environments of two runs cannot be matched.
    """
    results = [run.result.inferred_environments for run in contender.runs]
    found = [environments for environments in results if environments]
    for i in range(len(found[0].effective) if found else 0):
        posterior = {split: layers[i] for split, layers in found[0].posterior.items()}
        number = len(posterior["train"])
        used = Score([one.effective[i] for one in found], is_share=False)
        caption = f"{used.text} of {number} pseudo-environments used"
        if alignments := [one.alignment[i] for one in found if one.alignment]:
            alignment = Score(alignments, is_share=False).text
            caption += f"; alignment with the true environments {alignment}"
        names = [SPLIT_NAMES.get(s, s.removeprefix(OOD).removeprefix(LEFT_OUT)) for s in posterior]
        shares = [[Score([row[k]], digits=0) for row in posterior.values()] for k in range(number)]
        columns = [Column(str(k + 1), "%", cells) for k, cells in enumerate(shares)]
        title = f"{contender.label}, {contender.backbone}, layer {i + 1}"
        yield PageTable(title, [Row(name) for name in names], columns, caption, head="nodes")


def machine_table(runs: Iterable[FinishedRun]) -> PageTable:
    """Number of runs on each device with each combination of versions."""
    machines = Counter(
        (run.result.device, ", ".join(map(" ".join, run.result.versions.items()))) for run in runs
    )
    columns = [
        Column("versions", "", [versions for _, versions in machines]),
        Column("runs", "", [quantity(count, 0) for count in machines.values()]),
    ]
    return PageTable("Machines", [Row(device) for device, _ in machines], columns, head="device")


def stored_table(table: Table) -> PageTable:
    """A table of a file; the cells of its first column are the heads of the rows."""
    rows = [Row(str(row[0])) for row in table.rows]
    columns = [
        Column(name, "", [row[i] for row in table.rows])
        for i, name in enumerate(table.columns[1:], start=1)
    ]
    return PageTable(table.title, rows, columns, " ".join(table.notes), table.columns[0])


def sort_key(cell: Cell) -> str | float:
    """A score, the number at the start of a text, else the whole text; empty for a gap."""
    if isinstance(cell, Score):
        return round(cell.shown_mean, 4) if cell.is_finite else ""
    number = NUMBER.match(cell)
    return number[0].replace("−", "-") if number else cell.replace(GAP, "")


def settings_text(settings: Iterable[tuple[str, Any]]) -> str:
    """Settings as a page shows them."""
    return ", ".join(
        f"{name} = {f'{value:g}' if isinstance(value, float) else str(value).lower()}"
        for name, value in settings
    )


def _rows(contenders: Sequence[Contender]) -> list[Row]:
    return [Row(c.label, c.backbone, is_control=bool(c.control)) for c in contenders]


def _score_caption(contenders: Sequence[Contender], metric: str) -> str:
    """What the scores are: metric, spread and rule of selection."""
    runs = [run for contender in contenders for run in contender.runs]
    over = {contender.spread_over for contender in contenders}
    spread = "one run each"
    if len(runs) > len(contenders):
        spread = "mean ± standard deviation" + (f" over {over.pop()}" if len(over) == 1 else "")
    rules = selection_rules(runs)
    return ", ".join([f"{metric} in %", spread, *([f"selected by {rules}"] if rules else [])])


def selection_rules(runs: Iterable[FinishedRun]) -> str:
    """The rules that selected epochs or models; models without epochs have none."""
    return " or ".join(sorted({run.result.selection for run in runs} - {"none"}))


def ranked_scores(
    contenders: Sequence[Contender], split: str, context: ReportContext
) -> list[Score]:
    """Scores on a split, with published ones; the best of the ranked contenders are marked."""
    scores = []
    for contender in contenders:
        paper = None if contender.is_searched else context.published(contender.config, split)
        scores.append(replace(contender.score(split), published=paper))
    ranked = [i for i, contender in enumerate(contenders) if contender.is_ranked]
    for i, score in zip(ranked, rank([scores[i] for i in ranked]), strict=True):
        scores[i] = score
    return scores


def _column(split: str, scores: Sequence[Score], is_shifted: bool) -> Column:
    if split == OOD_MEAN:
        return Column("OOD mean", "all shifted sets", scores)
    if split == "test_id":
        return Column("ID", "not shifted", scores) if is_shifted else Column("test", "", scores)
    if split.startswith(LEFT_OUT):
        return Column(split.removeprefix(LEFT_OUT), "not in the paper", scores)
    return Column(split.removeprefix(OOD), "shifted", scores)


def _columns(
    comparison: Comparison,
    contenders: Sequence[Contender],
    scores_on: Callable[[str], Sequence[Score]],
) -> list[Column]:
    """The scores on each set, the drop under shift, and the runs that the spread is over."""
    splits, is_shifted = comparison.splits, comparison.is_shifted
    columns = [_column(split, scores_on(split), is_shifted) for split in splits]
    if is_shifted and "test_id" in splits:
        drops = [c.score("test_id").mean - c.score(OOD_MEAN).mean for c in contenders]
        columns.append(Column("drop", "ID − OOD", [Score([value], digits=1) for value in drops]))
    scores = [c.score_over_runs(OOD_MEAN) for c in contenders]
    one_draw = [score if len(score.values) > 1 else NO_SCORE for score in scores]
    if any(s.values and len(c.draws) > 1 for c, s in zip(contenders, one_draw, strict=True)):
        columns.append(Column("OOD, one draw", "spread over runs", one_draw))
    counts = [quantity(len(c.runs), 0, c.spread_over) for c in contenders]
    return [*columns, Column("runs", "spread over", counts)]


def quantity(value: float, digits: int, note: str = "") -> Score:
    """A single number that is not a share, such as a time."""
    return Score([value], digits=digits, note=note, is_share=False)
