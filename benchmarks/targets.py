"""The performance targets, checked against measurements."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from benchmarks.cases import PUBLISHED_K, Case, cases
from benchmarks.implementations import PUBLISHED_EPOCHS, SAME_NODES
from benchmarks.results import Results

LARGEST = Case("arxiv", "gat", 10)


class Check(NamedTuple):
    """A target and the measured value; None if it was not measured."""

    name: str
    measured: float | None
    bound: float
    at_least: bool
    unit: str = "×"
    note: str = ""

    @property
    def met(self) -> bool | None:
        if self.measured is None:
            return None
        return self.measured >= self.bound if self.at_least else self.measured <= self.bound


def checks(results: Results) -> list[Check]:
    """All targets for the device of the measurements."""
    return [
        *_speed(results),
        *_memory(results),
        *_growth_in_k(results),
        *_interventions(results),
        *_runs(results),
    ]


def _published() -> list[Case]:
    """All cases with the published K, except the synthetic task."""
    return [c for c in cases(full=True) if c.k == PUBLISHED_K and c.task != "synthetic"]


def _speed(results: Results) -> Iterator[Check]:
    on_gpu = results.device == "cuda"
    for case, cpu, gpu in (
        (Case("arxiv", "gcn"), 20.0, 10.0),
        (Case("arxiv", "gcn", variant="symmetric"), 3.0, 5.0),
        (Case("arxiv", "gat"), 30.0, 20.0),
        *((case, 8.0, 5.0) for case in _published() if case.task != "arxiv"),
    ):
        name = f"{case.label}: plain ÷ CaNet, epoch"
        yield Check(name, results.ratio(case), gpu if on_gpu else cpu, at_least=True)


def _memory(results: Results) -> Iterator[Check]:
    _, extrapolated = results.needed_mb(LARGEST)
    note = "plain extrapolated from smaller K" if extrapolated else ""
    name = f"{LARGEST.label}: plain ÷ CaNet, peak memory"
    yield Check(name, results.memory_ratio(LARGEST), 10.0, at_least=True, note=note)
    if results.device == "cpu":
        canet = results.of(LARGEST, "canet").get("peak_mb")
        yield Check(f"{LARGEST.label}: peak memory", canet, 2000.0, at_least=False, unit=" MB")


def _growth_in_k(results: Results) -> Iterator[Check]:
    on_gpu = results.device == "cuda"
    for task, variant in (("cora", "published"), ("arxiv", "published"), ("arxiv", "symmetric")):
        ten, one = Case(task, "gcn", 10, variant), Case(task, "gcn", 1, variant)
        name = f"{ten.label} ÷ K 1: epoch"
        yield Check(name, results.in_k(ten, one), 1.5 if on_gpu else 5.0, at_least=False)
    for case in _published():
        name, bound = f"{case.label}: CaNet ÷ ERM, epoch", 2.0 if on_gpu else 4.0
        same = results.vs_erm(case, SAME_NODES)
        note = f"{same:.3g}× compared with ERM on the same nodes" if same else ""
        yield Check(name, results.vs_erm(case), bound, at_least=False, note=note)


def _interventions(results: Results) -> Iterator[Check]:
    for case in _published():
        if ratio := results.intervening(case):
            name = f"{case.label}: with interventions ÷ without, epoch"
            yield Check(name, ratio, 1.3, at_least=False)


def _runs(results: Results) -> Iterator[Check]:
    if results.device != "cuda":
        return
    for task, bound in (("cora", 2.0), ("arxiv", 4.0)):
        for backbone in ("gcn", "gat"):
            case = Case(task, backbone)
            name = f"{case.label}: a run of {PUBLISHED_EPOCHS} epochs"
            yield Check(name, results.run_seconds(case), bound, at_least=False, unit=" s")
