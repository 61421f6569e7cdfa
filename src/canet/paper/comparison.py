"""Tables 1 and 2: every method on every task, with the published numbers."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace

from canet.paper.contenders import OURS, Contender, ContenderTable
from canet.paper.experiment import score
from canet.paper.finished import Finished
from canet.paper.french_labels import SHIFTED_FR, write_missing
from canet.paper.published import ARXIV_LEAD, COLUMNS, PAPER_BACKBONES, SPURIOUS, TABLES, published
from canet.paper.scope import Repeat, Subject, split_label
from canet.report.labels import SEARCHED_LABEL, backbone_label, method_label
from canet.report.score import GAP, Score
from canet.report.tables import Cell, Table
from canet.store import RunConfig


class PublishedComparison(ContenderTable):
    """Methods and backbones down, splits of the tasks across."""

    def repeats(self, subject: Subject, contender: Contender) -> list[Repeat]:
        """Draws of the data, and of a preset further runs on the first of them."""
        reruns = [] if contender.searched else self.scope.reruns(subject)
        return list(dict.fromkeys([*self.scope.repeats(subject), *reruns]))

    def splits(self, subject: Subject) -> list[str]:
        """Those of the published columns; before an extra test set the split it stands beside."""
        pairs = {SHIFTED_FR.name: [SHIFTED_FR.follows, SHIFTED_FR.name]}
        columns = COLUMNS.get(subject.task, SPURIOUS)
        return [split for column in columns for split in pairs.get(column, [column])]

    def tables(self, finished: Finished) -> list[Table]:
        main = self._table(finished, "", self.scope.repeats, self.subjects)
        drawn = [s for s in self.subjects if self.scope.repeats(s) != self.scope.reruns(s)]
        runs = [self._table(finished, "runs", self.scope.reruns, drawn)] if drawn else []
        return [main, self._lead(main), *runs]

    def _table(
        self,
        finished: Finished,
        part: str,
        repeats: Callable[[Subject], list[Repeat]],
        subjects: Sequence[Subject],
    ) -> Table:
        columns = [(subject, split) for subject in subjects for split in self.splits(subject)]
        rows: list[list[Cell]] = []
        for backbone in PAPER_BACKBONES:
            contenders = [e for e in self.contenders(backbone) if not (part and e.searched)]
            for contender in contenders:
                jobs = {s: self.jobs(s, contender, backbone, repeats(s)) for s in subjects}
                scores = [_score(finished, contender, jobs[s], split) for s, split in columns]
                rows.append([backbone_label(backbone), contender.label, *scores])
        heads = [f"{subject.label} {split_label(split)}" for subject, split in columns]
        about, notes = "every method", self.notes()
        if part:
            about = "the spread over initialisations alone, as in the paper"
            notes = [notes[0], "Runs on draw 0 of the data that differ in their seed alone."]
        notes.append("paper: mean ± standard deviation over five runs on one draw of the data.")
        heads, notes = ["backbone", "method", *heads], [*notes, *self.remarks()]
        return self.table(part, about, heads, rows, notes).ranked()

    def remarks(self) -> list[str]:
        return []

    def _lead(self, main: Table) -> Table:
        """Rank of CaNet with its preset in every column, and its distance to the best other."""
        rows = []
        presets = [row for row in main.rows if row[1] != SEARCHED_LABEL]
        for backbone in (backbone_label(b) for b in PAPER_BACKBONES):
            block = [row for row in presets if row[0] == backbone]
            for i, head in enumerate(main.columns[2:], start=2):
                cells = {str(row[1]): cell for row in block if isinstance(cell := row[i], Score)}
                ours = _standing({name: cell.mean for name, cell in cells.items()})
                numbers = {name: cell.published for name, cell in cells.items()}
                paper = _standing(
                    {n: p.mean for n, p in numbers.items() if p and p.mean is not None}
                )
                rows.append([backbone, head, *ours, *paper])
        what = ["rank of CaNet", "best other", "lead"]
        columns = ["backbone", "score", *what, *(f"{head} (paper)" for head in what)]
        note = "Lead: points by which CaNet is above the best other method, by the means of runs."
        return self.table("lead", "where CaNet stands", columns, rows, [note])


def _score(
    finished: Finished, contender: Contender, configs: Sequence[RunConfig], split: str
) -> Score:
    """Ours with the published number, which does not belong to searched settings."""
    paper = None if contender.searched else published(configs[0], split)
    return replace(score(finished, configs, split), published=paper)


def _standing(means: dict[str, float]) -> list[str]:
    """CaNet's rank among the methods that have a score, the best of the others, and its lead.

    Scores that read alike are tied: they share a rank, and the best others are all named.
    """
    valid = {name: value for name, value in means.items() if not math.isnan(value)}
    ours = valid.pop(method_label(OURS), None)
    if ours is None or not valid:
        return [GAP, GAP, GAP]
    shown = {name: round(value, 2) for name, value in valid.items()}
    best = max(shown.values())
    rank = f"{1 + sum(value > round(ours, 2) for value in shown.values())} of {len(shown) + 1}"
    tied = ", tied" if round(ours, 2) in shown.values() else ""
    names = ", ".join(name for name, value in shown.items() if value == best)
    return [rank + tied, names, f"{ours - max(valid.values()):+.2f}"]


class Table1(PublishedComparison):
    """Cora, Citeseer and Pubmed: OOD and ID accuracy."""

    name = "table1"
    title = "Table 1"
    tasks = TABLES["Table 1"]
    quick_tasks = ("cora",)


class Table2(PublishedComparison):
    """Arxiv and Twitch: three OOD sets and ID; FR scored twice."""

    name = "table2"
    title = "Table 2"
    tasks = TABLES["Table 2"]
    quick_tasks = ("twitch",)

    def score_again(self, finished: Finished, device: str) -> None:
        places = finished.places(c for c in self.configs() if c.task == SHIFTED_FR.task)
        write_missing(places, device, self.scope.data_root)

    def remarks(self) -> list[str]:
        lines = []
        if any(subject.task == SHIFTED_FR.task for subject in self.subjects):
            lines.append(
                "FR is scored twice: with every label at its user, which is the result, and with "
                "labels shifted by the two repeated rows of its file, for the comparison with the "
                "published column alone."
            )
        if any(subject[:2] == ("arxiv", "original") for subject in self.subjects):
            gcn, gat = (ARXIV_LEAD[backbone] for backbone in PAPER_BACKBONES)
            lines.append(
                f"The paper's text puts CaNet {gcn} % (GCN) and {gat} % (GAT) above the runner-up "
                "on arxiv 2018-2020."
            )
        return lines
