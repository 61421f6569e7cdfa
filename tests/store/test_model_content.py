"""What model.json may say: all that a fit ends in; tests of hostile files try the rest."""

from __future__ import annotations

from typing import Any

import pytest

from canet.store.model_content import check_content

CONTENT: dict[str, Any] = {
    "classes": ["ant", "bee", "cat"],
    "num_features": 5,
    "num_environment_labels": 0,
    "settings": {"hidden": 8},
    "scores": {"train": 1.0, "valid": 0.75},
    "history": {"loss": [0.5, float("nan")], "valid": [75.0]},
    "selected_epoch": 1,
    "environments_seen": None,
}


@pytest.mark.parametrize(
    "change",
    [
        {},
        {"classes": [False, True]},
        {"classes": [-7, 0, 9]},
        {"classes": ["Käse", "ζ", "😀"]},
        {"num_environment_labels": 2, "environments_seen": ["north", "south"]},
        {"scores": {"train": 1, "valid": float("nan"), "test": 0.0}},
        {"history": {}},
        {"findings": {}},
        {"findings": {"num_columns": 5, "moved_columns": [], "share": []}},
        {"findings": {"num_columns": 5, "moved_columns": [4, 0], "share": [1.0, 0.2]}},
        {"findings": {"what another method": ["found"]}},
    ],
)
def test_what_a_fit_can_end_in_is_taken(change: dict[str, Any]) -> None:
    check_content(CONTENT | change)


@pytest.mark.parametrize("entry", CONTENT)
def test_every_entry_is_needed(entry: str) -> None:
    with pytest.raises(KeyError):
        check_content({name: value for name, value in CONTENT.items() if name != entry})


@pytest.mark.parametrize(
    "change",
    [
        {"classes": ["bee", "ant"]},
        {"classes": [0, True]},
        {"num_features": 5.0},
        {"scores": {"valid": 0.5}},
        {"history": {"loss": [None]}},
        {"selected_epoch": True},
        {"environments_seen": "north"},
        {"findings": {"moved_columns": [5], "share": [0.5]}},
    ],
)
def test_what_no_fit_ends_in_is_refused(change: dict[str, Any]) -> None:
    (name,) = change
    with pytest.raises(ValueError, match=name):
        check_content(CONTENT | change)
