"""One self-contained HTML page from run folders: no network, light and dark, wide and narrow."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from canet.errors import CanetError
from canet.files import atomic_path
from canet.methods import METHODS
from canet.report import embedded
from canet.report.comparison import Comparison, Contestant, Verdict, compare
from canet.report.context import NO_CONTEXT, ReportContext
from canet.report.curves import Histories, nice_ticks
from canet.report.labels import backbone_label
from canet.report.results import OOD_MEAN, read_results
from canet.report.score import number
from canet.report.section_tables import setting_text
from canet.report.sections import Section, legend, make_section
from canet.training import runs_at
from canet.training.summary import Scored


class Standing(NamedTuple):
    """A line of the overview: where each method stands under shift on one task and backbone."""

    section: Section
    verdict: Verdict
    dots: list[tuple[float, Contestant]]
    paper: str


class Axis(NamedTuple):
    """The overview's axis of scores."""

    ticks: list[float]

    def place(self, score: float) -> float:
        """Where a score lies, in percent of the width."""
        first, last = self.ticks[0], self.ticks[-1]
        return round(100 * (score - first) / (last - first), 2)


class Machine(NamedTuple):
    """Where runs were made: device and versions."""

    device: str
    versions: str


def write_report(out: Path, target: Path, context: ReportContext = NO_CONTEXT) -> None:
    """Write a page about all finished runs at or below `out`, or in it, to the file `target`.

    Tables and figures of a reproduction, in `out/tables` and `out/figures`, become part of it.
    `out` may be an archive of runs. `context` is what the page is told besides.
    """
    with runs_at(out) as root:
        results = read_results(root, context.extra_sets)
        page = _render(root, compare(results, context), context)
    try:
        with atomic_path(target) as temporary:
            temporary.write_text(page, encoding="utf-8")
    except OSError as error:
        raise CanetError(
            f"cannot write '{target}' ({error.strerror}): choose another file with --out"
        ) from None


def _render(out: Path, comparisons: list[Comparison], context: ReportContext) -> str:
    from jinja2 import Environment, PackageLoader, StrictUndefined

    environment = Environment(
        loader=PackageLoader("canet.report", "templates"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {"number": number, "value": setting_text, "backbone": backbone_label}
    histories = Histories()
    sections = [make_section(comparison, histories, context) for comparison in comparisons]
    standings = list(_standings(sections, comparisons, context))
    contestants = [c for comparison in comparisons for c in comparison.contestants]
    variants = [c for comparison in comparisons for c in comparison.variants]
    runs = [run for c in contestants + variants for run in c.runs]
    shown = {c.config.method for c in contestants + variants}
    machines = Counter(map(_machine, runs))
    return environment.get_template("report.html.jinja").render(
        headline=_headline([standing.verdict for standing in standings]),
        sections=sections,
        standings=standings,
        axis=_axis(standings),
        legend=legend(contestants),
        methods={name: METHODS[name] for name in METHODS if name in shown},
        num_runs=len(runs),
        num_configurations=len(contestants) + len(variants),
        rules=sorted({run.result["selection"] for run in runs}),
        machines=machines.most_common(),
        hours=sum(run.result["epochs"] * run.result["seconds_per_epoch"] for run in runs) / 3600,
        failures=embedded.failures(out),
        figures=embedded.figures(out / "figures"),
        tables=embedded.tables(out / "tables"),
    )


def _standings(
    sections: list[Section], comparisons: list[Comparison], context: ReportContext
) -> Iterator[Standing]:
    for section, comparison in zip(sections, comparisons, strict=True):
        for backbone in comparison.backbones:
            if verdict := comparison.verdict(backbone):
                dots = [(c.score(OOD_MEAN).mean, c) for c in comparison.of(backbone)]
                shown = [(x, c) for x, c in dots if math.isfinite(x)]
                yield Standing(section, verdict, shown, _paper_verdict(verdict.ranked, context))


def _paper_verdict(contestants: Sequence[Contestant], context: ReportContext) -> str:
    """Who wins by the published numbers, among those that were run here."""
    paper = [(context.published(c.config, OOD_MEAN), c) for c in contestants]
    scores = [(cell.mean, c) for cell, c in paper if cell and cell.mean is not None]
    if len(scores) < 2:
        return ""
    (first, winner), (second, runner_up) = sorted(scores, key=lambda pair: -pair[0])[:2]
    return f"paper: {winner.label}, {first - second:.1f} above {runner_up.label}"


def _axis(standings: Sequence[Standing]) -> Axis:
    scores = [score for standing in standings for score, _ in standing.dots]
    return Axis(nice_ticks(min(scores), max(scores), most=8) if scores else [])


def _headline(verdicts: Sequence[Verdict]) -> str:
    """The page's one sentence: who wins most often under shift, and how often clearly."""
    contests = [verdict for verdict in verdicts if verdict.runner_up]
    if not contests:
        return "Scores under shift"
    names = [verdict.winner.label for verdict in contests]
    name, wins = Counter(names).most_common(1)[0]
    clear = sum(v.is_clear for v in contests if v.winner.label == name)
    if len(contests) == 1:
        lead = f"by {number(contests[0].lead, 1)} points"
        return f"{name} is best under shift, {lead}" + (", more than the spread" if clear else "")
    often = f"in {wins} of {len(contests)}" if wins < len(contests) else f"in all {wins}"
    clearly = "every time" if clear == wins else f"{clear} times"
    suffix = f", {clearly} by more than the spread" if clear else ""
    return f"{name} is best under shift {often} comparisons{suffix}"


def _machine(run: Scored) -> Machine:
    versions = run.result["versions"]
    return Machine(run.result["device"], ", ".join(f"{k} {v}" for k, v in versions.items()))
