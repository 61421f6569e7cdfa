"""One score, whoever asks: the model, the command line, or scikit-learn on the labels."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.metrics import accuracy_score, average_precision_score, f1_score, roc_auc_score

from canet import GraphStore, GraphStoreWriter, NodeClassifier
from canet.errors import InputError, InputWarning
from canet.estimator.prediction_table import write_predictions
from canet.scoring.metrics import METRICS
from tests.support.stores import write_store

BATCHES: dict[str, Any] = {"batch_size": 16, "fanout": "4,4", "epochs": 5, "hidden": 8}


def sklearn_score(metric: str, y: np.ndarray, predicted: np.ndarray, margin: np.ndarray) -> float:
    """The metric of label strings; rankings are of the second class, `bee`, or of the rarer."""
    rarer = min(np.unique(y), key=list(y).count)
    return float(
        {
            "accuracy": lambda: accuracy_score(y, predicted),
            "macro_f1": lambda: f1_score(y, predicted, average="macro"),
            "roc_auc": lambda: roc_auc_score(y == "bee", margin),
            "average_precision": lambda: average_precision_score(
                y == rarer, margin if rarer == "bee" else -margin
            ),
        }[metric]()
    )


def relabelled(store: GraphStore, path: Path) -> GraphStore:
    """The same graph with two classes that do not occur in training."""
    graph = store.load()
    y = np.asarray(graph.y, dtype=object)
    y[:12], y[12:19] = "dog", "eel"
    with GraphStoreWriter(path, len(y)) as writer:
        writer.add_edges(*graph.edge_index.numpy())
        writer.add_features(graph.x)
        writer.set_labels(y)
    return GraphStore(path)


@pytest.mark.filterwarnings("ignore:19 nodes")
@pytest.mark.parametrize("metric", METRICS)
@pytest.mark.parametrize("in_memory", [True, False])
def test_the_score_is_that_of_scikit_learn_everywhere(
    tmp_path: Path, metric: str, in_memory: bool
) -> None:
    two = METRICS[metric].ranks
    store = write_store(tmp_path / "store", num_classes=2 if two else 3)
    model = NodeClassifier("erm", "sage", device="cpu", metric=metric, **BATCHES).fit(store)
    new = store if two else relabelled(store, tmp_path / "new")
    data: Any = new.load() if in_memory else new
    labels = np.asarray(new.load().y, dtype=object)
    known = np.array([label is not None for label in labels])
    y = labels[known].astype(str)
    assert len(np.unique(y)) == (2 if two else 5)
    margin = model.decision_function(data)[known] if two else np.zeros(len(y))
    expected = sklearn_score(metric, y, model.predict(data)[known], margin)
    assert model.score(data) == pytest.approx(expected, abs=1e-12)
    found = write_predictions(model, data, tmp_path / "p.csv")
    assert (found["score"], found["labelled"]) == (model.score(data), known.sum())
    if two:
        found = write_predictions(model, data, tmp_path / "p.csv", threshold=0.3)
        predicted = model.predict(data, threshold=0.3)[known]
        assert found["score"] == pytest.approx(sklearn_score(metric, y, predicted, margin))


def test_a_threshold_changes_the_score_of_predicted_classes(tmp_path: Path) -> None:
    store = write_store(tmp_path / "store", num_classes=2)
    model = NodeClassifier("erm", "sage", device="cpu", metric="macro_f1", **BATCHES).fit(store)
    found = write_predictions(model, store, tmp_path / "p.csv", threshold=0.0, recall_at=10)
    assert len(found["predictions"]) == 1
    assert found["score"] < model.score(store)
    assert found["recall_at_k"] == {"k": 10, "recall": model.recall_at_k(store, 10)}


def test_unseen_classes_are_a_warning_and_an_error_for_rankings(tmp_path: Path) -> None:
    store = write_store(tmp_path / "store", num_classes=2)
    new = relabelled(store, tmp_path / "new")
    model = NodeClassifier("erm", "sage", device="cpu", metric="roc_auc", **BATCHES).fit(store)
    with pytest.raises(InputError, match="third class"):
        model.score(new)
    with pytest.warns(InputWarning, match="third class"):
        found = write_predictions(model, new, tmp_path / "p.csv", recall_at=5)
    assert (found["score"], found["baseline"]) == (None, None)
    assert found["recall_at_k"]["recall"] > 0
    assert len((tmp_path / "p.csv").read_text().splitlines()) == 1 + new.num_nodes
    model.metric = "accuracy"
    with pytest.warns(InputWarning, match="19 nodes"):
        model.score(new)
