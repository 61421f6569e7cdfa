"""Tables of scores, as Markdown for readers and CSV for programs, beside the published ones."""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import mean

from canet.files import atomic_path
from canet.methods import BACKBONES, METHODS
from canet.paper.published import Published
from canet.training.summary import deviation

SEARCHED_LABEL = "CaNet, searched"
SEARCHED_NOTE = (
    "CaNet has its published settings; CaNet, searched those of a search like its competitors'."
)
GAP = "–"


def method_label(name: str) -> str:
    """A method as tables call it; one that is not in the package has its own name."""
    return METHODS[name].label if name in METHODS else name


def backbone_label(name: str) -> str:
    """A backbone as tables call it, likewise."""
    return BACKBONES[name].label if name in BACKBONES else name


@dataclass(frozen=True)
class Score:
    """A number with its spread.

    Args:
        values: One per run; none where every run is missing.
        expected: How many runs were asked for.
        published: The paper's number to set beside it.
        digits: Digits behind the point.
    """

    values: Sequence[float]
    expected: int
    published: Published | None = None
    digits: int = 2

    @property
    def mean(self) -> float:
        return mean(self.values) if self.values else math.nan

    @property
    def std(self) -> float:
        """Standard deviation of a sample, 0 for one run."""
        return deviation(self.values)

    @property
    def text(self) -> str:
        """`95.95 ± 2.59`, with the number of runs where some are missing."""
        if math.isnan(self.mean):
            return GAP
        spread = f" ± {self.std:.{self.digits}f}" if len(self.values) > 1 else ""
        part = f" ({len(self.values)} of {self.expected})"
        missing = part if len(self.values) < self.expected else ""
        return f"{self.mean:.{self.digits}f}{spread}{missing}"

    @property
    def published_text(self) -> str:
        if self.published is None:
            return GAP
        if self.published.mean is None:
            return "OOM"
        return f"{self.published.mean:.2f} ± {self.published.std:.2f}"


@dataclass(frozen=True)
class Table:
    """Rows of texts and scores.

    Args:
        name: Of its files, without suffix.
        title: What the scores are.
        columns: Head of each column.
        rows: A text or a score for each column.
        notes: What a reader must know, a paragraph each.
        ranked: Whether to mark the best and second in each column among rows with equal first text.
    """

    name: str
    title: str
    columns: Sequence[str]
    rows: Sequence[Sequence[str | Score]]
    notes: Sequence[str] = ()
    ranked: bool = False

    def texts(self) -> tuple[list[str], list[list[str]]]:
        """Heads and rows as plain text, with a column `paper` behind those that have numbers."""
        return self._heads(), [self._expanded(row, [""] * len(row)) for row in self.rows]

    def markdown(self) -> str:
        """A page with title, notes and table; the best score is bold, the second underlined."""
        rows = [self._expanded(row, self._marks(row)) for row in self.rows]
        heads = self._heads()
        lines = [heads, ["---"] * len(heads), *rows]
        notes = "".join(f"{note}\n\n" for note in self.notes)
        table = "".join(f"| {' | '.join(line)} |\n" for line in lines)
        return f"# {self.title}\n\n{notes}{table}"

    def csv(self) -> str:
        """One line per score with its texts, values and published number; a text table as it is."""
        texts = [i for i in range(len(self.columns)) if i not in self._scored()]
        file = io.StringIO()
        writer = csv.writer(file, lineterminator="\n")
        if not self._scored():
            writer.writerow(self.columns)
            writer.writerows(self.rows)
            return file.getvalue()
        own = ["score", "mean", "std", "runs", "expected", "values"]
        writer.writerow([*(self.columns[i] for i in texts), *own, "published", "published std"])
        for row in self.rows:
            labels = [row[i] for i in texts]
            scores = [(i, row[i]) for i in self._scored()]
            writer.writerows(
                [*labels, self.columns[i], *_numbers(cell)]
                for i, cell in scores
                if isinstance(cell, Score)
            )
        return file.getvalue()

    def write(self, folder: Path) -> None:
        """FOLDER/NAME.md and FOLDER/NAME.csv."""
        for suffix, content in (("md", self.markdown()), ("csv", self.csv())):
            with atomic_path(folder / f"{self.name}.{suffix}") as temporary:
                temporary.write_text(content, encoding="utf-8")

    def parts(self, widest: int) -> list[Table]:
        """The table cut into ones with at most `widest` columns of numbers, each with its texts."""
        scored, beside = self._scored(), self._beside()
        texts = [i for i in range(len(self.columns)) if i not in scored]
        groups: list[list[int]] = [[]]
        for i in scored:
            width = sum(1 + (j in beside) for j in [*groups[-1], i])
            if width > widest:
                groups.append([])
            groups[-1].append(i)
        return [self._only([*texts, *group]) for group in groups]

    def _only(self, columns: Sequence[int]) -> Table:
        rows = [[row[i] for i in columns] for row in self.rows]
        return replace(self, columns=[self.columns[i] for i in columns], rows=rows)

    def _scored(self) -> list[int]:
        """Columns that hold scores."""
        return [
            i for i in range(len(self.columns)) if any(isinstance(r[i], Score) for r in self.rows)
        ]

    def _beside(self) -> set[int]:
        """Columns with a published number in some row."""
        return {i for i in self._scored() if any(_published(row[i]) for row in self.rows)}

    def _heads(self) -> list[str]:
        beside = self._beside()
        pairs = ([head, "paper"] if i in beside else [head] for i, head in enumerate(self.columns))
        return [head for pair in pairs for head in pair]

    def _expanded(self, row: Sequence[str | Score], marks: Sequence[str]) -> list[str]:
        beside, cells = self._beside(), []
        for i, (cell, mark) in enumerate(zip(row, marks, strict=True)):
            text = cell if isinstance(cell, str) else cell.text
            cells.append(f"{mark}{text}{mark.replace('<', '</')}")
            if i in beside:
                cells.append(cell.published_text if isinstance(cell, Score) else GAP)
        return cells

    def _marks(self, row: Sequence[str | Score]) -> list[str]:
        return [self._mark(row, i) for i in range(len(row))]

    def _mark(self, row: Sequence[str | Score], column: int) -> str:
        """`**` for the best of its group in a column, `<u>` for the second."""
        cell = row[column]
        if not self.ranked or not isinstance(cell, Score) or math.isnan(cell.mean):
            return ""
        rivals = [r[column] for r in self.rows if r[0] == row[0]]
        better = sum(isinstance(r, Score) and r.mean > cell.mean for r in rivals)
        return {0: "**", 1: "<u>"}.get(better, "") if len(rivals) > 1 else ""


def _published(cell: str | Score) -> bool:
    return isinstance(cell, Score) and cell.published is not None


def _numbers(score: Score) -> list[str]:
    """The CSV cells of a score."""
    published = score.published
    values = " ".join(f"{value:.4f}" for value in score.values)
    ours = [f"{score.mean:.4f}", f"{score.std:.4f}"] if score.values else ["", ""]
    if published is None:
        paper = ["", ""]
    else:
        paper = ["OOM", ""] if published.mean is None else [f"{published.mean}", f"{published.std}"]
    return [*ours, str(len(score.values)), str(score.expected), values, *paper]
