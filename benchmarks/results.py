"""The measurements of one benchmark on one machine, and the ratios computed from them."""

from __future__ import annotations

import statistics
from dataclasses import asdict
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks.cases import Case
from benchmarks.ceiling import Ceiling, Operation, floor_seconds
from benchmarks.growth import slope
from benchmarks.implementations import INTERVENING, PUBLISHED_EPOCHS
from canet.util.files import read_json


class Quartiles(NamedTuple):
    """Median and quartiles of times per epoch."""

    median: float
    lower: float
    upper: float


class Growth(NamedTuple):
    """Cost along one axis: values, seconds per epoch and MB of each, and log-log slopes."""

    backbone: str
    axis: str
    values: list[int]
    seconds: list[float]
    megabytes: list[float]
    time_slope: float
    memory_slope: float


class Results:
    """One benchmark; `content` is the content of its JSON file.

    Each case has, for each implementation, the times per epoch of all rounds and the peak memory,
    or `died` with the reason.
    """

    def __init__(self, device: str, command: str, date: str) -> None:
        self.content: dict[str, Any] = {
            "command": command,
            "date": date,
            "device": device,
            "cases": [],
            "growth": [],
        }

    @classmethod
    def read(cls, path: Path) -> Results:
        content = read_json(path)
        results = cls(content["device"], content["command"], content["date"])
        results.content = content
        return results

    def with_later(self, later: Results) -> Results:
        """Merge the results of a later benchmark on the same machine.

        A case that both measured is taken from the later one, so that ratios stay within one.
        """
        both = Results(self.device, later.content["command"], later.content["date"])
        again = [entry["case"] for entry in later.content["cases"]]
        kept = [entry for entry in self.content["cases"] if entry["case"] not in again]
        both.content = self.content | later.content
        both.content["cases"] = kept + later.content["cases"]
        both.content["growth"] = later.content["growth"] or self.content["growth"]
        return both

    @property
    def device(self) -> str:
        return str(self.content["device"])

    @property
    def hardware(self) -> dict[str, Any]:
        hardware: dict[str, Any] = self.content.get("hardware", {})
        return hardware

    @property
    def cases(self) -> list[Case]:
        return [Case(**entry["case"]) for entry in self.content["cases"]]

    def add(self, job: dict[str, Any], measured: dict[str, Any]) -> None:
        """Add the result of a job."""
        if job["kind"] == "ceiling":
            self.content |= measured
        elif job["kind"] == "growth":
            point = {key: job[key] for key in ("backbone", "axis", "value")}
            self.content["growth"].append(point | measured)
        else:
            self._add_case(job["case"], job["implementation"], dict(measured))

    def _add_case(self, case: dict[str, Any], name: str, measured: dict[str, Any]) -> None:
        entry = next((e for e in self.content["cases"] if e["case"] == case), None)
        if entry is None:
            entry = {"case": case}
            self.content["cases"].append(entry)
        if "size" in measured:
            entry["size"] = measured.pop("size")
        before = entry.get(name, {})
        if "times" in before and "times" in measured:
            measured["times"] = before["times"] + measured["times"]
            measured["peak_mb"] = max(before["peak_mb"], measured["peak_mb"])
        entry[name] = measured

    def of(self, case: Case, implementation: str) -> dict[str, Any]:
        """The measurements of an implementation; empty if it was not measured."""
        measured: dict[str, Any] = self._entry(case).get(implementation, {})
        return measured

    def spread(self, case: Case, implementation: str) -> Quartiles | None:
        """Seconds per epoch."""
        times = self.of(case, implementation).get("times")
        return spread(times) if times else None

    def ratio(self, case: Case) -> float | None:
        """Plain ÷ CaNet, seconds per epoch."""
        return _ratio(self.spread(case, "plain"), self.spread(case, "canet"))

    def vs_erm(self, case: Case, implementation: str = "erm") -> float | None:
        """CaNet ÷ ERM, seconds per epoch; `implementation` may be ERM on the same nodes."""
        return _ratio(self.spread(case, "canet"), self.spread(case, implementation))

    def intervening(self, case: Case) -> float | None:
        """CaNet with interventions ÷ without, seconds per epoch."""
        return _ratio(self.spread(case, INTERVENING), self.spread(case, "canet"))

    def in_k(self, case: Case, other: Case) -> float | None:
        """Seconds per epoch of CaNet in a case ÷ those in another."""
        return _ratio(self.spread(case, "canet"), self.spread(other, "canet"))

    def needed_mb(self, case: Case) -> tuple[float | None, bool]:
        """Peak memory of the plain implementation, and whether it is extrapolated.

        If it ran out of memory, the value is a straight line through smaller K: everything that
        grows with K is stored once per branch.
        """
        plain = self.of(case, "plain")
        if "died" not in plain:
            return plain.get("peak_mb"), False
        known = {
            k: peak
            for k in range(1, case.k)
            if (smaller := self.of(Case(case.task, case.backbone, k, case.variant), "plain"))
            and "died" not in smaller
            and (peak := smaller["peak_mb"])
        }
        if len(known) < 2:
            return plain.get("peak_mb"), False
        line = statistics.linear_regression(list(known), list(known.values()))
        return line.slope * case.k + line.intercept, True

    def memory_ratio(self, case: Case) -> float | None:
        """Plain ÷ CaNet, peak memory."""
        needed, _ = self.needed_mb(case)
        canet = self.of(case, "canet").get("peak_mb")
        return needed / canet if needed and canet else None

    def run_seconds(self, case: Case) -> float | None:
        """Seconds of a whole run of CaNet with the published number of epochs."""
        measured, per_epoch = self.of(case, "canet"), self.spread(case, "canet")
        if per_epoch is None:
            return None
        missing = PUBLISHED_EPOCHS - measured["run_epochs"]
        return float(measured["run_seconds"] + missing * per_epoch.median)

    def cost(self, case: Case, implementation: str = "canet") -> list[Operation]:
        """The minimum operations of an epoch."""
        return [Operation(*pair) for pair in self.of(case, implementation).get("cost", [])]

    def minimum_seconds(self, case: Case, implementation: str = "canet") -> float | None:
        """The minimum time of an epoch."""
        cost = self.cost(case, implementation)
        if not cost or "ceiling" not in self.content:
            return None
        return floor_seconds(cost, Ceiling(**self.content["ceiling"]))

    def minimum_vs_erm(self, case: Case) -> float | None:
        """CaNet ÷ ERM, minimum time of an epoch."""
        canet, erm = self.minimum_seconds(case), self.minimum_seconds(case, "erm")
        return canet / erm if canet and erm else None

    def fraction_of_ceiling(self, case: Case) -> float | None:
        """Minimum time of an epoch ÷ its measured time."""
        measured, minimum = self.spread(case, "canet"), self.minimum_seconds(case)
        return minimum / measured.median if measured and minimum else None

    def growth(self) -> list[Growth]:
        """Cost along each axis, for each backbone; points without a measurement are left out."""
        lines: dict[tuple[str, str], list[dict[str, Any]]] = {}
        for point in self.content["growth"]:
            if "died" not in point:
                lines.setdefault((point["backbone"], point["axis"]), []).append(point)
        grown = []
        for (backbone, axis), line in lines.items():
            if len(line) > 1:
                values = [point["value"] for point in line]
                seconds = [spread(point["times"]).median for point in line]
                megabytes = [max(1.0, point["peak_mb"] - point["level_mb"]) for point in line]
                slopes = slope(values, seconds), slope(values, megabytes)
                grown.append(Growth(backbone, axis, values, seconds, megabytes, *slopes))
        return grown

    def _entry(self, case: Case) -> dict[str, Any]:
        wanted = asdict(case)
        return next((e for e in self.content["cases"] if e["case"] == wanted), {})


def spread(times: list[float]) -> Quartiles:
    """Median and quartiles of one or more times."""
    if len(times) == 1:
        return Quartiles(times[0], times[0], times[0])
    lower, median, upper = statistics.quantiles(times, n=4, method="inclusive")
    return Quartiles(median, lower, upper)


def _ratio(numerator: Quartiles | None, denominator: Quartiles | None) -> float | None:
    if numerator is None or denominator is None:
        return None
    return numerator.median / denominator.median
