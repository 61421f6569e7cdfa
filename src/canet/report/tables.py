"""Tables of scores: Markdown and HTML for readers, CSV and JSON for programs."""

from __future__ import annotations

import csv
import io
import json
import re
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import NamedTuple

from canet.errors import CanetError
from canet.report.score import GAP, Score, rank
from canet.util.files import MAX_JSON_BYTES, atomic_path, read_regular

Cell = str | Score
MARKS = {0: ("", ""), 1: ("**", "**"), 2: ("<u>", "</u>")}
"""What Markdown has about a score of a rank."""


class Text(NamedTuple):
    """What a table shows in one place, and the rank of the score that it is."""

    text: str
    rank: int = 0

    @property
    def key(self) -> str:
        """What it is sorted by: the number it starts with, or its text; nothing for a gap."""
        number = re.match(r"[-+−]?\d+(\.\d+)?", self.text)
        return number[0].replace("−", "-") if number else self.text.replace(GAP, "")


@dataclass(frozen=True)
class Table:
    """Rows of texts and scores."""

    name: str  # of its files, without suffix
    title: str
    columns: Sequence[str]
    rows: Sequence[Sequence[Cell]]
    notes: Sequence[str] = ()  # what a reader must know, a paragraph each

    @classmethod
    def read(cls, path: Path) -> Table:
        """The table whose JSON `write` left at `path`."""
        from pydantic import TypeAdapter

        content = read_regular(path, MAX_JSON_BYTES)
        try:
            return TypeAdapter(cls).validate_json(content)
        except ValueError as error:
            raise CanetError(f"'{path}' is not a table that `canet reproduce` wrote") from error

    def write(self, folder: Path) -> None:
        """FOLDER/NAME.md, FOLDER/NAME.csv and FOLDER/NAME.json."""
        contents = {"md": self.markdown(), "csv": self.csv(), "json": self.json()}
        for suffix, content in contents.items():
            with atomic_path(folder / f"{self.name}.{suffix}") as temporary:
                temporary.write_text(content, encoding="utf-8")

    def ranked(self) -> Table:
        """With the best and second score marked in each column among rows with equal first text."""
        rows = [list(row) for row in self.rows]
        for column in self._scored():
            groups: dict[Cell, dict[int, Score]] = {}
            for i, row in enumerate(rows):
                if isinstance(cell := row[column], Score):
                    groups.setdefault(row[0], {})[i] = cell
            for scores in groups.values():
                for i, score in zip(scores, rank(list(scores.values())), strict=True):
                    rows[i][column] = score
        return replace(self, rows=rows)

    @cached_property
    def heads(self) -> list[str]:
        """Heads as they are shown: `paper` behind the columns that have published numbers."""
        pairs = ([h, "paper"] if self._published(i) else [h] for i, h in enumerate(self.columns))
        return [head for pair in pairs for head in pair]

    @cached_property
    def shown(self) -> list[list[Text]]:
        """The rows under these heads."""
        paired = [self._published(i) for i in range(len(self.columns))]
        rows: list[list[Text]] = []
        for row in self.rows:
            rows.append([])
            for cell, has_paper in zip(row, paired, strict=True):
                score = Score([]) if isinstance(cell, str) else cell
                rows[-1].append(Text(cell if isinstance(cell, str) else cell.text, score.rank))
                if has_paper:
                    rows[-1].append(Text(score.published.text if score.published else GAP))
        return rows

    def texts(self) -> tuple[list[str], list[list[str]]]:
        """Heads and rows as plain text."""
        return self.heads, [[cell.text for cell in row] for row in self.shown]

    def markdown(self) -> str:
        """A page with title, notes and table; the best score is bold, the second underlined."""
        rows = [[cell.text.join(MARKS[cell.rank]) for cell in row] for row in self.shown]
        lines = [self.heads, ["---"] * len(self.heads), *rows]
        notes = "".join(f"{note}\n\n" for note in self.notes)
        table = "".join(f"| {' | '.join(line)} |\n" for line in lines)
        return f"# {self.title}\n\n{notes}{table}"

    def csv(self) -> str:
        """One line per score with its texts, values and published number; a text table as it is."""
        scored = self._scored()
        texts = [i for i in range(len(self.columns)) if i not in scored]
        file = io.StringIO()
        writer = csv.writer(file, lineterminator="\n")
        if not scored:
            writer.writerows([self.columns, *self.rows])
            return file.getvalue()
        own = ["score", "mean", "std", "runs", "expected", "values", "published", "published std"]
        writer.writerow([*(self.columns[i] for i in texts), *own])
        for row in self.rows:
            labels = [row[i] for i in texts]
            for i in scored:
                if isinstance(cell := row[i], Score):
                    writer.writerow([*labels, self.columns[i], *_numbers(cell)])
        return file.getvalue()

    def json(self) -> str:
        """All there is, for `read`."""
        return json.dumps(asdict(self), ensure_ascii=False) + "\n"

    def is_words(self, column: int) -> bool:
        """Whether a column that is shown holds no number, so that it is flush left."""
        return not any(row[column].text[-1:].isdigit() for row in self.shown)

    def parts(self, widest: int) -> list[Table]:
        """The table cut into ones with at most `widest` columns of numbers, each with its texts."""
        scored = self._scored()
        texts = [i for i in range(len(self.columns)) if i not in scored]
        groups: list[list[int]] = [[]]
        for i in scored:
            if sum(1 + self._published(j) for j in [*groups[-1], i]) > widest:
                groups.append([])
            groups[-1].append(i)
        parts = []
        for group in ([*texts, *group] for group in groups):
            rows = [[row[i] for i in group] for row in self.rows]
            parts.append(replace(self, columns=[self.columns[i] for i in group], rows=rows))
        return parts

    def _scores(self, column: int) -> list[Score]:
        return [cell for row in self.rows if isinstance(cell := row[column], Score)]

    def _scored(self) -> list[int]:
        """Columns that hold scores."""
        return [i for i in range(len(self.columns)) if self._scores(i)]

    def _published(self, column: int) -> bool:
        """Whether a column has a published number in some row."""
        return any(score.published for score in self._scores(column))


def _numbers(score: Score) -> list[str]:
    """The CSV cells of a score."""
    values = " ".join(f"{value:.4f}" for value in score.values)
    mean = f"{score.mean:.4f}" if score.values else ""
    spread = f"{score.std:.4f}" if len(score.values) > 1 else ""
    paper = ["", ""]
    if number := score.published:
        paper = ["OOM", ""] if number.mean is None else [f"{number.mean}", f"{number.std}"]
    return [mean, spread, str(len(score.values)), str(score.expected), values, *paper]
