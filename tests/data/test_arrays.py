from typing import Any

import numpy as np
import pytest
import torch

from canet.data.arrays import as_array, as_tensor
from canet.errors import InputError

NUMBERS = ["?", "u1", "u2", "u4", "u8", "i1", "i2", "i4", "i8", "f2", "f4", "f8", "longdouble"]
SWAPPED = [">i2", ">i8", ">f4", ">f8", ">u4"]  # big-endian
TABLE = np.array([[1, 0, 1], [0, 1, 1]])


@pytest.mark.parametrize("kind", [*NUMBERS, *SWAPPED])
def test_every_real_numpy_type_becomes_a_tensor_of_the_same_numbers(kind: str) -> None:
    assert as_tensor(TABLE.astype(kind), "x").to(torch.long).tolist() == TABLE.tolist()


def test_arrays_and_lists_of_any_layout_become_tensors_of_the_same_numbers() -> None:
    assert as_tensor(TABLE[::-1], "x").tolist() == TABLE[::-1].tolist()
    assert as_tensor(TABLE.T, "x").tolist() == TABLE.T.tolist()
    assert as_tensor(range(3), "nodes").tolist() == [0, 1, 2]
    assert as_tensor([True, False], "train").dtype == torch.bool
    assert as_tensor(((0, 1), (1, 0)), "edge_index").tolist() == [[0, 1], [1, 0]]
    assert as_tensor(np.ma.array([1, 2], mask=[False, False]), "x").tolist() == [1, 2]
    large = as_tensor(np.array([2**64 - 1, 2**63], dtype=np.uint64), "x")
    assert large.double().tolist() == [2.0**64, 2.0**63]


def test_results_share_neither_memory_nor_gradients_with_their_source() -> None:
    x = torch.ones(2, requires_grad=True)
    assert not as_tensor(x * 2, "x").requires_grad
    assert as_array(x * 2, "x").tolist() == [2, 2]
    given = np.zeros(3)
    as_tensor(given, "x")[0] = 1
    assert given.tolist() == [0, 0, 0]


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.half, torch.float8_e4m3fn, torch.double])
def test_every_torch_float_type_becomes_an_array(dtype: torch.dtype) -> None:
    assert as_array(torch.tensor([1.0, -2.0]).to(dtype), "y").tolist() == [1, -2]


def test_unknown_entries_among_strings_stay_unknown() -> None:
    assert as_array(["a", None], "y").tolist() == ["a", None]
    mixed = as_array(["a", float("nan")], "y")
    assert mixed[0] == "a"
    assert mixed[1] != mixed[1]


@pytest.mark.parametrize(
    "values",
    [
        "degree",
        3,
        {"a": 1},
        None,
        {1, 2},
        slice(3),
        [[1, 2], [3]],
        torch.eye(2).to_sparse_csr(),
        np.ma.array([1, 2], mask=[False, True]),
        [torch.ones(1, requires_grad=True)],
    ],
    ids=str,
)
def test_values_that_are_not_an_array_are_rejected(values: Any) -> None:
    for convert in (as_tensor, as_array):
        with pytest.raises(InputError, match=r"^nodes "):
            convert(values, "nodes")


@pytest.mark.parametrize(
    "values",
    [
        ["a", "b"],
        np.array([b"a"]),
        [object()],
        [1, None, "a"],
        np.array([1, 2], dtype="datetime64[s]"),
    ],
)
def test_text_objects_and_dates_are_not_numbers(values: Any) -> None:
    with pytest.raises(InputError, match="nodes"):
        as_tensor(values, "nodes")
