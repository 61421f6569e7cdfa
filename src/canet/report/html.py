"""One self-contained HTML page from run folders: no network, light and dark, wide and narrow."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from canet.methods import EVERY_METHOD, Settings
from canet.report import embedded
from canet.report.comparison import Comparison, compare
from canet.report.context import NO_CONTEXT, ReportContext
from canet.report.labels import SEARCHED_NOTE, backbone_label
from canet.report.overview import Axis, count_best, make_standings
from canet.report.results import find_results
from canet.report.score import number
from canet.report.section_tables import setting_text
from canet.report.sections import legend, make_section
from canet.store import runs_at
from canet.util.colour import CENTRED_PER_GRAPH_COLOUR, WITHOUT_SPURIOUS_COLOUR
from canet.util.files import atomic_path


def write_report(out: Path, target: Path, context: ReportContext = NO_CONTEXT) -> None:
    """Write a page about all finished runs at or below `out`, or in it, to the file `target`.

    Tables and figures of a reproduction, in `out/tables` and `out/figures`, become part of it.
    Runs that cannot be read are left out, and named on it. `out` may be an archive of runs.
    """
    with runs_at(out) as root:
        results, left_out = find_results(root, context.extra_sets)
        page = _render(root, compare(results, context), context, left_out)
    with atomic_path(target) as temporary:
        # What is not a character, as in the name of a folder, is shown as its number.
        temporary.write_text(page, encoding="utf-8", errors="backslashreplace")


def _render(
    out: Path, comparisons: list[Comparison], context: ReportContext, left_out: Sequence[str]
) -> str:
    """The page; `left_out` has a line for each run that cannot be read."""
    from jinja2 import Environment, PackageLoader, StrictUndefined

    environment = Environment(
        loader=PackageLoader("canet.report", "templates"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {"number": number, "value": setting_text, "backbone": backbone_label}
    environment.filters |= {"count_best": count_best}
    environment.globals |= {"default_epochs": Settings().epochs, "searched_note": SEARCHED_NOTE}
    sections = [make_section(comparison, context) for comparison in comparisons]
    axis = Axis.of(comparisons)
    standings = list(make_standings(sections, axis, context))
    contenders = [c for comparison in comparisons for c in comparison.contenders]
    everyone = contenders + [c for comparison in comparisons for c in comparison.variants]
    runs = [run for c in everyone for run in c.runs]
    shown = {c.config.method for c in everyone}
    machines = [(run.result.device, tuple(run.result.versions.items())) for run in runs]
    return environment.get_template("report.html.jinja").render(
        sections=sections,
        standings=standings,
        axis=axis,
        legend=legend(contenders),
        controls={"blind": WITHOUT_SPURIOUS_COLOUR, "centred": CENTRED_PER_GRAPH_COLOUR},
        methods={name: one for name, one in EVERY_METHOD.items() if name in shown},
        num_runs=len(runs),
        num_configurations=len(everyone),
        rules=sorted({run.result.selection for run in runs}),
        machines=Counter(machines).most_common(),
        seconds=sum(run.result.epochs * run.result.seconds_per_epoch for run in runs),
        extra_sets=context.extra_sets,
        left_out=left_out,
        failures=embedded.failures(out),
        figures=embedded.figures(out / "figures"),
        tables=embedded.tables(out / "tables"),
    )
