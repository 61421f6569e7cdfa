"""`OnGraph`: a classifier for one graph, whose samples are nodes, for scikit-learn's tools."""

from copy import copy
from typing import Self

import numpy as np
from sklearn.base import BaseEstimator, ClassifierMixin, clone
from sklearn.utils.validation import check_is_fitted

from canet.data.graph import is_graph
from canet.data.raw_graph import MASKS, GraphObject, NodeSet
from canet.errors import InputError
from canet.estimator.classifier import NodeClassifier


class OnGraph(ClassifierMixin, BaseEstimator):
    """A `NodeClassifier` on one graph. X are row numbers of nodes, so that `GridSearchCV`,
    `cross_val_score` and the splitters of scikit-learn can be used.

    All nodes and edges of the graph are used in training, but only the labels of the nodes in X.
    The masks of the graph are not used.

    Args:
        model: The classifier; its parameters are those of `model__NAME`, such as `model__hidden`.
        data: The graph, a PyG `Data` with labels `y`, such as the result of `canet.read_graph`.

    Attributes:
        model_: The fitted classifier.
        classes_: The labels $[C]$.
    """

    def __init__(self, model: NodeClassifier, data: GraphObject) -> None:
        self.model = model
        self.data = data

    def __sklearn_clone__(self) -> Self:
        """Return an unfitted copy that shares the graph."""
        return type(self)(clone(self.model), self.data)

    def fit(self, X: NodeSet, y: object = None) -> Self:
        """Train with the labels of the nodes X $[n]$; y is ignored, because the graph has it."""
        if not is_graph(self.data) or not isinstance(self.model, NodeClassifier):
            raise InputError("pass OnGraph a NodeClassifier and a Data, as from canet.read_graph")
        self.graph_ = self.data  # the same object in every fold, so that it is checked once
        if any(self.data.get(name) is not None for name in MASKS.values()):
            self.graph_ = copy(self.data)
            for name in MASKS.values():
                self.graph_[name] = None
        self.model_ = clone(self.model).fit(self.graph_, train=np.asarray(X))
        self.classes_ = self.model_.classes_
        return self

    def predict(self, X: NodeSet) -> np.ndarray:
        """Return the most likely class of the nodes X $[n]$."""
        check_is_fitted(self)
        return self.model_.predict(self.graph_, X)

    def predict_proba(self, X: NodeSet) -> np.ndarray:
        """Return the probabilities $[n, C]$ of the nodes X $[n]$."""
        check_is_fitted(self)
        return self.model_.predict_proba(self.graph_, X)

    def score(self, X: NodeSet, y: object = None) -> float:
        """Return the metric of the model on the nodes X $[n]$."""
        check_is_fitted(self)
        return self.model_.score(self.graph_, X)
