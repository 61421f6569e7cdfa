"""Lists: `canet datasets`, `methods` and `backbones`."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, fields
from textwrap import fill
from typing import TYPE_CHECKING, Annotated, Any

import typer

from canet.cli.app import app
from canet.cli.options import DataRoot, Json

if TYPE_CHECKING:
    from canet.data import TaskDescription
    from canet.models import MethodClass

WIDTH_OF_TASKS = 150


@app.command()
def datasets(
    name: Annotated[
        str | None, typer.Argument(help="Show one task with its splits and files.")
    ] = None,
    data_root: DataRoot = None,
    as_json: Json = False,
) -> None:
    """List the benchmark tasks, their sizes and their files."""
    from canet.data import DATASETS, describe

    descriptions = [describe(task, data_root) for task in ([name] if name else DATASETS)]
    if as_json:
        content = {d.name: asdict(d) | {"statistics": d.statistics._asdict()} for d in descriptions}
        print(json.dumps(content[name] if name else content, indent=2, default=str))
    elif name:
        _show_task(descriptions[0])
    else:
        _show_tasks(descriptions)


@app.command()
def methods(
    name: Annotated[
        str | None, typer.Argument(help="Show one method with all its settings.")
    ] = None,
    as_json: Json = False,
) -> None:
    """List the methods with their settings and papers."""
    from canet.models import all_methods, describe_method
    from canet.settings import describe_settings

    chosen = [describe_method(name)] if name else list(all_methods().values())
    if as_json:
        content = {
            method.name: {
                "summary": method.summary,
                "paper": method.paper,
                "needs_environments": method.traits.needs_environments,
                "settings": describe_settings(method.settings_type),
            }
            for method in chosen
        }
        print(json.dumps(content, indent=2))
    elif name:
        _show_method(chosen[0])
    else:
        _show_methods(chosen)


@app.command()
def backbones(as_json: Json = False) -> None:
    """List the backbones, the graph layers that every method can use."""
    from canet.methods import BACKBONES

    if as_json:
        content = {b.name: {"label": b.label, "summary": b.summary} for b in BACKBONES.values()}
        print(json.dumps(content, indent=2))
        return
    width = max(map(len, BACKBONES))
    for backbone in BACKBONES.values():
        print(f"{backbone.name:<{width}}  {backbone.summary}")


def _show_tasks(descriptions: Sequence[TaskDescription]) -> None:
    """Print the tasks; on a narrow terminal only their sizes and files."""
    from canet.scoring.metrics import METRICS
    from canet.util.console import console, print_table

    columns = ["task", "nodes", "edges", "classes", "features", "shift", "metric"]
    columns += ["train / valid / test", "OOD", "files"]
    rows = []
    for d in descriptions:
        counts = [f"{n:,}" for n in d.statistics]
        counts[0] += f" × {d.domains}" if d.domains > 1 else ""
        counts[-1] += f"+{d.spurious}" if d.spurious else ""
        sizes = ["–", "–"]
        if d.splits:
            ood = sum(size for split, size in d.splits.items() if split.startswith("ood/"))
            id_sizes = (f"{d.splits[split]:,}" for split in ("train", "valid", "test_id"))
            sizes = [" / ".join(id_sizes), f"{ood:,}"]
        rows.append([d.name, *counts, d.shift, METRICS[d.metric].label, *sizes, _files(d)])
    shown = range(len(columns)) if console().width >= WIDTH_OF_TASKS else (0, 1, 2, 3, 4, -1)
    print_table("Tasks", [columns[i] for i in shown], [[row[i] for i in shown] for row in rows])
    print("For the files and splits of a task: canet datasets NAME")


def _files(d: TaskDescription) -> str:
    if not d.files:
        return "none needed"
    if d.state == "present":
        return "present, intact"
    affected = [f.path.rsplit("/", 1)[-1] for f in d.files if f.state == d.state]
    return f"{d.state}: {affected[0] if len(affected) == 1 else f'{len(affected)} files'}"


def _show_task(d: TaskDescription) -> None:
    """Print one task with its splits and files."""
    from canet.scoring.metrics import METRICS
    from canet.util.console import print_table

    nodes, edges, classes, features = d.statistics
    copies = f" in each of {d.domains} domains" if d.domains > 1 else ""
    added = f" and {d.spurious} spurious ones" if d.spurious else ""
    print(f"{d.name}: {d.description}")
    print(f"{nodes:,} nodes, {edges:,} edges{copies}")
    print(f"{classes} classes, {features:,} features{added}")
    print(f"shift: {d.shift}; metric: {METRICS[d.metric].label}")
    print(f"protocols: {', '.join(d.protocols)}")
    if d.features:
        print(f"other features: {', '.join(d.features)}")
    if d.splits:
        print_table("Splits", ["split", "nodes"], [(s, f"{n:,}") for s, n in d.splits.items()])
    if d.files:
        rows = [(f.path, f.state, str(f.location or "–")) for f in d.files]
        print_table("Files", ["file", "state", "folder"], rows)


def _show_methods(methods: Sequence[MethodClass]) -> None:
    """Print the methods, each with its summary, paper and own settings."""
    from canet.methods import Settings
    from canet.settings import describe_settings
    from canet.util.console import console

    def show(first: str, text: str, indent: int) -> None:
        hanging = " " * indent
        line = f"{first:<{indent}}{text}"
        print(fill(line, console().width, subsequent_indent=hanging, break_on_hyphens=False))

    common = {declared.name for declared in fields(Settings)}
    indent = max(len(method.name) for method in methods) + 2
    for method in methods:
        labels = "; needs environment labels" if method.traits.needs_environments else ""
        show(method.name, f"{method.summary}{labels}", indent)
        show("", method.paper, indent)
        for name, about in describe_settings(method.settings_type).items():
            if name not in common:
                search = f", search {_search_text(about)}" if about["search"] else ""
                show("", f"  {name} = {about['default']}{search}: {about['help']}", indent)
    print("For all settings of a method: canet methods NAME")


def _show_method(method: MethodClass) -> None:
    """Print one method with all its settings."""
    from canet.settings import describe_settings
    from canet.util.console import print_table

    print(f"{method.name}: {method.summary}")
    print(method.paper)
    print(f"{'needs' if method.traits.needs_environments else 'does not need'} environment labels")
    rows = [
        [name, str(about["default"]), about["valid"], _search_text(about), about["help"]]
        for name, about in describe_settings(method.settings_type).items()
    ]
    print_table("Settings", ["name", "default", "valid values", "search", "help"], rows)


def _search_text(about: dict[str, Any]) -> str:
    return " ".join(f"{v:g}" if isinstance(v, float) else str(v) for v in about["search"])
