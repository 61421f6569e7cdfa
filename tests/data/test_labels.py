from typing import Any

import numpy as np
import pytest
import torch

from canet.data.labels import check_labels
from canet.errors import InputError

NAN = float("nan")


@pytest.mark.parametrize(
    ("y", "values", "known"),
    [
        ([3, -1, 0], [3, None, 0], "i"),
        ([True, False, True], [True, False, True], "b"),
        (["cat", "dog", ""], ["cat", "dog", ""], "U"),
        ([1.0, NAN, -1.0], [1, None, None], "i"),
        ([1, None, 2], [1, None, 2], "i"),
        (["cat", None, NAN], ["cat", None, None], "U"),
        ([True, None, False], [True, None, False], "b"),
        ([None, 2.0, -1], [None, 2, None], "i"),
        ([None, NAN, None], [None, None, None], "i"),
        (np.array([1, 2, 3], dtype=np.uint64), [1, 2, 3], "i"),
        (np.array([1, NAN, 3], dtype=np.float16), [1, None, 3], "i"),
        (np.array(["a", "b", "c"]), ["a", "b", "c"], "U"),
        (np.array([2**63 - 1, -(2**63), 0]), [2**63 - 1, -(2**63), 0], "i"),
        (torch.tensor([0, 1, -1], dtype=torch.int8), [0, 1, None], "i"),
        (torch.tensor([[0], [1], [-1]]), [0, 1, None], "i"),
        ([["a"], [None], ["a"]], ["a", None, "a"], "U"),
        (torch.tensor([0, 1, NAN], dtype=torch.bfloat16), [0, 1, None], "i"),
    ],
)
def test_labels_keep_their_values_and_unknown_labels_are_marked(
    y: Any, values: list[Any], known: str
) -> None:
    found = check_labels(y, 3)
    assert found.names.dtype.kind == known
    assert found.names.tolist() == sorted({v for v in values if v is not None})
    assert [None if c < 0 else found.names[c] for c in found.codes] == values


def test_pandas_labels_are_accepted_and_their_missing_values_are_unknown() -> None:
    pandas = pytest.importorskip("pandas")
    for kind, values in (
        ("Int64", [3, None, 1]),
        ("boolean", [True, None, False]),
        ("string", ["a", None, "b"]),
        ("category", ["a", None, "b"]),
        ("object", ["a", None, "b"]),
    ):
        found = check_labels(pandas.Series(values, dtype=kind), 3)
        assert found.names.tolist() == sorted([values[0], values[2]])
        assert found.codes[1] == -1


@pytest.mark.skipif(not hasattr(np.dtypes, "StringDType"), reason="numpy before 2")
def test_numpy_strings_of_variable_length_are_accepted() -> None:
    y = np.array(["a", "long enough"], dtype=np.dtypes.StringDType())
    assert check_labels(y, 2).names.tolist() == ["a", "long enough"]


@pytest.mark.parametrize(
    "y",
    [
        [0.5, 0, 1],
        [float("inf"), 0, 1],
        np.array([2.0**60, 0, 1]),
        np.array([2**63, 0, 1], dtype=np.uint64),
        [2**70, 0, 1],
        [None, 2**63, 1],
        [None, 1.5, 1],
        [1, "a", 2],
        [True, 1, None],
        [b"a", None, b"b"],
        np.array([b"a", b"b", b"c"]),
        [1j, 1, 2],
        np.array([1, 2, 3], dtype="datetime64[s]"),
        [[0, 1], [1, 0], [0, 1]],
        torch.zeros(3, 1, 1),
        [0, 1],
        "aba",
        np.ma.array([0, 1, 0], mask=[True, False, False]),
        torch.ones(3).to_sparse(),
    ],
    ids=str,
)
def test_invalid_labels_are_rejected(y: Any) -> None:
    with pytest.raises(InputError, match="region"):
        check_labels(y, 3, "region")
