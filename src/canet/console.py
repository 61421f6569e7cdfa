"""What the command line shows: one progress bar, short tables, plain lines where nobody looks."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, fields
from typing import TYPE_CHECKING, Any, Protocol

from rich.console import Console, JustifyMethod
from rich.table import Table

from canet.data import TaskDescription
from canet.progress import Display
from canet.settings import describe_settings

if TYPE_CHECKING:
    from canet.methods import Method

WIDTH_OF_FILES = 160
WIDTH_OF_TASKS = 150
METRIC_NAMES = {"accuracy": "accuracy", "roc_auc": "ROC-AUC", "macro_f1": "macro F1"}


class Report(Protocol):
    """Tells how far a run is: (epochs done, epochs in all, last validation score)."""

    def __call__(self, done: int, total: int, score: float) -> None: ...


class Reporter:
    """Shows the progress of several runs, one after the other, on a display.

    Args:
        num_runs: How many runs there will be.
        quiet: Show nothing.
    """

    def __init__(self, num_runs: int, quiet: bool) -> None:
        self._display = Display(num_runs, quiet=quiet)
        self._started = 0

    def next_run(self, label: str) -> Report:
        """The callback of the next run."""
        before, self._started = self._started, self._started + 1

        def report(done: int, total: int, score: float) -> None:
            text = f"{label}: epoch {done}/{total}, valid {score:.1f}"
            self._display.update(before, text=text, part=done / total)

        return report

    @contextmanager
    def showing(self) -> Iterator[Reporter]:
        with self._display:
            yield self


def print_table(title: str, columns: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """A table on standard output; columns of numbers are flush right, the first never wraps."""
    table = Table()
    for i, column in enumerate(columns):
        numbers = all(row[i][:1].isdigit() for row in rows)
        justify: JustifyMethod = "right" if numbers else "left"
        table.add_column(column, justify=justify, no_wrap=i == 0, overflow="fold")
    for row in rows:
        table.add_row(*row)
    console = _console()
    console.print(title, style="bold", highlight=False, soft_wrap=True)
    console.print(table)


def _console() -> Console:
    """Standard output, with texts as they are: a folder may be called `[bold]`."""
    width = None if sys.stdout and sys.stdout.isatty() else WIDTH_OF_FILES
    return Console(width=width, markup=False, emoji=False)


def spread_text(spread: dict[str, Any]) -> str:
    """`{"mean": 96.391, "std": 0.432, "values": […]}` → `96.39 ± 0.43`; no spread of one run."""
    several = f" ± {spread['std']:.2f}" if len(spread["values"]) > 1 else ""
    return f"{spread['mean']:.2f}{several}"


def summary_rows(summary: dict[str, Any]) -> list[tuple[str, str]]:
    """The scores of a summary, a line each."""
    scores = summary["scores"]
    rows = [(name, spread_text(scores[name])) for name in ("train", "valid", "test_id")]
    rows += [(f"test_ood {name}", spread_text(s)) for name, s in scores["test_ood"].items()]
    rows.append(("test_ood mean", spread_text(scores["test_ood_mean"])))
    left_out = scores.get("left_out", {})
    return rows + [(f"left out {name}", spread_text(s)) for name, s in left_out.items()]


def show_tasks(descriptions: Sequence[TaskDescription]) -> None:
    """The list of tasks; sizes and files alone where the terminal is narrow."""
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
        rows.append([d.name, *counts, d.shift, METRIC_NAMES[d.metric], *sizes, _files(d)])
    shown = range(len(columns)) if _console().width >= WIDTH_OF_TASKS else (0, 1, 2, 3, 4, -1)
    print_table("Tasks", [columns[i] for i in shown], [[row[i] for i in shown] for row in rows])
    print("Files and splits of one task: canet datasets NAME")


def as_content(description: TaskDescription) -> dict[str, Any]:
    """A description as JSON takes it."""
    files = [asdict(f) | {"location": f.location and str(f.location)} for f in description.files]
    statistics = description.statistics._asdict()
    return asdict(description) | {"statistics": statistics, "files": files}


def show_task(description: TaskDescription) -> None:
    """One task with its splits and files."""
    d = description
    nodes, edges, classes, features = d.statistics
    copies = f" in each of {d.domains} domains" if d.domains > 1 else ""
    added = f" and {d.spurious} spurious ones" if d.spurious else ""
    counted = "counted" if d.state == "present" else "of the official files"
    print(f"{d.name}: {d.description}")
    print(f"{nodes:,} nodes, {edges:,} edges{copies}")
    print(f"{classes} classes, {features:,} features{added}")
    print(f"({counted}); shift: {d.shift}; metric: {METRIC_NAMES[d.metric]}")
    print(f"protocols: {', '.join(d.protocols)}")
    if d.features:
        print(f"features besides its own: {', '.join(d.features)}")
    if d.splits:
        print_table("Splits", ["split", "nodes"], [(s, f"{n:,}") for s, n in d.splits.items()])
    if d.files:
        rows = [(f.path, f.state, str(f.location or "–")) for f in d.files]
        print_table("Files", ["file", "state", "place"], rows)


def show_methods(methods: Sequence[type[Method]]) -> None:
    """The list of methods: a line each, then what each adds to the common settings."""
    from canet.methods import Settings

    common = {declared.name for declared in fields(Settings)}
    width = max(len(method.name) for method in methods)
    for method in methods:
        labels = "; needs environment labels" if method.needs_environments else ""
        print(f"{method.name:<{width}}  {method.summary}{labels}")
        print(f"{'':<{width}}  {method.paper}")
        for name, about in describe_settings(method.settings_type).items():
            if name not in common:
                print(f"{'':<{width}}    {_setting_text(name, about)}")
    print("All settings of one method, the common ones too: canet methods NAME")


def show_method(method: type[Method]) -> None:
    """One method with all its settings."""
    print(f"{method.name}: {method.summary}")
    print(method.paper)
    needed = "needs" if method.needs_environments else "needs no"
    print(f"{needed} environment labels")
    rows = [
        [name, str(about["default"]), about["valid"], _search_text(about), about["help"]]
        for name, about in describe_settings(method.settings_type).items()
    ]
    print_table("Settings", ["name", "default", "takes", "search", "what"], rows)


def _setting_text(name: str, about: dict[str, Any]) -> str:
    search = f", search {_search_text(about)}" if about["search"] else ""
    return f"{name} = {about['default']}{search}: {about['help']}"


def _search_text(about: dict[str, Any]) -> str:
    return " ".join(
        f"{value:g}" if isinstance(value, float) else str(value) for value in about["search"]
    )


def _files(d: TaskDescription) -> str:
    if not d.files:
        return "none needed"
    if d.state == "present":
        return "present, intact"
    affected = [f.path.rsplit("/", 1)[-1] for f in d.files if f.state == d.state]
    return (
        f"{d.state}: {affected[0]}" if len(affected) == 1 else f"{d.state}: {len(affected)} files"
    )
