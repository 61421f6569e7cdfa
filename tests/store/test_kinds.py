"""What counts as a text, a number, a count and a list of them in JSON."""

from __future__ import annotations

import json
from typing import Any

import pytest

from canet.store.kinds import are, is_count, is_number, is_text

VALUES = '["a", 0, 7, 8, -1, 1.0, NaN, true, null, [], {}]'


@pytest.mark.parametrize(
    ("is_kind", "expected"),
    [
        (is_text, [0]),
        (is_number, [1, 2, 3, 4, 5, 6]),
        (lambda value: is_count(value, 8), [1, 2]),
        (lambda value: are(value, is_text), [9]),
    ],
)
def test_each_kind_takes_what_it_says(is_kind: Any, expected: list[int]) -> None:
    values = json.loads(VALUES)
    assert [place for place, value in enumerate(values) if is_kind(value)] == expected


def test_a_list_is_as_sound_as_each_of_its_values() -> None:
    assert are(["a", "b"], is_text)
    assert not are(["a", 1], is_text)
    assert not are("ab", is_text)
