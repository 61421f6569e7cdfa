"""The overview: scores of all methods under shift, one row for each task and backbone."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

from canet.report.comparison import Ranking, ReportContext
from canet.report.page_tables import NO_SCORE, Column, PageTable, Row, ranked_scores
from canet.report.score import Score
from canet.report.sections import Section, legend
from canet.store.summary import OOD_MEAN
from canet.util.rendering import number


def make_overview(
    sections: Sequence[Section], context: ReportContext
) -> tuple[list[Ranking], PageTable]:
    """The rankings with at least two methods, and a table with a row for each of them."""
    rankings, rows, leads = [], [], []
    scores: list[dict[str, Score]] = []  # by the labels of the contenders
    for section in sections:
        for backbone in section.comparison.backbones:
            ranking = section.comparison.ranking(backbone)
            if ranking is None or ranking.runner_up is None:
                continue
            contenders = section.comparison.of(backbone)
            cells = ranked_scores(contenders, OOD_MEAN, context)
            scores.append({c.label: cell for c, cell in zip(contenders, cells, strict=True)})
            title = section.comparison.title_of(backbone)
            rows.append(Row(section.title, title, target=section.anchor))
            best = " and ".join(ranking.best_labels)
            if len(ranking.best) == 1:
                lead = number(ranking.points, 2 if ranking.points < 0.1 else 1)
                best += f", {lead} points above {ranking.runner_up.label}"
            leads.append(f"{best} ({ranking.lead})")
            rankings.append(ranking)
    everyone = [c for section in sections for c in section.comparison.contenders]
    columns = [Column("best", "", leads)]
    columns += [
        Column(c.label, "", [row.get(c.label, NO_SCORE) for row in scores])
        for c in legend(everyone)
        if any(c.label in row for row in scores)
    ]
    return rankings, PageTable("Scores under shift", rows, columns, head="task")


def count_best(rankings: Iterable[Ranking]) -> list[tuple[int, list[str]]]:
    """Number of first ranks → labels with that number, the highest number first."""
    counts = Counter(ranking.ranked[0].label for ranking in rankings)
    names = sorted(counts, key=str.casefold)
    times = sorted(set(counts.values()), reverse=True)
    return [(number, [name for name in names if counts[name] == number]) for number in times]
