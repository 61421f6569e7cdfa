"""Tables of scores: Markdown and HTML for readers, CSV and JSON for programs."""

import csv
import io
import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Self

from canet.errors import CanetError
from canet.report.score import Score, rank, to_percent
from canet.util.files import MAX_JSON_BYTES, atomic_path, read_regular
from canet.util.rendering import GAP

Cell = str | Score
CSV_COLUMNS = "score", "mean", "std", "runs", "expected", "values", "published", "published std"
MARKS = {0: ("", ""), 1: ("**", "**"), 2: ("<u>", "</u>")}
"""Rank of a score → what Markdown puts before and after it."""


@dataclass(frozen=True)
class Table:
    """A table whose cells are texts and scores."""

    name: str  # file name without suffix
    title: str
    columns: Sequence[str]
    rows: Sequence[Sequence[Cell]]
    notes: Sequence[str] = ()  # paragraphs shown above the table

    @classmethod
    def read(cls, path: Path) -> Self:
        """Read the JSON file of a table that `write` wrote."""
        from pydantic import TypeAdapter

        content = read_regular(path, MAX_JSON_BYTES)
        try:
            return TypeAdapter(cls).validate_json(content)
        except ValueError as error:
            raise CanetError(f"'{path}' is not a table written by `canet reproduce`") from error

    def write(self, folder: Path) -> None:
        """Write FOLDER/NAME.md, FOLDER/NAME.csv and FOLDER/NAME.json."""
        contents = {"md": self.markdown(), "csv": self.csv(), "json": self.json()}
        for suffix, content in contents.items():
            with atomic_path(folder / f"{self.name}.{suffix}") as temporary:
                temporary.write_text(content, encoding="utf-8")

    def ranked(self) -> Self:
        """Mark the best and second best of each column, among the rows with the same first cell."""
        rows = [list(row) for row in self.rows]
        for column in self._columns()[1]:
            groups: dict[Cell, dict[int, Score]] = {}
            for i, row in enumerate(rows):
                if isinstance(cell := row[column], Score):
                    groups.setdefault(row[0], {})[i] = cell
            for scores in groups.values():
                for i, score in zip(scores, rank(list(scores.values())), strict=True):
                    rows[i][column] = score
        return replace(self, rows=rows)

    def texts(self, is_marked: bool = False) -> tuple[list[str], list[list[str]]]:
        """Heads and rows as text; `paper` follows each column that has published numbers.

        `is_marked`: the best score is bold, the second best underlined, as in Markdown.
        """
        heads, columns = list[str](), list[list[str]]()
        for i, head in enumerate(self.columns):
            cells = [row[i] for row in self.rows]
            heads.append(head)
            columns.append([_text(cell, is_marked) for cell in cells])
            if self._has_published(i):
                heads.append("paper")
                paper = [isinstance(cell, Score) and cell.published for cell in cells]
                columns.append([one.text if one else GAP for one in paper])
        return heads, [list(row) for row in zip(*columns, strict=True)]

    def markdown(self) -> str:
        """Title, notes and table."""
        heads, rows = self.texts(is_marked=True)
        lines = [heads, ["---"] * len(heads), *rows]
        notes = "".join(f"{note}\n\n" for note in self.notes)
        table = "".join(f"| {' | '.join(line)} |\n" for line in lines)
        return f"# {self.title}\n\n{notes}{table}"

    def csv(self) -> str:
        """One line per score, in percent, with its labels, values and published number.

        A table without scores is written row by row.
        """
        texts, scored = self._columns()
        file = io.StringIO()
        writer = csv.writer(file, lineterminator="\n")
        if not scored:
            writer.writerows([self.columns, *self.rows])
            return file.getvalue()
        writer.writerow([*(self.columns[i] for i in texts), *CSV_COLUMNS])
        for row in self.rows:
            labels = [row[i] for i in texts]
            for i in scored:
                if isinstance(cell := row[i], Score):
                    writer.writerow([*labels, self.columns[i], *_numbers(cell)])
        return file.getvalue()

    def json(self) -> str:
        """The whole table, for `read`; scores are between 0 and 1."""
        return json.dumps(asdict(self), ensure_ascii=False) + "\n"

    def parts(self, max_columns: int) -> list[Self]:
        """Split into tables of at most `max_columns` columns of numbers; each keeps the labels."""
        texts, scored = self._columns()
        groups: list[list[int]] = [[]]
        for i in scored:
            if sum(1 + self._has_published(j) for j in [*groups[-1], i]) > max_columns:
                groups.append([])
            groups[-1].append(i)
        parts = []
        for group in ([*texts, *group] for group in groups):
            rows = [[row[i] for i in group] for row in self.rows]
            parts.append(replace(self, columns=[self.columns[i] for i in group], rows=rows))
        return parts

    def _scores(self, column: int) -> list[Score]:
        return [cell for row in self.rows if isinstance(cell := row[column], Score)]

    def _columns(self) -> tuple[list[int], list[int]]:
        """Indices of the columns without scores, and of those with scores."""
        every = range(len(self.columns))
        return [i for i in every if not self._scores(i)], [i for i in every if self._scores(i)]

    def _has_published(self, column: int) -> bool:
        """Whether any row of a column has a published number."""
        return any(score.published for score in self._scores(column))


def _text(cell: Cell, is_marked: bool) -> str:
    if isinstance(cell, str):
        return cell
    return cell.text.join(MARKS[cell.rank]) if is_marked else cell.text


def _numbers(score: Score) -> list[str]:
    """The CSV cells of a score, in percent."""
    values = " ".join(_decimals(score.shown(value)) for value in score.values)
    mean = _decimals(score.shown_mean) if score.values else ""
    spread = _decimals(score.shown_std) if len(score.values) > 1 else ""
    paper = ["", ""]
    if score.published:
        _, *numbers = score.published
        known = [f"{round(to_percent(number), 4)}" for number in numbers if number is not None]
        paper = known or ["OOM", ""]
    return [mean, spread, str(len(score.values)), str(score.expected), values, *paper]


def _decimals(value: float) -> str:
    """Four decimals, without "-0.0000"."""
    return f"{round(value, 4) + 0.0:.4f}"
