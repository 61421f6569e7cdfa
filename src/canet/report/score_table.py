"""Tables of scores as a page shows them: sortable, the paper's numbers below ours, best marked."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

from canet.paper.french_labels import SHIFTED, SPLIT
from canet.paper.published import published
from canet.report.comparison import Contestant, Spread
from canet.report.results import OOD_MEAN
from canet.report.tables import GAP, SEARCHED_LABEL, method_label
from canet.training.summary import LEFT_OUT, OOD


class Column(NamedTuple):
    """A sortable column; `about` is shown below its name."""

    name: str
    about: str = ""
    words: bool = False
    sorted: bool = False


class Cell(NamedTuple):
    """What a cell shows, beside and below it too, what it is sorted by, and whether it is best."""

    text: str
    key: float | str
    beside: str = ""
    below: str = ""
    best: bool = False


class Row(NamedTuple):
    """A line of a table: a contestant, its name and what is special about it, then cells."""

    contestant: Contestant
    name: str
    about: str
    cells: list[Cell]


class PageTable(NamedTuple):
    """A table with what it is of and how its numbers were made."""

    title: str
    caption: str
    columns: list[Column]
    rows: list[Row]


def score_table(
    title: str,
    metric: str,
    splits: Sequence[str],
    contestants: Sequence[tuple[Contestant, str]],
    ranked: bool = True,
) -> PageTable:
    """A row for each contestant with a word about it, the splits across.

    `ranked` tables mark the best of each column and have the published numbers below ours.
    """
    everyone = [contestant for contestant, _ in contestants]
    rules = sorted({trained.run.result["selection"] for c in everyone for trained in c.trained})
    bases = {contestant.basis for contestant in everyone}
    over = f" over {bases.pop()}" if len(bases) == 1 else ""
    caption = f"{metric} in %, mean ± standard deviation{over}, epoch by {' or '.join(rules)}"
    twice = any(len(c.draws) > 1 and c.spread_over_runs(OOD_MEAN).size > 1 for c in everyone)
    columns = [Column("method", words=True), *map(_column, splits), Column("lost", "ID − OOD")]
    columns[1] = columns[1]._replace(sorted=ranked)
    columns += [Column("one draw", "OOD over its runs")] if twice else []
    columns += [Column("runs", "spread over")]
    rivals = [c for c in everyone if not c.is_ceiling] if ranked else []
    contests = splits if len(rivals) > 1 else []
    best = {split: max(_shown(c, split) for c in rivals) for split in contests}
    rows = []
    for contestant, about in contestants:
        cells = [_cell(contestant, split, best.get(split)) for split in splits]
        if not ranked:
            cells = [cell._replace(below="") for cell in cells]
        lost = contestant.spread("test_id").mean - contestant.spread(OOD_MEAN).mean
        cells.append(Cell(number(lost, 1), sort_key(lost)))
        if twice:
            again = contestant.spread_over_runs(OOD_MEAN)
            cells.append(_spread_cell(again) if again.size > 1 else Cell(GAP, ""))
        num_runs = len(contestant.trained)
        cells.append(Cell(str(num_runs), num_runs, below=contestant.basis))
        rows.append(Row(contestant, label_of(contestant), about, cells))
    return PageTable(title, caption, columns, rows)


def _column(split: str) -> Column:
    if split == OOD_MEAN:
        return Column("OOD mean", "all shifted sets")
    if split == "test_id":
        return Column("ID", "not shifted")
    if split.startswith(LEFT_OUT):
        return Column(split.removeprefix(LEFT_OUT), "not in the paper")
    return Column(split.removeprefix(OOD), "no result" if split == SHIFTED else "shifted")


def _cell(contestant: Contestant, split: str, best: float | None) -> Cell:
    found = contestant.spread(split)
    competes = not contestant.is_ceiling and split != SHIFTED and math.isfinite(found.mean)
    marked = competes and _shown(contestant, split) == best
    return _spread_cell(found)._replace(below=_paper_text(contestant, split), best=marked)


def _paper_text(contestant: Contestant, split: str) -> str:
    """The paper's number; that of FR belongs to the score with shifted labels."""
    paper = published(contestant.config, SPLIT if split == SHIFTED else split)
    if paper is None or split == SPLIT or contestant.searched:
        return ""
    return "paper OOM" if paper.mean is None else f"paper {paper.mean:.2f} ± {paper.std:.2f}"


def _spread_cell(found: Spread) -> Cell:
    std = f"± {found.std:.2f}" if found.size > 1 and math.isfinite(found.std) else ""
    return Cell(number(found.mean, 2), sort_key(found.mean), std)


def _shown(contestant: Contestant, split: str) -> float:
    """The score with the digits that a table shows, so that equals are marked alike."""
    mean = contestant.spread(split).mean
    return round(mean, 2) if math.isfinite(mean) else -math.inf


def sort_key(value: float) -> float | str:
    """What a number is sorted by; nothing if it is none."""
    return round(value, 4) if math.isfinite(value) else ""


def label_of(contestant: Contestant) -> str:
    """The method as tables name it."""
    if contestant.searched:
        return SEARCHED_LABEL
    name = method_label(contestant.config.method)
    return f"{name} ceiling" if contestant.is_ceiling else name


def number(value: float, digits: int) -> str:
    """With a true minus sign, but none before nought; a dash for what is not a number."""
    if not math.isfinite(value):
        return GAP
    return f"{round(value, digits) + 0.0:.{digits}f}".replace("-", "−")


def setting_text(value: Any) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value).lower()
