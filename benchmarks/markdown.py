"""Tables of measurements, for the terminal and for Markdown."""

from __future__ import annotations

from typing import NamedTuple

from benchmarks.cases import Case
from benchmarks.growth import AXIS_NAMES
from benchmarks.implementations import INTERVENING, PUBLISHED_EPOCHS
from benchmarks.results import Quartiles, Results
from benchmarks.targets import Check, checks
from canet.util.console import print_table

OUTCOMES = {True: "met", False: "not met"}


class Tabular(NamedTuple):
    """A title, column heads, and rows of text."""

    title: str
    columns: list[str]
    rows: list[list[str]]

    def markdown(self) -> str:
        """A Markdown table; all columns except the first are aligned right."""
        lines = [self.columns, ["---", *["--:"] * (len(self.columns) - 1)], *self.rows]
        return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def show(results: Results) -> None:
    """Print all tables that have rows."""
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
    hardware = results.hardware
    if not hardware:
        return results.content["date"]
    threads = f"{hardware['cpu']}, {hardware['threads']} threads, {hardware['memory_gb']:g} GB"
    device = f"{hardware['gpu']} ({threads})" if hardware["gpu"] else threads
    versions = hardware["versions"]
    return (
        f"{device}; torch {versions['torch']}, canet {versions['canet']}; {results.content['date']}"
    )


def epochs(results: Results) -> Tabular:
    """Milliseconds per epoch: medians, with quartiles in brackets, and ratios."""
    rows = [
        [
            case.label,
            *(_time(results, case, implementation) for implementation in ("plain", "erm", "canet")),
            _number(results.ratio(case)),
            _number(results.vs_erm(case)),
            _number(results.run_seconds(case)),
        ]
        for case in results.cases
    ]
    columns = ["case", "plain ms", "ERM ms", "CaNet ms", "plain ÷ CaNet", "CaNet ÷ ERM"]
    columns.append(f"CaNet s, {PUBLISHED_EPOCHS} epochs")
    return Tabular("Epoch: training step and validation score", columns, rows)


def interventions(results: Results) -> Tabular:
    """Milliseconds per epoch of CaNet without and with interventions, if both were measured."""
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
    """Peak memory in MB: total, and increase since before the model was built."""
    rows = []
    for case in results.cases:
        used = [
            _memory(results, case, implementation) for implementation in ("plain", "erm", "canet")
        ]
        rows.append([case.label, *used, _number(results.memory_ratio(case))])
    columns = ["case", "plain MB", "ERM MB", "CaNet MB", "plain ÷ CaNet"]
    return Tabular("Peak memory (increase since before the model was built)", columns, rows)


def ceiling(results: Results) -> Tabular:
    """Minimum memory traffic and operations of an epoch of CaNet, and fraction of the ceiling."""
    rows = []
    for case in results.cases:
        cost, fraction = results.cost(case), results.fraction_of_ceiling(case)
        if cost and fraction is not None:
            moved, done = sum(op.bytes for op in cost), sum(op.flops for op in cost)
            work = [f"{moved / 1e6:,.1f}", f"{done / 1e9:.2f}", f"{fraction:.0%}"]
            rows.append([case.label, *work, _number(results.minimum_vs_erm(case))])
    title = "Minimum work of an epoch"
    if "ceiling" in results.content:
        rates = results.content["ceiling"]
        title += (
            f"; ceiling: {rates['bytes_per_second'] / 1e9:,.1f} GB/s copied, "
            f"{rates['flops_per_second'] / 1e12:.2f} TFLOP/s in fp32 matmul"
        )
    columns = ["case", "MB moved", "GFLOP", "fraction of ceiling", "minimum time ÷ that of ERM"]
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
    """All measured targets, and the number of those that were not measured."""
    every = checks(results)
    rows = [
        [check.name, _bound(check), _measured(check), OUTCOMES[check.met]]
        for check in every
        if check.met is not None
    ]
    rest = len(every) - len(rows)
    title = "Targets" + (f" ({rest} other targets not measured)" if rest else "")
    return Tabular(title, ["target", "bound", "measured", "result"], rows)


def _bound(check: Check) -> str:
    return f"{'≥' if check.at_least else '≤'} {check.bound:g}{check.unit}"


def _measured(check: Check) -> str:
    note = f" ({check.note})" if check.note else ""
    return f"{_number(check.measured)}{check.unit}{note}"


def _number(value: float | None) -> str:
    """Three significant digits."""
    if value is None:
        return "–"
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def _time(results: Results, case: Case, implementation: str) -> str:
    measured: Quartiles | None = results.spread(case, implementation)
    if measured is None:
        return "failed" if "died" in results.of(case, implementation) else "–"
    median, lower, upper = (_number(1000 * seconds) for seconds in measured)
    return f"{median} [{lower}, {upper}]"


def _memory(results: Results, case: Case, implementation: str) -> str:
    measured = results.of(case, implementation)
    if not measured:
        return "–"
    if "died" in measured:
        limit = f" at a limit of {measured['cap_mb']:,.0f}" if "cap_mb" in measured else ""
        needed, extrapolated = results.needed_mb(case)
        need = f"; needs ≈ {needed:,.0f}" if implementation == "plain" and extrapolated else ""
        return f"{measured['died']}{limit}{need}"
    return f"{measured['peak_mb']:,.0f} ({measured['peak_mb'] - measured['level_mb']:,.0f})"
