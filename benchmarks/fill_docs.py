"""Fill the tables and pictures about performance from the JSON of benchmark runs.

    python -m benchmarks.fill_docs RUN.json [RUN.json ...]

The tables are in `results/performance/details.md`. The part of the page between `<!-- NAME -->` and
`<!-- end NAME -->` is replaced, with one table for each device; the rest of the page stays as it
is. Pictures are written to `docs/images/`.
"""

from __future__ import annotations

import argparse
import re
from collections.abc import Callable, Sequence
from pathlib import Path

from benchmarks import markdown
from benchmarks.markdown import Tabular
from benchmarks.pictures import DEVICES, draw_growth, draw_ratios
from benchmarks.results import Results
from canet.errors import CanetError
from canet.util.files import atomic_path

PARTS: dict[str, Callable[[Results], Tabular]] = {
    "targets": markdown.targets,
    "epochs": markdown.epochs,
    "memory": markdown.memory,
    "ceiling": markdown.ceiling,
    "growth": markdown.growth,
}
MACHINES = "machines"
ROOT = Path(__file__).parents[1]
PAGE = ROOT / "results" / "performance" / "details.md"
IMAGES = ROOT / "docs" / "images"


def fill(text: str, parts: Sequence[str], runs: Sequence[Results]) -> str:
    """A page's text with these generated parts written again."""
    for name in parts:
        text = _replace(text, name, _content(name, runs))
    return text


def by_device(runs: Sequence[Results]) -> list[Results]:
    """One set of results for each device; a case of two runs is taken whole from the later one."""
    merged: dict[str, Results] = {}
    for run in runs:
        merged[run.device] = merged[run.device].with_later(run) if run.device in merged else run
    return list(merged.values())


def _content(name: str, runs: Sequence[Results]) -> str:
    if name == MACHINES:
        return "\n".join(_machine(run) for run in runs)
    made = [(run, PARTS[name](run)) for run in by_device(runs)]
    return "\n\n".join(_part(run, table) for run, table in made if table.rows)


def _machine(run: Results) -> str:
    return f"- {DEVICES[run.device]}: {markdown.machine(run)}; `{run.content['command']}`"


def _part(run: Results, table: Tabular) -> str:
    return f"**{DEVICES[run.device]}.** {table.title}.\n\n{table.markdown()}"


def _replace(text: str, name: str, content: str) -> str:
    begin, end = f"<!-- {name} -->", f"<!-- end {name} -->"
    pattern = re.compile(f"{re.escape(begin)}.*?{re.escape(end)}", re.DOTALL)
    if not pattern.search(text):
        raise CanetError(f"the page has no part '{begin} … {end}': add it")
    return pattern.sub(lambda _: f"{begin}\n{content}\n{end}", text)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("runs", type=Path, nargs="+")
    options = parser.parse_args()
    runs = [Results.read(path) for path in options.runs]
    text = fill(PAGE.read_text(encoding="utf-8"), (MACHINES, *PARTS), runs)
    with atomic_path(PAGE) as temporary:
        temporary.write_text(text, encoding="utf-8")
    merged = by_device(runs)
    draw_ratios(merged, IMAGES, "performance")
    for run in merged:
        if run.growth():
            draw_growth(run, IMAGES, f"growth-{run.device}")
    for name in ("performance", *(f"growth-{device}" for device in DEVICES)):
        (IMAGES / f"{name}.png").unlink(missing_ok=True)  # pages show the SVG


if __name__ == "__main__":
    main()
