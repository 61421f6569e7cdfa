"""Tables of a run's measurements, for the terminal and for Markdown."""

from __future__ import annotations

from typing import NamedTuple

from benchmarks.cases import Case
from benchmarks.contenders import INTERVENING, PUBLISHED_EPOCHS
from benchmarks.growth import AXIS_NAMES
from benchmarks.results import Quartiles, Results
from benchmarks.targets import Check, checks
from canet.util.console import print_table

VERDICTS = {True: "met", False: "not met"}


class Tabular(NamedTuple):
    """A title, the names of columns, and rows of text."""

    title: str
    columns: list[str]
    rows: list[list[str]]

    def markdown(self) -> str:
        """As a Markdown table, its first column flush left and the others flush right."""
        lines = [self.columns, ["---", *["--:"] * (len(self.columns) - 1)], *self.rows]
        return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def show(results: Results) -> None:
    """Every table that has rows, on standard output."""
    for table in (
        epochs(results),
        interventions(results),
        memory(results),
        ceiling(results),
        growth(results),
        targets(results),
    ):
        if table.rows:
            print_table(*table)


def machine(results: Results) -> str:
    """Hardware, versions and date in one line."""
    about = results.hardware
    if not about:
        return results.content["date"]
    threads = f"{about['cpu']}, {about['threads']} threads, {about['memory_gb']:g} GB"
    place = f"{about['gpu']} ({threads})" if about["gpu"] else threads
    versions = about["versions"]
    return (
        f"{place}; torch {versions['torch']}, canet {versions['canet']}; {results.content['date']}"
    )


def epochs(results: Results) -> Tabular:
    """Milliseconds per epoch: medians, with quartiles in brackets, and ratios."""
    rows = [
        [
            case.label,
            *(_time(results, case, contender) for contender in ("plain", "erm", "canet")),
            _number(results.ratio(case)),
            _number(results.beside_erm(case)),
            _number(results.run_seconds(case)),
        ]
        for case in results.cases
    ]
    columns = ["case", "plain ms", "ERM ms", "CaNet ms", "plain ÷ CaNet", "CaNet ÷ ERM"]
    columns.append(f"CaNet s, {PUBLISHED_EPOCHS} epochs")
    return Tabular("Epoch: training step and validation score", columns, rows)


def interventions(results: Results) -> Tabular:
    """Milliseconds per epoch of CaNet without and with interventions, where both were measured."""
    rows = [
        [
            case.label,
            _time(results, case, "canet"),
            _time(results, case, INTERVENING),
            _number(results.intervening(case)),
        ]
        for case in results.cases
        if results.intervening(case)
    ]
    columns = ["case", "CaNet ms", "with interventions ms", "with ÷ without"]
    return Tabular("Epoch with interventions", columns, rows)


def memory(results: Results) -> Tabular:
    """Peak memory in MB: in all, and above the level before a model was built."""
    rows = []
    for case in results.cases:
        used = [_memory(results, case, contender) for contender in ("plain", "erm", "canet")]
        rows.append([case.label, *used, _number(results.memory_ratio(case))])
    columns = ["case", "plain MB", "ERM MB", "CaNet MB", "plain ÷ CaNet"]
    return Tabular("Peak memory (above the level before)", columns, rows)


def ceiling(results: Results) -> Tabular:
    """What an epoch of CaNet must move and do, and how near to the machine's best it is."""
    rows = []
    for case in results.cases:
        cost, fraction = results.cost(case), results.fraction_of_ceiling(case)
        if cost and fraction is not None:
            moved, done = sum(op.bytes for op in cost), sum(op.flops for op in cost)
            work = [f"{moved / 1e6:,.1f}", f"{done / 1e9:.2f}", f"{fraction:.0%}"]
            rows.append([case.label, *work, _number(results.least_beside_erm(case))])
    title = "Least work of an epoch"
    if "ceiling" in results.content:
        rates = results.content["ceiling"]
        title += (
            f"; ceiling: {rates['bytes_per_second'] / 1e9:,.1f} GB/s copied, "
            f"{rates['flops_per_second'] / 1e12:.2f} TFLOP/s in fp32 matmul"
        )
    columns = ["case", "MB moved", "GFLOP", "fraction of ceiling", "least time ÷ ERM's"]
    return Tabular(title, columns, rows)


def growth(results: Results) -> Tabular:
    """Log-log slopes of time and memory along each axis."""
    rows = [
        [
            f"{line.backbone.upper()}, {AXIS_NAMES[line.axis]}",
            f"{line.values[0]:,} – {line.values[-1]:,}",
            f"{1000 * line.seconds[0]:,.1f} – {1000 * line.seconds[-1]:,.1f}",
            f"{line.time_slope:.2f}",
            f"{line.memory_slope:.2f}",
        ]
        for line in results.growth()
    ]
    columns = ["axis", "range", "ms per epoch", "slope of time", "slope of memory"]
    return Tabular("Growth: 1 is proportional", columns, rows)


def targets(results: Results) -> Tabular:
    """Every target that was measured, whether met or not, and how many were not measured."""
    every = checks(results)
    rows = [
        [check.name, _bound(check), _measured(check), VERDICTS[check.met]]
        for check in every
        if check.met is not None
    ]
    rest = len(every) - len(rows)
    title = "What must hold" + (f" ({rest} other targets not measured)" if rest else "")
    return Tabular(title, ["target", "bound", "measured", "verdict"], rows)


def _bound(check: Check) -> str:
    return f"{'≥' if check.at_least else '≤'} {check.bound:g}{check.unit}"


def _measured(check: Check) -> str:
    note = f" ({check.note})" if check.note else ""
    return f"{_number(check.measured)}{check.unit}{note}"


def _number(value: float | None) -> str:
    """Three digits that count."""
    if value is None:
        return "–"
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def _time(results: Results, case: Case, contender: str) -> str:
    measured: Quartiles | None = results.spread(case, contender)
    if measured is None:
        return "died" if "died" in results.of(case, contender) else "–"
    median, lower, upper = (_number(1000 * seconds) for seconds in measured)
    return f"{median} [{lower}, {upper}]"


def _memory(results: Results, case: Case, contender: str) -> str:
    measured = results.of(case, contender)
    if not measured:
        return "–"
    if "died" in measured:
        cap = f" at a cap of {measured['cap_mb']:,.0f}" if "cap_mb" in measured else ""
        needed, extrapolated = results.needed_mb(case)
        need = f"; ≈ {needed:,.0f}" if contender == "plain" and extrapolated else ""
        return f"died: {measured['died']}{cap}{need}"
    return f"{measured['peak_mb']:,.0f} ({measured['peak_mb'] - measured['level_mb']:,.0f})"
