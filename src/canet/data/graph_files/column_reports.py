"""One line about each column of a graph's nodes: what it is for, what it holds, what is missing."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from canet.data.graph_files.cells import MISSING_CLASS, is_empty
from canet.data.graph_files.columns import Roles
from canet.data.graph_files.parts import GraphParts
from canet.data.graph_files.survey import ColumnSurvey
from canet.errors import listed

HOLDS = {"O": "text", "b": "boolean", "i": "integer", "u": "integer", "f": "number"}


@dataclass(frozen=True)
class ColumnReport:
    """A column of nodes, or an array.

    Args:
        name: As in the file.
        role: `feature`, `label`, `time` and so on.
        kind: What it holds.
        empty: How many cells have no content, or are NaN.
        content: Range of numbers and dates, or the first of other values.
    """

    name: str
    role: str
    kind: str
    empty: int
    content: str


def report_feature(column: ColumnSurvey) -> ColumnReport:
    """A column that becomes a feature, or cannot."""
    content, dates = "", column.kind == "date"
    if column.kind == "text":
        content = listed(sorted(column.words)) if column.words else "many different values"
    elif column.moments.count:
        low, high = column.moments.minimum, column.moments.maximum
        content = (
            f"{moment(low, dates)} to {moment(high, dates)}" if dates else f"{low:g} to {high:g}"
        )
    return ColumnReport(column.name, "feature", column.kind, column.empty, content)


def report_roles(roles: Roles, parts: GraphParts) -> list[ColumnReport]:
    """The columns that are no features."""
    named = {"id": roles.id, "label": roles.label, "environment": roles.environment}
    values = {"id": parts.node_id, "label": parts.columns.get("y")}
    values["environment"] = parts.columns.get("environment")
    reports = [
        _report(name, role, found)
        for role, name in named.items()
        if name is not None and (found := values[role]) is not None
    ]
    times = parts.columns.get("time")
    if roles.time is not None and times is not None:
        report = _report(roles.time, "time", times)
        if parts.dates:
            content = " to ".join(moment(end, True) for end in _ends(times))
            report = ColumnReport(report.name, report.role, "date", report.empty, content)
        reports.append(report)
    if "batch" in parts.columns:
        reports.append(_report("batch", "graph", parts.columns["batch"]))
    for name, mask in parts.masks.items():
        held = f"{roles.split} → {name}" if roles.split else name
        reports.append(_report(held, "split", mask))
    return reports


def moment(time: float, dates: bool) -> str:
    """A time as it is written: a number, or an ISO date."""
    if not dates:
        return f"{time:.10g}"
    return str(np.datetime64(round(time), "s")).removesuffix("T00:00:00")


def _report(name: str, role: str, values: np.ndarray) -> ColumnReport:
    shape = "" if values.ndim == 1 else f" {list(values.shape)}"
    kind = HOLDS.get(values.dtype.kind, str(values.dtype)) + shape
    if values.dtype == object:
        empty = sum(value is None or value == "" for value in values.flat)
    elif role in ("label", "environment") and values.dtype.kind == "i":
        empty = int((values == MISSING_CLASS).sum())
    else:
        empty = int(is_empty(values).sum())
    return ColumnReport(name, role, kind, empty, _content(values))


def _content(values: np.ndarray) -> str:
    if values.dtype == object:
        return listed(dict.fromkeys(str(value) for value in values.flat if value))
    if values.dtype == bool:
        return f"{int(values.sum()):,} true"
    return " to ".join(moment(end, False) for end in _ends(values))


def _ends(values: np.ndarray) -> list[float]:
    """The least and the largest number, if there is one."""
    if values.dtype.kind not in "iuf":
        return []
    finite = values[np.isfinite(values)]
    return [float(finite.min()), float(finite.max())] if finite.size else []
