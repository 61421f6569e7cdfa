"""Table and picture of `python -m benchmarks scale`."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from matplotlib.ticker import LogLocator

from benchmarks.pictures import short_number
from canet.report.figures import MARKERS, new_figure, tidy
from canet.util.rendering import save_figure

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
    rows = GPU_ROWS if on_gpu else CPU_ROWS
    heads = [f["method"] if on_gpu else f"{short_number(f['nodes'])} nodes" for f in results]
    lines = ["| | " + " | ".join(heads) + " |", "|---|" + "--:|" * len(heads)]
    for name, cell in rows.items():
        lines.append(f"| {name} | " + " | ".join(cell(found) for found in results) + " |")
    return "\n".join(lines)


def draw_scale(results: Sequence[dict[str, Any]], out: Path) -> None:
    """Draw speed, memory and the time of each stage against the number of nodes."""
    nodes = [found["nodes"] for found in results]
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
    figure = new_figure(1, len(panels), width=3.6, height=3.0)
    for axes, (unit, lines) in zip(figure.subplots(1, len(panels)), panels.items(), strict=True):
        for marker, (name, values) in zip(MARKERS, lines.items(), strict=False):
            axes.loglog(nodes, values, marker=marker, label=name)
        axes.set_xticks(nodes, [short_number(count) for count in nodes])
        axes.minorticks_off()
        axes.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
        axes.yaxis.set_major_formatter("{x:,g}")
        axes.legend(frameon=False)
        tidy(axes, unit, "nodes")
    save_figure(figure, out.parent, out.stem)
