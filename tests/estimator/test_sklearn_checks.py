"""scikit-learn's own checks, on graphs without edges: a table of rows and labels."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from sklearn.utils.estimator_checks import parametrize_with_checks
from torch_geometric.data import Data

from canet import NodeClassifier
from canet.models.base import Reader

NOT_FOR_GRAPHS = {
    "check_dtype_object": "expects a TypeError for what is no number, ours is a ValueError",
    "check_classifiers_classes": "has a class named -1, which here says that a label is unknown",
    "check_supervised_y_2d": "expects a warning for y of shape [N, 1], which is taken as it is",
    "check_array_api_input": "skips itself without SCIPY_ARRAY_API",
    "check_methods_subset_invariance": "compares to 1e-7, where one rounding of float32 is 6e-8",
}


class EdgelessClassifier(NodeClassifier):
    """Treats a table as a graph without edges; has no settings."""

    def __init__(self, *, epochs: int = 12, class_weight: Any = None, random_state: int = 0):
        super().__init__(
            "erm",
            epochs=epochs,
            class_weight=class_weight,
            device="cpu",
            random_state=random_state,
            verbose=0,
        )

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.two_d_array = tags.input_tags.sparse = True
        tags.no_validation = False
        return tags

    def fit(self, X: Any, y: Any) -> EdgelessClassifier:
        super().fit(edgeless(X, y))
        return self

    def prepare(self, data: Any, batch: None = None) -> Reader:
        return super().prepare(data if isinstance(data, Data | Reader) else edgeless(data))

    def score(self, X: Any, y: Any) -> float:
        return super().score(edgeless(X, y))


def edgeless(X: Any, y: Any = None) -> Data:
    return Data(x=X, edge_index=torch.empty(2, 0, dtype=torch.long), y=y)


@pytest.mark.filterwarnings("ignore")
@parametrize_with_checks(
    [EdgelessClassifier()], expected_failed_checks=lambda estimator: NOT_FOR_GRAPHS
)
def test_scikit_learn_check(estimator: EdgelessClassifier, check: Callable[..., None]) -> None:
    check(estimator)
