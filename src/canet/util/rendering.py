"""Pages and figures: Jinja templates with formats of numbers, and matplotlib figures as SVG."""

from __future__ import annotations

import io
import math
import re
from collections.abc import Callable, Mapping
from datetime import datetime, timedelta
from pathlib import Path
from textwrap import fill
from typing import TYPE_CHECKING, Any

from markupsafe import Markup

from canet.util.files import atomic_path

if TYPE_CHECKING:
    from jinja2 import Environment
    from matplotlib.figure import Figure

GAP = "–"
"""Shown instead of a number that is not known."""
WIDTH = 98
EPOCH = datetime(1970, 1, 1)
NO_BREAK = "\N{NO-BREAK SPACE}"
# Placeholder colours, replaced by CSS variables so that charts follow light and dark mode.
INK, MUTED, LINE = "#000001", "#000002", "#000003"
VARIABLES = {INK: "ink", MUTED: "muted", LINE: "line"}
REPRODUCIBLE: Any = {"svg.hashsalt": "canet"}
PAGE_STYLE: Any = REPRODUCIBLE | {
    "svg.fonttype": "none",
    "text.parse_math": False,
    "text.color": INK,
    "axes.edgecolor": LINE,
    "axes.labelcolor": MUTED,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "grid.color": LINE,
    "xtick.color": MUTED,
    "ytick.color": MUTED,
    "font.size": 8,
}
"""Style of a figure that is part of a page; use it with `matplotlib.rc_context`."""
METADATA: dict[str, dict[str, Any]] = {"svg": {"Date": None}, "png": {"Software": None}}


def number(value: float, digits: int = 0) -> str:
    """Format a number with a typographic minus sign; a dash if it is not finite."""
    if not math.isfinite(value):
        return GAP
    return f"{round(value, digits) + 0.0:,.{digits}f}".replace("-", "−")


def percent(share: float, digits: int = 0) -> str:
    """Format a share between 0 and 1 in percent, without the % sign."""
    return number(100 * share, digits)


def amount(value: float, is_date: bool = False) -> str:
    """Format a value with four significant digits, or seconds since 1970 as a date."""
    if not math.isfinite(value):
        return GAP
    if is_date:
        return str((EPOCH + timedelta(seconds=value)).date())
    if 0 < abs(value) < 1e-3 or abs(value) >= 1e9:
        return f"{value:.3e}".replace("-", "−")
    digits = 3 - math.floor(math.log10(abs(value))) if value else 0
    return number(value, max(0, digits))


def interval(interval: Any, digits: int = 1) -> str:
    """Format an interval with the limits `low` and `high`: `0.33 to 0.38`."""
    return f"{number(interval.low, digits)} to {number(interval.high, digits)}"


def percent_interval(interval: Any, digits: int = 1) -> str:
    """Format an interval in percent: `32.9 to 37.5`."""
    return f"{percent(interval.low, digits)} to {percent(interval.high, digits)}"


def no_break(text: str) -> str:
    """Prevent line breaks between a number and its %."""
    return text.replace(" %", f"{NO_BREAK}%")


def wrap(text: str, indent: str = "") -> str:
    """Wrap a paragraph for a terminal; `indent` starts all lines after the first."""
    words = no_break(" ".join(text.split()))
    lines = fill(words, WIDTH, subsequent_indent=indent, break_on_hyphens=False)
    return lines.replace(NO_BREAK, " ")


FORMATS = (number, percent, amount, interval, percent_interval, no_break, wrap)


def environment(
    *folders: tuple[str, str], html: bool = True, **filters: Callable[..., Any]
) -> Environment:
    """A Jinja environment for templates in folders of packages, with the formats as filters.

    Text is escaped if the templates are HTML.
    """
    from jinja2 import ChoiceLoader, Environment, PackageLoader, StrictUndefined

    made = Environment(
        loader=ChoiceLoader([PackageLoader(package, folder) for package, folder in folders]),
        autoescape=html,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    made.filters.update({function.__name__: function for function in FORMATS}, **filters)
    return made


def write_page(page: str, target: Path) -> None:
    """Write a page to a file; file names on it may contain bytes that are not UTF-8."""
    with atomic_path(target) as temporary:
        temporary.write_text(page, encoding="utf-8", errors="backslashreplace")


def inline_svg(figure: Figure, variables: Mapping[str, str]) -> Markup:
    """The SVG of a figure as a part of a page, without background and generated ids.

    `variables` maps more placeholder colours to CSS variables.
    """
    text = io.StringIO()
    none = dict.fromkeys(("Date", "Creator", "Format", "Type"))
    figure.savefig(text, format="svg", transparent=True, metadata=none)
    svg = text.getvalue()
    svg = svg[svg.index("<svg") :]
    svg = re.sub(r'<g id="\w+">', "<g>", svg)  # an id with a hyphen was set by the caller
    svg = re.sub(r"(\.\d\d)\d+", r"\1", svg)
    svg = re.sub(r"\s+", " ", svg)
    for colour, variable in {**VARIABLES, **variables}.items():
        svg = svg.replace(colour, f"var(--{variable})")
    return Markup(svg)


def save_figure(figure: Figure, folder: Path, name: str) -> None:
    """Write FOLDER/NAME.svg and FOLDER/NAME.png without a date; equal data give equal files."""
    from matplotlib import rc_context

    for kind, metadata in METADATA.items():
        with rc_context(REPRODUCIBLE), atomic_path(folder / f"{name}.{kind}") as path:
            figure.savefig(path, format=kind, metadata=metadata)
