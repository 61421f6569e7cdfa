"""A diagnosis as one self-contained HTML page: no script, no network, light and dark."""

from __future__ import annotations

from pathlib import Path

from canet.diagnosis.between_words import group_words, relies_on_moving
from canet.diagnosis.diagnosis import NEW, TRAINING, Diagnosis
from canet.diagnosis.estimate import Estimate
from canet.diagnosis.pictures import expected_bars, pictures
from canet.diagnosis.reliance import by_name
from canet.diagnosis.words import (
    answer,
    column_text,
    confidence_words,
    environment_words,
    headline,
    main_reliance,
    risky_blocks,
)
from canet.errors import CanetError
from canet.methods import METHODS
from canet.report.score import number
from canet.util.files import atomic_path

MOST_COLUMNS, MOST_BARS = 12, 6
GRAPHS = {TRAINING: "training graph", NEW: "new graph"}


def write_page(found: Diagnosis, target: Path) -> None:
    """Write a diagnosis as a page to the file `target`."""
    try:
        with atomic_path(target) as temporary:
            temporary.write_text(render(found), encoding="utf-8")
    except OSError as error:
        raise CanetError(
            f"cannot write '{target}' ({error.strerror}): choose another file with --out"
        ) from None


def render(found: Diagnosis) -> str:
    """The page as text. It shares the style sheet of the report."""
    from jinja2 import ChoiceLoader, Environment, PackageLoader, StrictUndefined

    folders = [PackageLoader(f"canet.{room}", "templates") for room in ("diagnosis", "report")]
    environment = Environment(
        loader=ChoiceLoader(folders),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {
        "number": number,
        "p_value": p_value,
        "interval": interval,
        "column": column_text,
    }
    main = main_reliance(found)
    return environment.get_template("diagnosis.html.jinja").render(
        found=found,
        methods={name: METHODS[name] for name in METHODS if name == found.model.method},
        label=known.label if (known := METHODS.get(found.model.method)) else found.model.method,
        headline=_unbroken([headline(found)])[0],
        answer=_unbroken(answer(found)),
        pictures=pictures(found),
        bars=expected_bars(found),
        main=main,
        rows=list(by_name(main)),
        reliance={
            GRAPHS[name]: (found.reliance[name], by_name(found.reliance[name]))
            for name in GRAPHS
            if name in found.reliance
        },
        risky=risky_blocks(found),
        moved={block.name: block for block in found.shift.blocks} if found.shift else {},
        columns=found.shift.columns[:MOST_COLUMNS] if found.shift else [],
        group_columns=found.between_groups.columns[:MOST_COLUMNS] if found.between_groups else [],
        group_bars=found.between_groups.columns[:MOST_BARS] if found.between_groups else [],
        group_words=_unbroken(group_words(found)),
        relies_on_moving=relies_on_moving(found),
        environments={
            GRAPHS[name]: found.environments[name] for name in GRAPHS if name in found.environments
        },
        environment_words=_unbroken(environment_words(found)),
        confidence_words=_unbroken(confidence_words(found)),
    )


def _unbroken(sentences: list[str]) -> list[str]:
    """With no line break between a number and its %."""
    return [sentence.replace(" %", "\N{NO-BREAK SPACE}%") for sentence in sentences]


def interval(estimate: Estimate, digits: int = 1) -> str:
    """The interval alone: `32.9 to 37.5`."""
    return f"{number(estimate.low, digits)} to {number(estimate.high, digits)}"


def p_value(value: float) -> str:
    """With three digits; a dash where no test was made."""
    return "< 0.001" if value < 0.001 else number(value, 3)
