"""Write the report: one HTML file without external resources."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from canet.methods import Settings
from canet.models import all_methods
from canet.report import embedded
from canet.report.comparison import CONTROLS, NO_CONTEXT, Comparison, ReportContext, compare
from canet.report.labels import SEARCHED_NOTE, backbone_label
from canet.report.overview import Axis, count_best, make_overview
from canet.report.results import find_results
from canet.report.section_tables import setting_text
from canet.report.sections import legend, make_section
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
        ("canet.report", "templates"),
        value=setting_text,
        backbone=backbone_label,
        count_best=count_best,
    )
    sections = [make_section(comparison, context) for comparison in comparisons]
    axis = Axis.of(comparisons)
    contenders = [c for comparison in comparisons for c in comparison.contenders]
    everyone = contenders + [c for comparison in comparisons for c in comparison.variants]
    runs = [run for c in everyone for run in c.runs]
    shown = {c.config.method for c in everyone}
    machines = [(run.result.device, tuple(run.result.versions.items())) for run in runs]
    return templates.get_template("report.html.jinja").render(
        default_epochs=Settings().epochs,
        searched_note=SEARCHED_NOTE,
        sections=sections,
        overview=list(make_overview(sections, context)),
        axis=axis,
        legend=legend(contenders),
        controls={name.replace(" ", "-"): one.colour for name, one in CONTROLS.items()},
        methods={name: one for name, one in all_methods().items() if name in shown},
        num_runs=len(runs),
        num_configurations=len(everyone),
        rules=sorted({run.result.selection for run in runs}),
        machines=Counter(machines).most_common(),
        seconds=sum(run.result.seconds for run in runs),
        left_out=left_out,
        failures=embedded.failures(out),
        figures=embedded.figures(out / "figures"),
        tables=[Table.read(path) for path in sorted((out / "tables").glob("*.json"))],
    )
