"""scikit-learn's tools on the nodes of a graph."""

import numpy as np
import pytest
from sklearn.model_selection import (
    GridSearchCV,
    LeaveOneGroupOut,
    TimeSeriesSplit,
    cross_val_score,
)

import canet
from tests.support.user_graphs import rare_class_graph


@pytest.fixture
def one() -> canet.OnGraph:
    data = rare_class_graph(150, share=0.4)
    data.train_mask = np.arange(150) < 10  # masks are not used
    return canet.OnGraph(canet.NodeClassifier("erm", epochs=5, hidden=4, undirected=True), data)


def test_a_grid_search_leaves_out_one_environment(one: canet.OnGraph) -> None:
    nodes, groups = np.arange(150), np.arange(150) % 3
    y = np.array(one.data.y)
    search = GridSearchCV(one, {"model__hidden": [2, 8]}, cv=LeaveOneGroupOut())
    search.fit(nodes, y, groups=groups)
    assert search.best_params_["model__hidden"] in (2, 8)
    assert search.cv_results_["split0_test_score"].shape == (2,)
    assert (
        search.predict(nodes[:4]).tolist()
        == search.best_estimator_.model_.predict(search.best_estimator_.graph_, nodes[:4]).tolist()
    )
    assert search.best_estimator_.data is one.data


def test_scores_are_those_of_fits_by_hand(one: canet.OnGraph) -> None:
    nodes, y = np.arange(150), np.array(one.data.y)
    folds = TimeSeriesSplit(3)
    scores = cross_val_score(one, nodes, y, cv=folds)
    data = one.data.clone()
    data.train_mask = None
    for score, (train, test) in zip(scores, folds.split(nodes), strict=True):
        model = canet.NodeClassifier("erm", epochs=5, hidden=4, undirected=True)
        model.fit(data, train=train)
        assert score == model.score(data, test)


def test_probabilities_are_those_of_the_model(one: canet.OnGraph) -> None:
    one.fit(np.arange(100))
    assert one.predict_proba([3, 1]).shape == (2, 2)
    assert 0 <= one.score(np.arange(100, 150)) <= 1
