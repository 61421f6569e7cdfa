"""Run the measurements, write them to a JSON file, and show tables and pictures."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from itertools import chain
from pathlib import Path
from typing import Any

from benchmarks.cases import PUBLISHED_K, Case, cases
from benchmarks.growth import points
from benchmarks.implementations import IMPLEMENTATIONS, SAME_NODES
from benchmarks.markdown import show
from benchmarks.pictures import draw_growth, draw_ratios
from benchmarks.process import measure_jobs
from benchmarks.results import Results
from benchmarks.worker import Job, Order
from canet.util.devices import pick_device
from canet.util.files import write_json
from canet.util.progress import Display

SECONDS = {"cpu": 10.0, "cuda": 2.0}
ROUNDS = 2  # of a full benchmark on a CPU, because its speed varies over time
EXTRAPOLATE_FROM = (1, 2, 3)


def run_bench(
    out: Path,
    command: str,
    full: bool = False,
    tasks: Sequence[str] = (),
    growth: bool = False,
    device: str = "auto",
    seconds: float | None = None,
    data_root: Path | None = None,
    quiet: bool = False,
) -> None:
    """Measure, write the results to `out` and pictures next to it, and print tables.

    An interrupted benchmark is not resumed, because speeds of two starts cannot be compared. Its
    measurements stay in the file `.unfinished.json` next to `out`, which it does not replace.

    Args:
        out: JSON file.
        command: The command that the results record.
        full: All tasks and growth; else a few cases, in a few minutes on two cores.
        tasks: Only these tasks, and no growth.
        growth: Only growth.
        device: `auto`, `cpu` or `cuda`.
        seconds: Approximate time for each implementation.
        data_root: Folder of raw data.
        quiet: Whether to print neither progress nor tables.
    """
    chosen = [] if growth else cases(full, tasks)
    kind = pick_device(device).type
    order = Order(kind, SECONDS[kind] if seconds is None else seconds, data_root)
    results = Results(kind, command, f"{datetime.now(UTC):%Y-%m-%d}")
    unfinished, done = out.with_suffix(".unfinished.json"), 0
    batches = [[{"kind": "ceiling"}], *case_batches(chosen, kind, full)]
    if growth or (full and not tasks):
        batches += growth_batches(kind)
    with Display(sum(map(len, batches)), unit="measurements", quiet=quiet) as display:
        for batch in chain(batches, needed_to_extrapolate(results)):
            for job, measured in measure_jobs(batch, order):
                results.add(job, measured)
                write_json(unfinished, results.content)
                done += 1
                display.update(done, text=_line(job, measured))
    unfinished.replace(out)
    if chosen:
        draw_ratios([results], out.parent, out.stem)
    if results.growth():
        draw_growth(results, out.parent, f"{out.stem}-growth")
    if not quiet:
        show(results)
        print(f"Written: {out}, with pictures next to it.")


def needed_to_extrapolate(results: Results) -> Iterator[list[Job]]:
    """Yield plain cases with smaller K, for the memory of cases that ran out of it."""
    for died in results.cases:
        for k in EXTRAPOLATE_FROM if "died" in results.of(died, "plain") else ():
            case = Case(died.task, died.backbone, k, died.variant)
            if not results.of(case, "plain"):
                yield [{"kind": "case", "case": asdict(case), "implementation": "plain"}]


def case_batches(chosen: Sequence[Case], device: str, full: bool) -> list[list[Job]]:
    """The jobs of each case, grouped by process.

    The cost of ERM does not depend on K, so it is measured once. ERM on the nodes of CaNet is
    measured only if these differ from its own nodes.
    """
    jobs = {
        task: [
            {"kind": "case", "case": asdict(case), "implementation": implementation}
            for case in chosen
            if case.task == task
            for _ in range(ROUNDS if full and device == "cpu" else 1)
            for implementation in IMPLEMENTATIONS
            if implementation in ("plain", "canet") or case.k == PUBLISHED_K
            if implementation != SAME_NODES or case.reads_both_ways
        ]
        for task in dict.fromkeys(case.task for case in chosen)
    }
    return [batch for of_task in jobs.values() for batch in _processes(of_task, device)]


def growth_batches(device: str) -> list[list[Job]]:
    """All points of all axes, for both backbones."""
    jobs = [
        {"kind": "growth", "backbone": backbone, "axis": axis, "value": value}
        for backbone in ("gcn", "gat")
        for axis, value in points(device)
    ]
    return _processes(jobs, device)


def _processes(jobs: list[Job], device: str) -> list[list[Job]]:
    """One process for all jobs on a GPU; one per job on a CPU, where freed memory is kept."""
    return [jobs] if device == "cuda" else [[job] for job in jobs]


def _line(job: Job, measured: dict[str, Any]) -> str:
    if job["kind"] == "ceiling":
        return "ceiling: measured"
    if job["kind"] == "growth":
        label = f"growth {job['backbone'].upper()} {job['axis']} {job['value']:,}"
    else:
        label = f"{Case(**job['case']).label} {job['implementation']}"
    if "died" in measured:
        return f"{label}: {measured['died']}"
    fastest = min(measured["times"])
    return f"{label}: {1000 * fastest:.1f} ms (fastest), {measured['peak_mb']:.0f} MB"
