"""What model.json must say before a model is made of it.

A file may have the right checksum and still say what no model can be: edited and sealed again, or
written by something else.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from canet.training.metrics import is_score

LARGEST_COUNT = 2**31


def check_content(content: Mapping[str, Any]) -> None:
    """Refuse entries that no model has.

    Raises:
        ValueError, TypeError, KeyError, AttributeError: An entry is wrong, or missing; the caller
            says of which model.
    """
    rules: dict[str, Callable[[Any], bool]] = {
        "classes": _are_classes,
        "num_features": lambda value: _is_count(value) and value > 0,
        "num_environment_labels": _is_count,
        "settings": lambda value: isinstance(value, dict),
        "scores": lambda value: {"train", "valid"} <= value.keys() and _are_shares(value.values()),
        "history": lambda value: all(_are(curve, _is_number) for curve in value.values()),
        "selected_epoch": _is_count,
        "environments_seen": lambda value: value is None or _are(value, _is_text),
    }
    for name, is_sound in rules.items():
        if not is_sound(content[name]):
            raise ValueError(name)
    if not _are_findings(content.get("findings", {}), content["num_features"]):
        raise ValueError("findings")


def _are_classes(classes: Any) -> bool:
    """Whether these are two or more labels of one type, ascending."""
    if not isinstance(classes, list) or len({type(label) for label in classes}) != 1:
        return False
    if not isinstance(classes[0], bool | int | str):
        return False
    labels = np.array(classes)
    if labels.dtype.kind == "U":
        "".join(classes).encode()  # no half of a pair of surrogates, which no file can hold
    return labels.dtype.kind in "biU" and np.unique(labels).tolist() == classes and len(classes) > 1


def _are_findings(found: Any, num_features: int) -> bool:
    """Whether the columns that were moved, if any, are some of the model's, with a share each."""
    if not isinstance(found, dict) or found.get("num_columns", num_features) != num_features:
        return False
    columns, shares = found.get("moved_columns", []), found.get("share", [])
    return (
        _are(columns, lambda column: _is_count(column) and column < num_features)
        and len(set(columns)) == len(columns) == len(shares)
        and _are_shares(shares)
    )


def _are_shares(values: Any) -> bool:
    return all(is_score(100 * value) for value in values)


def _are(values: Any, is_sound: Callable[[Any], bool]) -> bool:
    return isinstance(values, list) and all(map(is_sound, values))


def _is_text(value: Any) -> bool:
    return isinstance(value, str)


def _is_number(value: Any) -> bool:
    return type(value) in (int, float)


def _is_count(value: Any) -> bool:
    return type(value) is int and 0 <= value < LARGEST_COUNT
