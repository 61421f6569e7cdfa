"""Refuse columns that cannot become features, each in one line with the mend.

`refuse` is what to do with that line: raise an `InputError`, or keep it for a person to read.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from difflib import get_close_matches
from pathlib import Path
from typing import NoReturn

from canet.data.graph_files.columns import Encoding
from canet.data.graph_files.survey import FEW_CATEGORIES, MOST_CATEGORIES, ColumnSurvey, Survey
from canet.errors import InputError, listed

Refuse = Callable[[str], object]
FROM = {"number": {"number"}, "date": {"date"}, "indicator": {"number", "boolean"}}
"""What a column of a later graph must hold to be read as the kind; a category may be anything."""
HELD = {"number": "numbers", "boolean": "true and false", "date": "dates", "indicator": "0 and 1"}


def raise_error(problem: str) -> NoReturn:
    raise InputError(problem)


def check_learnable(found: Survey, path: Path, refuse: Refuse) -> None:
    """Refuse columns that cannot become features."""
    for column in found.columns.values():
        if column.unreadable:
            refuse(
                f"'{path}' holds {column.unreadable} in column '{column.name}': a cell must be one "
                "number or text; make a column of each entry, or leave it out"
            )
        elif column.kind == "text" and _is_name(column, found.kept):
            many = "more than 10,000" if column.words is None else f"{len(column.words):,}"
            refuse(
                f"'{path}' has text with {many} different values in column '{column.name}'"
                f"{_stray_hint(column)}: mend it, leave it out, or name it as id"
            )
        elif column.kind != "text" and not math.isfinite(column.moments.std):
            refuse(
                f"'{path}' has numbers up to {column.moments.maximum:g} in column '{column.name}', "
                "too large to standardise: take logarithms, or leave it out"
            )
    numeric = (c for c in found.columns.values() if c.kind not in ("text", "empty", c.unreadable))
    check_complete(numeric, path, refuse)
    if not any(column.varies for column in found.columns.values()):
        refuse(
            f"'{path}' has no feature that differs between nodes: add one, for instance each "
            "node's degree"
        )


def check_fits(encoding: Encoding, found: Survey, path: Path, refuse: Refuse) -> None:
    """Refuse columns of a later graph that hold something else than those of the encoding."""
    numeric = []
    for column in encoding.columns:
        now = found.columns.get(column.name)
        if now is None or (now.kind == "empty" and column.kind == "category"):
            continue
        if now.unreadable:
            refuse(f"'{path}' holds {now.unreadable} in column '{now.name}': write text or numbers")
        elif column.kind in FROM:
            numeric.append(now)
            if now.kind not in {"empty", *FROM[column.kind]}:
                refuse(
                    f"'{path}' has {HELD.get(now.kind, 'text')} in column '{now.name}'"
                    f"{_stray_hint(now)}, which held {HELD[column.kind]} in training: convert it"
                )
    check_complete(numeric, path, refuse)


def check_complete(columns: Iterable[ColumnSurvey], path: Path, refuse: Refuse) -> None:
    """Refuse columns of numbers with empty or infinite cells: which, and how many."""
    chosen = list(columns)
    for word, counts in (
        ("empty", {c.name: c.empty for c in chosen if c.empty}),
        ("infinite", {c.name: c.infinite for c in chosen if c.infinite}),
    ):
        if counts:
            places = [f"'{name}' ({count:,})" for name, count in counts.items()]
            refuse(
                f"'{path}' has {word} cells in columns of numbers: {listed(places)}; fill "
                "them, for instance with the column's mean, or leave the columns out"
            )


def check_present(
    wanted: Iterable[str], given: Iterable[str], path: Path, kind: str = "column"
) -> None:
    """Refuse a table that lacks a wanted column: which, and the nearest that is there."""
    names = list(given)
    missing = [name for name in wanted if name not in names]
    if not missing:
        return
    nearest = get_close_matches(missing[0], names, n=1)
    hint = f"did you mean '{nearest[0]}'? " if nearest else ""
    more = f" (and {len(missing) - 1:,} more)" if len(missing) > 1 else ""
    raise InputError(f"'{path}' has no {kind} '{missing[0]}'{more}: {hint}it has {listed(names)}")


def _is_name(column: ColumnSurvey, nodes: int) -> bool:
    """Whether text has too many different values to be categories."""
    count = column.num_categories
    return count > MOST_CATEGORIES or count > max(FEW_CATEGORIES, nodes / 2)


def _stray_hint(column: ColumnSurvey) -> str:
    if column.stray is None:
        return ""
    return f" ({column.stray[0][:40]!r} in row {column.stray[1]:,} is no number)"
