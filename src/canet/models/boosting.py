"""Boosted trees of scikit-learn, and its five private names that they need.

They may change in any version of scikit-learn. A weekly job tests the next one.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np

from canet.errors import VersionError, first_line

TESTED = "scikit-learn>=1.7,<1.10"
NO_CATEGORIES = np.zeros((0, 8), np.uint32), np.zeros(0, np.uint32)


def import_boosting() -> None:
    """Import what takes long the first time that trees are trained."""
    import sklearn.decomposition
    import sklearn.ensemble  # noqa: F401


@contextmanager
def _private_names() -> Iterator[None]:
    try:
        yield
    except (ImportError, AttributeError) as error:
        import sklearn

        raise VersionError(
            f"boosted trees do not work with scikit-learn {sklearn.__version__} "
            f"({first_line(error)}): pip install '{TESTED}', or choose models without trees"
        ) from error


def boosting(check_time: Callable[[], None]) -> Any:
    """Return `HistGradientBoostingClassifier`, which checks the time after every tree."""
    from sklearn.ensemble import HistGradientBoostingClassifier

    with _private_names():
        is_last = HistGradientBoostingClassifier._should_stop

    class Boosting(HistGradientBoostingClassifier):
        def _should_stop(self, scores: list[float]) -> bool:
            check_time()
            return bool(is_last(self, scores))

    return Boosting


def learned(model: Any) -> tuple[list[np.ndarray], np.ndarray]:
    """Return the nodes of each tree of a fitted model, and its logits before the first tree."""
    with _private_names():
        steps, baseline = model._predictors, model._baseline_prediction
    return [tree.nodes for step in steps for tree in step], np.ravel(baseline)


def predictors(columns: Mapping[str, np.ndarray], starts: Sequence[int]) -> list[Any]:
    """Return trees as objects that predict fast; arguments as for `FittedTrees`, in numpy."""
    with _private_names():
        from sklearn.ensemble._hist_gradient_boosting.common import PREDICTOR_RECORD_DTYPE
        from sklearn.ensemble._hist_gradient_boosting.predictor import TreePredictor

    nodes = np.zeros(len(columns["value"]), PREDICTOR_RECORD_DTYPE)
    for name, values in columns.items():
        nodes[name] = values
    trees = np.split(nodes, starts[1:])
    return [TreePredictor(tree, *[NO_CATEGORIES[0]] * 2) for tree in trees]
