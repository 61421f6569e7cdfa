"""The lists that `canet datasets` and `canet methods` print."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, fields
from textwrap import fill
from typing import TYPE_CHECKING, Any

from canet.data import TaskDescription
from canet.data.metrics import METRICS
from canet.settings import describe_settings
from canet.util.console import console, print_table

if TYPE_CHECKING:
    from canet.models import AnyMethod

WIDTH_OF_TASKS = 150


def show_tasks(descriptions: Sequence[TaskDescription]) -> None:
    """Print the tasks; on a narrow terminal only their sizes and files."""
    columns = ["task", "nodes", "edges", "classes", "features", "shift", "metric"]
    columns += ["train / valid / test", "OOD", "files"]
    rows = []
    for d in descriptions:
        copies = f" × {d.domains}" if d.domains > 1 else ""
        id_sizes = " / ".join(f"{d.splits[s]:,}" for s in ("train", "valid", "test_id") if d.splits)
        ood = sum(size for split, size in d.splits.items() if split.startswith("ood/"))
        counts = [f"{n:,}" for n in d.statistics]
        counts[0] += copies
        counts[-1] += f"+{d.spurious}" if d.spurious else ""
        sizes = [id_sizes or "–", f"{ood:,}" if d.splits else "–"]
        rows.append([d.name, *counts, d.shift, METRICS[d.metric].label, *sizes, _files(d)])
    shown = range(len(columns)) if console().width >= WIDTH_OF_TASKS else (0, 1, 2, 3, 4, -1)
    print_table("Tasks", [columns[i] for i in shown], [[row[i] for i in shown] for row in rows])
    print("For the files and splits of a task: canet datasets NAME")


def as_content(description: TaskDescription) -> dict[str, Any]:
    """Return a description as JSON content."""
    files = [asdict(f) | {"location": f.location and str(f.location)} for f in description.files]
    statistics = description.statistics._asdict()
    return asdict(description) | {"statistics": statistics, "files": files}


def show_task(description: TaskDescription) -> None:
    """Print one task with its splits and files."""
    d = description
    nodes, edges, classes, features = d.statistics
    copies = f" in each of {d.domains} domains" if d.domains > 1 else ""
    added = f" and {d.spurious} spurious ones" if d.spurious else ""
    counted = "counted" if d.state == "present" else "as published"
    print(f"{d.name}: {d.description}")
    print(f"{nodes:,} nodes, {edges:,} edges{copies}")
    print(f"{classes} classes, {features:,} features{added}")
    print(f"({counted}); shift: {d.shift}; metric: {METRICS[d.metric].label}")
    print(f"protocols: {', '.join(d.protocols)}")
    if d.features:
        print(f"other features: {', '.join(d.features)}")
    if d.splits:
        print_table("Splits", ["split", "nodes"], [(s, f"{n:,}") for s, n in d.splits.items()])
    if d.files:
        rows = [(f.path, f.state, str(f.location or "–")) for f in d.files]
        print_table("Files", ["file", "state", "folder"], rows)


def show_methods(methods: Sequence[AnyMethod]) -> None:
    """Print the methods, each with its summary, paper and own settings."""
    from canet.methods import Settings

    common = {declared.name for declared in fields(Settings)}
    width = max(len(method.name) for method in methods)
    for method in methods:
        labels = "; needs environment labels" if method.needs_environments else ""
        print_indented(f"{method.name:<{width}}  {method.summary}{labels}", width + 2)
        print_indented(f"{'':<{width}}  {method.paper}", width + 2)
        for name, about in describe_settings(method.settings_type).items():
            if name not in common:
                search = f", search {_search_text(about)}" if about["search"] else ""
                text = f"{name} = {about['default']}{search}: {about['help']}"
                print_indented(f"{'':<{width}}    {text}", width + 6)
    print("For all settings of a method: canet methods NAME")


def print_indented(text: str, indent: int) -> None:
    """Print a paragraph whose later lines are indented, within the width of the terminal."""
    print(fill(text, console().width, subsequent_indent=" " * indent, break_on_hyphens=False))


def show_method(method: AnyMethod) -> None:
    """Print one method with all its settings."""
    print(f"{method.name}: {method.summary}")
    print(method.paper)
    needed = "needs" if method.needs_environments else "does not need"
    print(f"{needed} environment labels")
    rows = [
        [name, str(about["default"]), about["valid"], _search_text(about), about["help"]]
        for name, about in describe_settings(method.settings_type).items()
    ]
    print_table("Settings", ["name", "default", "valid values", "search", "help"], rows)


def _search_text(about: dict[str, Any]) -> str:
    return " ".join(f"{v:g}" if isinstance(v, float) else str(v) for v in about["search"])


def _files(d: TaskDescription) -> str:
    if not d.files:
        return "none needed"
    if d.state == "present":
        return "present, intact"
    affected = [f.path.rsplit("/", 1)[-1] for f in d.files if f.state == d.state]
    return f"{d.state}: {affected[0] if len(affected) == 1 else f'{len(affected)} files'}"
