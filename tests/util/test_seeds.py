"""Validation of seeds."""

from typing import Any

import numpy as np
import pytest
import torch

from canet.errors import InputError
from canet.util.seeds import MAX_SEED, checked_seed


@pytest.mark.parametrize(
    "seed", [0, np.int64(1), np.array(1), torch.tensor(1), np.uint32(MAX_SEED)]
)
def test_integers_of_any_library_become_python_integers(seed: Any) -> None:
    assert type(checked_seed(seed)) is int
    assert checked_seed(seed) == int(seed)


@pytest.mark.parametrize(
    "seed", [-1, MAX_SEED + 1, 1.0, np.float64(1), True, np.bool_(True), None, "1"], ids=str
)
def test_anything_else_is_rejected(seed: Any) -> None:
    with pytest.raises(InputError, match="data_seed"):
        checked_seed(seed, "data_seed")
