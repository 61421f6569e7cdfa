"""One self-contained HTML page from run folders: no network, light and dark, wide and narrow."""

from __future__ import annotations

import warnings
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from canet.errors import CanetError, InputWarning
from canet.methods import METHODS
from canet.report import embedded
from canet.report.comparison import Comparison, compare
from canet.report.context import NO_CONTEXT, ReportContext
from canet.report.curves import Histories
from canet.report.headline import evidence, headline, joined, labels
from canet.report.labels import backbone_label
from canet.report.overview import Axis, make_standings
from canet.report.results import find_results
from canet.report.score import number
from canet.report.section_tables import setting_text
from canet.report.sections import legend, make_section
from canet.store import runs_at
from canet.store.summary import Scored
from canet.util.colour import BLIND, CENTRED
from canet.util.files import atomic_path


class Machine(NamedTuple):
    """Where runs were made: device and versions."""

    device: str
    versions: str


def write_report(out: Path, target: Path, context: ReportContext = NO_CONTEXT) -> None:
    """Write a page about all finished runs at or below `out`, or in it, to the file `target`.

    Tables and figures of a reproduction, in `out/tables` and `out/figures`, become part of it.
    Damaged runs, tables and figures are left out, and named on it.
    `out` may be an archive of runs. `context` is what the page is told besides.
    """
    with runs_at(out) as root:
        results, left_out = find_results(root, context.extra_sets)
        page = _render(root, compare(results, context), context, left_out)
    try:
        with atomic_path(target) as temporary:
            # What is no character, as in the name of a folder, is shown as its number.
            temporary.write_text(page, encoding="utf-8", errors="backslashreplace")
    except OSError as error:
        raise CanetError(
            f"cannot write '{target}' ({error.strerror}): choose another file with --out"
        ) from None


def _render(
    out: Path, comparisons: list[Comparison], context: ReportContext, left_out: Sequence[str]
) -> str:
    """The page; `left_out` has a line for each damaged run: its folder and the cause."""
    from jinja2 import Environment, PackageLoader, StrictUndefined

    environment = Environment(
        loader=PackageLoader("canet.report", "templates"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {"number": number, "value": setting_text, "backbone": backbone_label}
    environment.filters |= {"joined": joined, "labels": labels}
    histories = Histories()
    sections = [make_section(comparison, histories, context) for comparison in comparisons]
    axis = Axis.of(comparisons)
    standings = list(make_standings(sections, comparisons, axis, context))
    verdicts = [standing.verdict for standing in standings]
    contenders = [c for comparison in comparisons for c in comparison.contenders]
    variants = [c for comparison in comparisons for c in comparison.variants]
    runs = [run for c in contenders + variants for run in c.runs]
    shown = {c.config.method for c in contenders + variants}
    machines = Counter(map(_machine, runs))
    figures, damaged_figures = embedded.figures(out / "figures")
    tables, damaged_tables = embedded.tables(out / "tables")
    for line in [*damaged_figures, *damaged_tables]:
        warnings.warn(f"left out a file: {line}", InputWarning, stacklevel=3)
    return environment.get_template("report.html.jinja").render(
        headline=headline(verdicts),
        evidence=evidence(verdicts),
        sections=sections,
        standings=standings,
        axis=axis,
        legend=legend(contenders),
        controls={"blind": BLIND, "centred": CENTRED},
        methods={name: METHODS[name] for name in METHODS if name in shown},
        num_runs=len(runs),
        num_configurations=len(contenders) + len(variants),
        rules=sorted({run.result["selection"] for run in runs}),
        machines=machines.most_common(),
        duration=duration(
            sum(run.result["epochs"] * run.result["seconds_per_epoch"] for run in runs)
        ),
        left_out=left_out,
        damaged_files=[*damaged_figures, *damaged_tables],
        failures=embedded.failures(out),
        figures=figures,
        tables=tables,
    )


def duration(seconds: float) -> str:
    """In the unit that suits it: `38 seconds`, `12 minutes`, `3.4 hours`."""
    if seconds < 1:
        return "less than a second"
    if seconds < 120:
        return f"{seconds:.0f} second{'s' if round(seconds) != 1 else ''}"
    return f"{seconds / 60:.0f} minutes" if seconds < 7200 else f"{seconds / 3600:.1f} hours"


def _machine(run: Scored) -> Machine:
    versions = run.result["versions"]
    return Machine(run.result["device"], ", ".join(f"{k} {v}" for k, v in versions.items()))
