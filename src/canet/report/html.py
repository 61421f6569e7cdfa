"""Write the report: one HTML file without external resources."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from canet.methods import Settings
from canet.report import embedded
from canet.report.comparison import NO_CONTEXT, Comparison, ReportContext, compare
from canet.report.labels import SEARCHED_NOTE, backbone_label
from canet.report.overview import count_best, make_overview
from canet.report.page_tables import machine_table, selection_rules, sort_key, stored_table
from canet.report.results import find_results
from canet.report.sections import make_section
from canet.report.tables import Table
from canet.store import open_runs
from canet.util.rendering import environment, write_page


def write_report(out: Path, target: Path, context: ReportContext = NO_CONTEXT) -> None:
    """Write a page about all finished runs at or below `out` to the file `target`.

    `out` is a folder or an archive of runs. The page includes the tables in `out/tables` and the
    figures in `out/figures`. It lists the runs that cannot be read.
    """
    with open_runs(out) as root:
        results, left_out = find_results(root)
        page = _render(root, compare(results, context), context, left_out)
    write_page(page, target)


def _render(
    out: Path, comparisons: list[Comparison], context: ReportContext, left_out: Sequence[str]
) -> str:
    """Render the page; `left_out` has a message for each run that cannot be read."""
    templates = environment(
        Path(__file__).parent / "templates",
        backbone=backbone_label,
        count_best=count_best,
        sort_key=sort_key,
    )
    sections = [make_section(comparison, context) for comparison in comparisons]
    rankings, overview = make_overview(sections, context)
    everyone = [c for one in comparisons for c in (*one.contenders, *one.variants)]
    runs = [run for contender in everyone for run in contender.runs]
    return templates.get_template("report.html.jinja").render(
        default_epochs=Settings().epochs,
        searched_note=SEARCHED_NOTE,
        sections=sections,
        rankings=rankings,
        overview=overview,
        num_runs=len(runs),
        num_configurations=len(everyone),
        rules=selection_rules(runs),
        machines=machine_table(runs),
        seconds=sum(run.result.seconds for run in runs),
        left_out=left_out,
        failures=embedded.failures(out),
        figures=embedded.figures(out / "figures"),
        tables=[stored_table(Table.read(p)) for p in sorted((out / "tables").glob("*.json"))],
    )
