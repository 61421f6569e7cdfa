"""Tables 1 and 2: all methods on all tasks, with the published scores."""

import math
from collections.abc import Callable, Sequence
from dataclasses import replace

from canet.paper.experiment import score
from canet.paper.finished_runs import FinishedRuns
from canet.paper.method_table import CANET, MethodRow, MethodTable
from canet.paper.published import ARXIV_LEAD, COLUMNS, PAPER_BACKBONES, SPURIOUS, TABLES, published
from canet.paper.scope import Repeat, TaskSpec, split_label
from canet.report.labels import SEARCHED_LABEL, backbone_label, method_label
from canet.report.score import Score, to_percent
from canet.report.tables import Cell, Table
from canet.store import RunConfig
from canet.util.rendering import GAP


class PublishedTable(MethodTable):
    """A table with a row for each method and backbone and a column for each split of each task."""

    def repeats(self, spec: TaskSpec, row: MethodRow) -> list[Repeat]:
        """One run per draw of the data and, with default settings, more runs on the first draw."""
        more = [] if row.is_searched else self.scope.repeats_on_first_draw(spec)
        return list(dict.fromkeys([*self.scope.repeats(spec), *more]))

    def tables(self, finished: FinishedRuns) -> list[Table]:
        main = self._table(finished, "", self.scope.repeats, self.specs)
        first_draw = self.scope.repeats_on_first_draw
        several_draws = [s for s in self.specs if self.scope.repeats(s) != first_draw(s)]
        if not several_draws:
            return [main, self._lead(main)]
        return [main, self._lead(main), self._table(finished, "runs", first_draw, several_draws)]

    def _table(
        self,
        finished: FinishedRuns,
        part: str,
        repeats: Callable[[TaskSpec], list[Repeat]],
        specs: Sequence[TaskSpec],
    ) -> Table:
        columns = [(spec, split) for spec in specs for split in COLUMNS.get(spec.task, SPURIOUS)]
        rows: list[list[Cell]] = []
        for backbone in PAPER_BACKBONES:
            methods = [e for e in self.method_rows(backbone) if not (part and e.is_searched)]
            for row in methods:
                jobs = {s: self.jobs(s, row, backbone, repeats(s)) for s in specs}
                scores = [_score(finished, row, jobs[s], split) for s, split in columns]
                rows.append([backbone_label(backbone), row.label, *scores])
        heads = [f"{spec.label} {split_label(split)}" for spec, split in columns]
        subtitle, notes = "all methods", self.notes()
        if part:
            subtitle = "spread over initialisations only, as in the paper"
            notes = [notes[0], "All runs use data seed 0 and differ only in their seed."]
        notes.append("paper: mean ± standard deviation over five runs on one draw of the data.")
        heads, notes = ["backbone", "method", *heads], [*notes, *self.remarks()]
        return self.table(part, subtitle, heads, rows, notes).ranked()

    def remarks(self) -> list[str]:
        return []

    def _lead(self, main: Table) -> Table:
        """Rank of CaNet with default settings in each column, and its lead over the best other."""
        rows = []
        unsearched = [row for row in main.rows if row[1] != SEARCHED_LABEL]
        for backbone in (backbone_label(b) for b in PAPER_BACKBONES):
            block = [row for row in unsearched if row[0] == backbone]
            for i, head in enumerate(main.columns[2:], start=2):
                cells = {str(row[1]): cell for row in block if isinstance(cell := row[i], Score)}
                measured = {name: cell.shown_mean for name, cell in cells.items()}
                paper = {
                    name: to_percent(cell.published.mean)
                    for name, cell in cells.items()
                    if cell.published and cell.published.mean is not None
                }
                rows.append([backbone, head, *_lead_cells(measured), *_lead_cells(paper)])
        names = ["rank of CaNet", "best other", "lead"]
        columns = ["backbone", "score", *names, *(f"{name} (paper)" for name in names)]
        note = "Lead: mean score of CaNet minus that of the best other method, in points."
        return self.table("lead", "rank of CaNet", columns, rows, [note])


def _score(
    finished: FinishedRuns, row: MethodRow, configs: Sequence[RunConfig], split: str
) -> Score:
    """The score with the published one; searched settings have none."""
    paper = None if row.is_searched else published(configs[0], split)
    return replace(score(finished, configs, split), published=paper)


def _lead_cells(means: dict[str, float]) -> list[str]:
    """Rank of CaNet, the best other methods, and the lead of CaNet in percentage points.

    `means` has the score of each method in percent. Scores with the same text are tied: they share
    a rank.
    """
    valid = {name: value for name, value in means.items() if not math.isnan(value)}
    canet = valid.pop(method_label(CANET), None)
    if canet is None or not valid:
        return [GAP, GAP, GAP]
    shown = {name: round(value, 2) for name, value in valid.items()}
    best = max(shown.values())
    rank = f"{1 + sum(value > round(canet, 2) for value in shown.values())} of {len(shown) + 1}"
    tied = ", tied" if round(canet, 2) in shown.values() else ""
    names = ", ".join(name for name, value in shown.items() if value == best)
    return [rank + tied, names, f"{canet - max(valid.values()):+.2f}"]


class Table1(PublishedTable):
    """Cora, Citeseer and Pubmed: OOD and ID accuracy."""

    name = "table1"
    title = "Table 1"
    tasks = TABLES["Table 1"]
    quick_tasks = ("cora",)


class Table2(PublishedTable):
    """Arxiv and Twitch: three OOD sets and ID."""

    name = "table2"
    title = "Table 2"
    tasks = TABLES["Table 2"]
    quick_tasks = ("twitch",)

    def remarks(self) -> list[str]:
        lines = []
        if any(spec.task == "twitch" for spec in self.specs):
            lines.append(
                "FR has no published number: the published labels were most likely shifted by the "
                "two repeated rows of its file."
            )
        if any(spec[:2] == ("arxiv", "original") for spec in self.specs):
            gcn, gat = (to_percent(ARXIV_LEAD[backbone]) for backbone in PAPER_BACKBONES)
            lines.append(
                f"According to the text of the paper, CaNet is {gcn:.4g} % (GCN) and {gat:.4g} % "
                "(GAT) better than the second best method on arxiv 2018-2020."
            )
        return lines
