from datetime import UTC, datetime

import numpy as np
import pytest

from canet.data.graph_files.cells import (
    as_booleans,
    as_classes,
    as_ids,
    as_integers,
    as_numbers,
    as_seconds,
    as_text,
)


def texts(*cells: str) -> np.ndarray:
    return np.array(cells, dtype=object)


def test_numbers_are_read_from_text_and_empty_cells_are_nan() -> None:
    np.testing.assert_array_equal(as_numbers(texts("1", "", "-2.5e1")), [1, np.nan, -25])
    assert as_numbers(texts("1", "one")) is None
    assert as_numbers(np.array([True])) is None


def test_true_and_false_are_read_in_any_case() -> None:
    np.testing.assert_array_equal(as_booleans(texts("True", "", "FALSE")), [1, np.nan, 0])
    assert as_booleans(texts("true", "1")) is None


def test_dates_count_seconds_and_respect_time_zones() -> None:
    expected = datetime(2024, 1, 31, 10, tzinfo=UTC).timestamp()
    found = as_seconds(texts("2024-01-31T10:00", "2024-01-31T12:00:00+02:00", ""))
    np.testing.assert_array_equal(found, [expected, expected, np.nan])
    days = np.array(["2024-01-31T10", "NaT"], dtype="datetime64[us]")
    np.testing.assert_array_equal(as_seconds(days), [expected, np.nan])
    assert as_seconds(texts("2024-01-31", "soon")) is None


def test_whole_numbers_may_be_written_with_a_point() -> None:
    assert as_integers(texts("7", "8.0")).tolist() == [7, 8]
    assert as_integers(np.array([7.0, 8.0])).dtype == np.int64
    assert as_integers(texts("7", "8.5")) is None
    assert as_integers(texts("7", "")) is None


def test_ids_are_integers_only_where_they_are_written_so() -> None:
    assert as_ids(texts("7", "-8"), typed=False).tolist() == [7, -8]
    assert as_ids(texts("7.0", "8.0"), typed=False).tolist() == [7, 8]
    assert as_ids(texts("7", "008"), typed=False).tolist() == ["7", "008"]
    assert as_ids(texts("7", "8"), typed=True).tolist() == ["7", "8"]
    huge = str(2**70)
    assert as_ids(texts("7", huge), typed=False).tolist() == ["7", huge]


@pytest.mark.parametrize(
    ("cells", "expected"),
    [
        (texts("1", "", "3"), [1, -1, 3]),
        (texts("1.0", "2.0"), [1, 2]),
        (texts("01", "02"), ["01", "02"]),
        (texts("a", ""), ["a", None]),
        (np.array([2.0, np.nan]), [2, -1]),
        (np.array([True, False]), ["True", "False"]),
        (texts("", ""), [-1, -1]),
    ],
)
def test_classes_are_integers_or_text(cells: np.ndarray, expected: list) -> None:
    assert as_classes(cells).tolist() == expected


def test_quantities_are_left_for_the_door_to_refuse() -> None:
    assert as_classes(texts("0.5", "1")).dtype == np.float64


def test_text_of_numbers_is_what_python_writes() -> None:
    assert as_text(np.array([1, 2])).tolist() == ["1", "2"]
    assert as_text(np.array([0.5, np.nan])).tolist() == ["0.5", ""]
