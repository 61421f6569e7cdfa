"""Pages and figures: Jinja templates with formats of numbers, and matplotlib figures as SVG."""

from __future__ import annotations

import io
import math
import re
import warnings
from collections.abc import Callable, Iterable
from datetime import datetime, timedelta
from pathlib import Path
from textwrap import fill
from typing import TYPE_CHECKING, Any

from markupsafe import Markup

from canet.errors import printable
from canet.util.colour import Colour
from canet.util.files import atomic_path

if TYPE_CHECKING:
    from jinja2 import Environment
    from matplotlib.figure import Figure

GAP = "–"  # shown instead of a number that is not known
WIDTH = 98
EPOCH = datetime(1970, 1, 1)
MIN_DATE, MAX_DATE = -62e9, 253e9  # seconds; Python has no dates before the year 1 or after 9999
NO_BREAK = "\N{NO-BREAK SPACE}"
PAGES = Path(__file__).parent / "pages"  # style sheet and macros that all pages share
# Placeholder colours, replaced by CSS variables so that charts follow light and dark mode.
INK, MUTED, LINE, ACCENT, WARN = (f"#00000{i}" for i in range(1, 6))
VARIABLES = {INK: "ink", MUTED: "muted", LINE: "line", ACCENT: "accent", WARN: "warn"}
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
    "axes.axisbelow": True,
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
    if is_date and MIN_DATE < value < MAX_DATE:
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


def environment(*folders: Path, html: bool = True, **filters: Callable[..., Any]) -> Environment:
    """A Jinja environment for templates in folders and in `pages`; HTML escapes the texts."""
    from jinja2 import Environment, FileSystemLoader, StrictUndefined

    def finalize(value: object) -> str:
        is_markup = isinstance(value, Markup)
        text = printable(value, keep_lines=is_markup or not html)  # macros return several lines
        return Markup(text) if is_markup else text

    made = Environment(
        loader=FileSystemLoader([*folders, PAGES]),  # a PackageLoader would import the package
        autoescape=html,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        finalize=finalize,
    )
    made.filters.update({function.__name__: function for function in FORMATS}, **filters)
    return made


def write_page(page: str, target: Path) -> None:
    """Write a page to a file; file names on it may contain bytes that are not UTF-8."""
    with atomic_path(target) as temporary:
        temporary.write_text(page, encoding="utf-8", errors="backslashreplace")


def inline_svg(figure: Figure, colours: Iterable[Colour] = ()) -> Markup:
    """The SVG of a figure in `PAGE_STYLE` as a part of a page, without background and ids.

    The light code of each colour becomes the dark one in dark mode.
    """
    from matplotlib import rc_context

    text = io.StringIO()
    none = dict.fromkeys(("Date", "Creator", "Format", "Type"))
    with rc_context(PAGE_STYLE), warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Glyph .* missing from font")  # browsers have more fonts
        figure.savefig(text, format="svg", transparent=True, metadata=none)
    svg = text.getvalue()
    svg = svg[svg.index("<svg") :]
    svg = re.sub(r'<g id="\w+">', "<g>", svg)
    svg = re.sub(r"(\.\d\d)\d+", r"\1", svg)
    svg = re.sub(r"\s+", " ", svg)
    css = {code: f"var(--{name})" for code, name in VARIABLES.items()}
    css |= {one.light: f"light-dark({one.light}, {one.dark})" for one in colours}
    return Markup(re.sub(r"#[0-9a-f]{6}", lambda code: css.get(code[0], code[0]), svg))


def save_figure(figure: Figure, folder: Path, name: str) -> None:
    """Write FOLDER/NAME.svg and FOLDER/NAME.png without a date; equal data give equal files."""
    from matplotlib import rc_context

    for kind, metadata in METADATA.items():
        with rc_context(REPRODUCIBLE), atomic_path(folder / f"{name}.{kind}") as path:
            figure.savefig(path, format=kind, metadata=metadata)
