"""What model.json must say before a model is made of it.

A file may have the right checksum and still say what no model can be: edited and sealed again, or
written by something else.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from canet.store.kinds import are, is_count, is_number, is_score, is_text
from canet.store.soundness import are_findings

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
        "history": lambda value: all(are(curve, is_number) for curve in value.values()),
        "selected_epoch": _is_count,
        "environments_seen": lambda value: value is None or are(value, is_text),
    }
    for name, is_sound in rules.items():
        if not is_sound(content[name]):
            raise ValueError(name)
    if not _are_findings_of(content.get("findings", {}), content["num_features"]):
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


def _are_findings_of(found: Any, num_features: int) -> bool:
    """Whether the columns that were moved, if any, are some of the model's, with a share each."""
    if not are_findings(found) or found.get("num_columns", num_features) != num_features:
        return False
    columns = found.get("moved_columns", [])
    return (
        all(column < num_features for column in columns)
        and len(set(columns)) == len(columns)
        and _are_shares(found.get("share", []))
    )


def _are_shares(values: Any) -> bool:
    return all(is_score(100 * value) for value in values)


def _is_count(value: Any) -> bool:
    return is_count(value, LARGEST_COUNT)
