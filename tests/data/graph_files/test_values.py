from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from canet.data.graph_files.values import as_classes, as_ids, as_numbers, rows_of_ids


@pytest.mark.parametrize(
    ("cells", "is_csv", "expected"),
    [
        (["7", "-8"], True, [7, -8]),
        (["7.0", "8.0"], True, [7, 8]),
        (["7", "008"], True, ["7", "008"]),
        (["7", str(2**70)], True, ["7", str(2**70)]),
        (["7", "8"], False, ["7", "8"]),
        ([7.0, 8.0], False, [7, 8]),
        ([7.5, 8.0], False, ["7.5", "8"]),
    ],
)
def test_ids_are_integers_only_if_they_are_written_as_integers(
    cells: list[Any], is_csv: bool, expected: list[Any]
) -> None:
    assert as_ids(pa.array(cells), is_csv).to_pylist() == expected


@pytest.mark.parametrize(
    ("ids", "cells"),
    [
        ([7, 5, 10**12], [5, 9, 10**12, None]),
        ([7, 5, 6], [5.0, 9.5, 6.0, None]),
        ([7, 5, 10**12], ["5.0", "x", "1000000000000", None]),
        (["7", "5", "é"], ["5", "05", "é", None]),
        (["7", "5", "6"], [5, 9, 6, None]),
    ],
)
def test_each_id_is_found_in_its_row(ids: list[Any], cells: list[Any]) -> None:
    assert rows_of_ids(pa.chunked_array([cells]), pa.array(ids)).tolist() == [1, -1, 2, -1]


@pytest.mark.parametrize(
    ("cells", "expected"),
    [
        (["1", None, "3"], [1, -1, 3]),
        (["1.0", "2.0"], [1, 2]),
        (["01", "02"], ["01", "02"]),
        (["a", None], ["a", None]),
        ([2.0, None], [2, -1]),
        ([2**60, 1], [2**60, 1]),
        ([True, False], [True, False]),
        (["true", "FALSE", None], [True, False, None]),
        (["true", "maybe"], ["true", "maybe"]),
        ([None, None], [-1, -1]),
        (["0.5", "1"], [0.5, 1.0]),
    ],
)
def test_classes_are_integers_booleans_or_text(cells: list[Any], expected: list[Any]) -> None:
    found = as_classes(pa.chunked_array([cells]))
    assert found.tolist() == expected


def test_dates_are_seconds_and_empty_cells_are_nan() -> None:
    days = pa.array([np.datetime64("1970-01-02T00:00:01", "us"), None], pa.timestamp("us"))
    np.testing.assert_array_equal(as_numbers(days), [86401, np.nan])
    np.testing.assert_array_equal(as_numbers(pa.array([True, None])), [1, np.nan])
