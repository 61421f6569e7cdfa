"""What the files of a finished run must hold before a summary, a table or a page uses them.

A file may be JSON and still be no result: edited, cut and mended, or written by something else.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from canet.errors import CanetError
from canet.store.kinds import are, is_count, is_number, is_score, is_text
from canet.store.run_folder import METRICS, RESULT
from canet.store.summary import NEEDED, OOD

HIGHEST_POINT = 1000.0
"""Of a curve of scores, either way: a picture of more shows nothing."""
LARGEST = 1e15
"""Of what is counted or measured in a run."""


def check_result(result: Any, folder: Path) -> None:
    """Refuse a result that lacks what is shown of it, or holds what no run can have."""
    path = folder / RESULT
    if not isinstance(result, dict):
        raise _damaged(path, f"it holds {_shown(result)}")
    if missing := NEEDED - result.keys():
        raise CanetError(
            f"the result in '{folder}' lacks {', '.join(sorted(missing))}: delete the folder and "
            "train the run again"
        )
    rules: dict[str, Callable[[Any], bool]] = {
        "scores": lambda value: isinstance(value, dict),
        "selection": lambda value: isinstance(value, str),
        "selected_epoch": _is_count,
        "environments_seen": lambda value: value is None or are(value, is_text),
        "epochs": _is_count,
        "seconds_per_epoch": _is_amount,
        "peak_memory_mb": lambda value: _is_amount(value) or value != value,  # NaN: not known
        "device": is_text,
        "versions": lambda value: isinstance(value, dict) and are([*value.values()], is_text),
    }
    for name, is_sound in rules.items():
        if not is_sound(result[name]):
            raise _damaged(path, f"its {name} is {_shown(result[name])}")
    last = result.get("last_scores", {})
    if not isinstance(last, dict):
        raise _damaged(path, f"its last_scores is {_shown(last)}")
    for name, score in [*result["scores"].items(), *last.items()]:
        if not is_score(score):
            raise _damaged(path, f"its score '{name}' is {_shown(score)}, and no percentage")
    if not _are_environments(result.get("inferred_environments")):
        raise _damaged(path, "its inferred_environments do not belong together")
    if not are_findings(result.get("findings", {})):
        raise _damaged(path, "its findings do not belong together")


def check_under_shift(result: dict[str, Any], folder: Path) -> None:
    """Refuse a result without any score under shift, which is what is compared."""
    if not any(name.startswith(OOD) for name in result["scores"]):
        raise CanetError(
            f"'{folder / RESULT}' has no score under shift: give the task a test_ood set and train "
            "the run again"
        )


def check_metrics(metrics: Any, folder: Path) -> None:
    """Refuse curves that are no numbers, or of sets under shift that are not equally long."""
    path = folder / METRICS
    if not isinstance(metrics, dict):
        raise _damaged(path, f"it holds {_shown(metrics)}")
    for name, curve in metrics.items():
        if not are(curve, is_number if name == "loss" else _can_be_drawn):
            raise _damaged(path, f"its '{name}' is no curve")
    if len({len(curve) for name, curve in metrics.items() if name.startswith(OOD)}) > 1:
        raise _damaged(path, "its curves under shift are not equally long")


def _are_environments(found: Any) -> bool:
    """Whether layers and environments of what a model inferred are as many everywhere."""
    if found is None:
        return True
    if not isinstance(found, Mapping) or not are(found.get("effective"), _is_amount):
        return False
    layers, posterior = len(found["effective"]), found.get("posterior")
    matches = found.get("alignment") or [0.0] * layers
    if not are(matches, is_number) or len(matches) != layers or not isinstance(posterior, dict):
        return False
    if "train" not in posterior:
        return False
    shares = [row for rows in posterior.values() if isinstance(rows, list) for row in rows]
    return (
        are([*posterior.values()], lambda rows: isinstance(rows, list) and len(rows) == layers)
        and are(shares, lambda row: bool(row) and are(row, is_number))
        and len({len(row) for row in shares}) == 1
    )


def are_findings(found: Any) -> bool:
    """Whether the columns that were moved, if any, have a share each."""
    if not isinstance(found, Mapping):
        return False
    columns, shares = found.get("moved_columns", []), found.get("share", [])
    return are(columns, _is_count) and are(shares, _is_amount) and len(columns) == len(shares)


def _is_count(value: Any) -> bool:
    return is_count(value, LARGEST)


def _is_amount(value: Any) -> bool:
    return is_number(value) and 0 <= value < LARGEST


def _can_be_drawn(value: Any) -> bool:
    return is_number(value) and not abs(value) > HIGHEST_POINT


def _shown(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 40 else f"{text[:40]}…"


def _damaged(path: Path, cause: str) -> CanetError:
    return CanetError(
        f"'{path}' is damaged ({cause}): delete '{path.parent}' and train the run again"
    )
