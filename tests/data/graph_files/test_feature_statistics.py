from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
import torch

from canet.data.graph_files.feature_statistics import feature_statistics

PATH = Path("graph.npz")
X = np.array([[1, 5, np.nan, 2e5, 0], [2, 5, 1, 0, np.inf], [3, 5, np.nan, 0, 1]])


@pytest.mark.parametrize(
    "x",
    [
        X,
        X.astype(np.float32),
        sp.csr_matrix(X),
        torch.from_numpy(X),
        torch.from_numpy(X).to_sparse(),
        torch.from_numpy(X).to_sparse_csr(),
    ],
)
def test_what_looks_wrong_is_told_by_column_in_every_layout(x: Any) -> None:
    found = feature_statistics(x, PATH)
    assert (found.nodes, found.features, found.empty) == (3, 5, 2)
    warnings = [line.removeprefix("'graph.npz': x has ") for line in found.warnings]
    assert "NaN (2 entries; replace them) in column 2" in warnings
    assert "infinity (1 entries; replace them) in column 4" in warnings
    assert "values up to 200000 (standardise them) in column 3" in warnings
    assert any(
        line.startswith("the same value for all nodes in") and "1" in line for line in warnings
    )


def test_features_without_fault_have_no_warnings() -> None:
    found = feature_statistics(np.array([[0, 1.5], [1, -2]]), PATH)
    assert found.warnings == []
    assert (found.holds, found.content) == ("float64, dense", "-2 to 1.5")


@pytest.mark.parametrize(
    ("x", "problem"),
    [
        (np.arange(3.0), r"x has shape \[3\]"),
        (np.array([["a"], ["b"], ["c"]]), "x holds <U1: features are numbers"),
        (np.zeros((3, 0)), r"x has shape \[3, 0\]"),
    ],
)
def test_what_is_no_matrix_of_numbers_is_told(x: np.ndarray, problem: str) -> None:
    found = feature_statistics(x, PATH)
    assert found.nodes == 3
    assert found.features is None
    with pytest.raises(AssertionError, match=problem):
        raise AssertionError(*found.warnings)
