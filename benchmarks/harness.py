"""Run the measurements, write them to a JSON file, and show tables and pictures."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from datetime import UTC, datetime
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
    measurements stay in a separate file next to `out`; only a complete benchmark replaces `out`.

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
    harness = Harness(out, kind, SECONDS[kind] if seconds is None else seconds, data_root, command)
    batches = [[{"kind": "ceiling"}], *case_batches(chosen, kind, full)]
    if growth or (full and not tasks):
        batches += growth_batches(kind)
    with (
        harness.report_when_interrupted(),
        Display(sum(map(len, batches)), unit="measurements", quiet=quiet) as display,
    ):
        for batch in batches:
            harness.measure(batch, display)
        for job in harness.needed_to_extrapolate():
            harness.measure([job], display)
    harness.finish()
    if chosen:
        draw_ratios([harness.results], out.parent, out.stem)
    if harness.results.growth():
        draw_growth(harness.results, out.parent, f"{out.stem}-growth")
    if not quiet:
        show(harness.results)
        print(f"Written: {out}, with pictures next to it.")


class Harness:
    """The measurements so far, written to a separate file after each until they are complete.

    Args:
        out: JSON file for the complete measurements.
        device: `cpu` or `cuda`.
        seconds: Approximate time for each implementation.
        data_root: Folder of raw data.
        command: The command that the results record.
    """

    def __init__(
        self, out: Path, device: str, seconds: float, data_root: Path | None, command: str
    ) -> None:
        start = datetime.now(UTC)
        self.out = out
        self.unfinished = out.with_name(f"{out.stem}.unfinished-{start:%Y%m%d-%H%M%S}.json")
        self.order = Order(device, seconds, data_root)
        self.done = 0
        self.results = Results(device, command, f"{start:%Y-%m-%d}")

    def measure(self, jobs: list[Job], display: Display) -> None:
        """Run jobs in one process and record each result."""
        for job, measured in measure_jobs(jobs, self.order):
            self.results.add(job, measured)
            write_json(self.unfinished, self.results.content)
            self.done += 1
            display.update(self.done, text=_line(job, measured))

    @contextmanager
    def report_when_interrupted(self) -> Iterator[None]:
        """Print the path of the measurements if the block is interrupted."""
        try:
            yield
        except KeyboardInterrupt:
            if self.done:
                print(f"measurements so far: '{self.unfinished}'", file=sys.stderr)
            raise

    def finish(self) -> None:
        """Move the complete measurements to `out`."""
        self.unfinished.replace(self.out)

    def needed_to_extrapolate(self) -> list[Job]:
        """Plain cases with smaller K, to extrapolate the memory of cases that ran out of it."""
        return [
            {"kind": "case", "case": asdict(case), "implementation": "plain"}
            for died in self.results.cases
            if "died" in self.results.of(died, "plain")
            for k in EXTRAPOLATE_FROM
            if not self.results.of(case := Case(died.task, died.backbone, k, died.variant), "plain")
        ]


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
