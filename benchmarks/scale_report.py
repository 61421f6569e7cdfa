"""Table and picture of `python -m benchmarks scale`.

`python -m benchmarks.scale_report FILE … PICTURE` joins files with measurements of the default.
"""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from matplotlib.ticker import LogLocator

from benchmarks.pictures import short_number
from canet.report.figures import MARKERS, new_figure, tidy
from canet.util.rendering import save_figure

MISSING = "–"
GPU_ROWS = {
    "precision of products": lambda f: {"high": "TF32", "highest": "fp32"}[f["precision"]],
    "nodes whose features are on the GPU": lambda f: f"{100 * f['features on GPU']:.0f} %",
    "nodes": lambda f: f"{f['nodes']:,}",
    "edges": lambda f: f"{f['edges']:,}",
    "training nodes of an epoch": lambda f: f"{f['seeds']:,}",
    "rows of features of the largest batch": lambda f: f"{f['rows']:,}",
    "seconds per epoch": lambda f: f"{f['epoch s']:.2f}",
    "bandwidth limit of GraphSAGE, seconds": lambda f: f"{f['limit s']:.2f}",
    "peak memory, GB": lambda f: f"{f['peak GB']:.1f}",
    "copy bandwidth, GB/s": lambda f: f"{f['copy GB/s']:,.0f}",
}
CPU_ROWS = {
    "edges": lambda f: f"{f['edges']:,}",
    "size on disk, GB": lambda f: f"{f['store GB']:.2f}",
    "convert, million edges per second": lambda f: f"{f['edges'] / f['convert s'] / 1e6:.1f}",
    "training nodes": lambda f: f"{f['seeds']:,}",
    "training nodes per second": lambda f: f"{seeds_per_second(f):,.0f}",
    "microseconds per training node": lambda f: f"{1e6 / seeds_per_second(f):.0f}",
    "predicted nodes per second": lambda f: f"{nodes_per_second(f):,.0f}",
    "peak memory besides files, GB": lambda f: f"{f['peak GB']:.2f}",
    "sample, ms per batch": lambda f: f"{f['sample ms']:.1f}",
    "fetch, ms per batch": lambda f: f"{f['fetch ms']:.1f}",
    "train, ms per batch": lambda f: f"{f['train ms']:.1f}",
    "rows of features per batch": lambda f: f"{f['rows']:,.0f}",
    "moved by sample and fetch, MB per batch": lambda f: f"{f['moved MB']:.1f}",
    "copy bandwidth, GB/s": lambda f: f"{f['copy GB/s']:.1f}",
    "share of it in sample and fetch": lambda f: f"{100 * share_of_copy(f):.0f} %",
}
DEFAULT_ROWS = {
    "default, device": lambda f: "GPU" if is_gpu(f) else "CPU",
    "default, seconds": lambda f: f"{f['default s']:.0f}",
    "default, seconds until the first model": lambda f: f"{f['default first s']:.1f}",
    "default, compared models": lambda f: str(f["default models"]),
    "default, networks in batches": lambda f: "yes" if f["default batches"] else "no",
    "default, peak memory besides files, GB": lambda f: f"{f['default peak GB']:.2f}",
    "default, peak memory / arrays": lambda f: f"{f['default peak GB'] / f['arrays GB']:.1f}",
}

DEFAULT_LINES = (
    ("seconds", "fit", "default s"),
    ("seconds", "first model", "default first s"),
    ("GB", "memory besides files", "default peak GB"),
)


def seeds_per_second(found: dict[str, Any]) -> float:
    return float(found["seeds"] / found["train s"])


def nodes_per_second(found: dict[str, Any]) -> float:
    return float(found["nodes"] / found["predict s"])


def share_of_copy(found: dict[str, Any]) -> float:
    """Return the bytes per second of sample and fetch, relative to a large copy."""
    seconds = (found["sample ms"] + found["fetch ms"]) / 1000
    return float(found["moved MB"] * 1e6 / seconds / (found["copy GB/s"] * 1e9))


def scale_table(results: Sequence[dict[str, Any]]) -> str:
    """Return a Markdown table with a column for each measurement."""
    on_gpu = "method" in results[0]
    rows = GPU_ROWS if on_gpu else CPU_ROWS | DEFAULT_ROWS
    heads = [f["method"] if on_gpu else f"{short_number(f['nodes'])} nodes" for f in results]
    lines = ["| | " + " | ".join(heads) + " |", "|---|" + "--:|" * len(heads)]
    for name, cell in rows.items():
        cells = [_cell(cell, found) for found in results]
        if any(cell != MISSING for cell in cells):
            lines.append(f"| {name} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def _cell(cell: Callable[[dict[str, Any]], str], found: dict[str, Any]) -> str:
    try:
        return cell(found)
    except KeyError:  # not measured for this size
        return MISSING


def draw_scale(results: Sequence[dict[str, Any]], out: Path) -> None:
    """Draw speed, memory and the time of each stage against the number of nodes."""
    panels: dict[str, dict[str, list[float]]] = {
        "per second": {
            "training nodes": [seeds_per_second(found) for found in results],
            "predicted nodes": [nodes_per_second(found) for found in results],
        },
        "GB": {
            "memory besides files": [found["peak GB"] for found in results],
            "size on disk": [found["store GB"] for found in results],
        },
        "ms per batch": {
            name: [found[f"{name} ms"] for found in results]
            for name in ("sample", "fetch", "train")
        },
    }
    _draw([found["nodes"] for found in results], panels, out)


def draw_default(results: Sequence[dict[str, Any]], out: Path) -> None:
    """Draw time and memory of the default against the number of nodes, by device."""
    panels: dict[str, dict[str, list[float]]] = {"seconds": {}, "GB": {}}
    for unit, name, key in DEFAULT_LINES:
        for device, on_gpu in (("", False), (", GPU", True)):
            values = [f[key] if is_gpu(f) == on_gpu else math.nan for f in results]
            if not all(map(math.isnan, values)):
                panels[unit][name + device] = values
    panels["GB"]["arrays of the graph"] = [found["arrays GB"] for found in results]
    _draw([found["nodes"] for found in results], panels, out)


def is_gpu(found: dict[str, Any]) -> bool:
    return "CPU" not in found["default device"]


def _draw(nodes: Sequence[int], panels: dict[str, dict[str, list[float]]], out: Path) -> None:
    figure = new_figure(1, len(panels), width=4.6, height=3.4)
    for axes, (unit, lines) in zip(figure.subplots(1, len(panels)), panels.items(), strict=True):
        for marker, (name, values) in zip(MARKERS, lines.items(), strict=False):
            axes.loglog(nodes, values, marker=marker, label=name)
        axes.set_xticks(nodes, [short_number(count) for count in nodes])
        axes.minorticks_off()
        axes.yaxis.set_major_locator(LogLocator())
        axes.yaxis.set_major_formatter("{x:,g}")
        axes.legend(frameon=False, loc="upper center", bbox_to_anchor=(0.5, -0.2), ncols=2)
        tidy(axes, unit, "nodes")
    save_figure(figure, out.parent, out.stem)


if __name__ == "__main__":
    *files, picture = map(Path, sys.argv[1:])
    joined = [found for file in files for found in json.loads(file.read_text())]
    draw_default(joined, picture)
    print(scale_table(joined))
