"""A diagnosis as text for a terminal, and as a self-contained HTML page without scripts."""

from __future__ import annotations

import math
from collections.abc import Sequence
from datetime import datetime, timedelta
from textwrap import fill

from jinja2 import ChoiceLoader, Environment, PackageLoader, StrictUndefined

from canet.diagnosis.estimate import Estimate
from canet.util.console import console, make_table

WIDTH = 98
EPOCH = datetime(1970, 1, 1)
NO_BREAK = "\N{NO-BREAK SPACE}"
FOLDERS = [("diagnosis", "templates"), ("diagnosis", "sections"), ("report", "templates")]


def render(template: str, **values: object) -> str:
    """Fill a template, of a page with the style sheet of the report or of a text for a terminal."""
    environment = Environment(
        loader=ChoiceLoader([PackageLoader(f"canet.{part}", path) for part, path in FOLDERS]),
        autoescape=".html" in template,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    filters = (number, percent, amount, p_value, interval, percent_interval, no_break, wrap)
    environment.filters |= {function.__name__: function for function in filters}
    environment.globals |= {"table": table, "methods": {}, "controls": {}} | values
    return environment.get_template(template).render()


def no_break(text: str) -> str:
    """Prevent line breaks between a number and its %."""
    return text.replace(" %", f"{NO_BREAK}%")


def wrap(text: str, indent: str = "") -> str:
    """Wrap a paragraph for a terminal; `indent` starts all lines after the first."""
    words = no_break(" ".join(text.split()))
    lines = fill(words, WIDTH, subsequent_indent=indent, break_on_hyphens=False)
    return lines.replace(NO_BREAK, " ")


def number(value: float, digits: int = 0) -> str:
    """Format a number with a fixed number of digits; a dash if it is not finite."""
    if not math.isfinite(value):
        return "–"
    return f"{round(value, digits) + 0.0:,.{digits}f}".replace("-", "−")


def percent(share: float, digits: int = 0) -> str:
    """Format a share between 0 and 1 in percent, without the % sign."""
    return number(100 * share, digits)


def amount(value: float, is_date: bool = False) -> str:
    """Format a value with four significant digits, or seconds since 1970 as a date."""
    if not math.isfinite(value):
        return number(value)
    if is_date:
        return str((EPOCH + timedelta(seconds=value)).date())
    if 0 < abs(value) < 1e-3 or abs(value) >= 1e9:
        return f"{value:.3e}".replace("-", "−")
    digits = 3 - math.floor(math.log10(abs(value))) if value else 0
    return number(value, max(0, digits))


def interval(estimate: Estimate, digits: int = 1) -> str:
    """Format an interval: `0.33 to 0.38`."""
    return f"{number(estimate.low, digits)} to {number(estimate.high, digits)}"


def percent_interval(estimate: Estimate, digits: int = 1) -> str:
    """Format an interval in percent: `32.9 to 37.5`."""
    return f"{percent(estimate.low, digits)} to {percent(estimate.high, digits)}"


def p_value(value: float) -> str:
    """Format a p-value with three digits; a dash if it is NaN."""
    return "< 0.001" if value < 0.001 else number(value, 3)


def table(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    screen = console()
    with screen.capture() as captured:
        screen.print(make_table(columns, rows))
    return captured.get()
