import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from sklearn.base import clone
from torch_geometric.data import Data
from torch_geometric.utils import coalesce

import canet
from canet.data.graph_files import write_npz
from canet.errors import CanetError, InputError, InputWarning
from canet.estimator import classifier
from canet.util.torch_state import limited_threads
from tests.support.orders import orders
from tests.support.user_graphs import NAMES, small_user_graph

QUICK = {"method": "canet", "epochs": 15, "hidden": 8, "device": "cpu", "verbose": 0}


def fitted(data: Data | None = None, **params: Any) -> canet.NodeClassifier:
    return canet.NodeClassifier(**QUICK | params).fit(small_user_graph() if data is None else data)


@pytest.fixture(scope="module")
def model() -> canet.NodeClassifier:
    return fitted(epochs=60)


def test_fit_returns_itself_and_learns_the_classes_by_name(model: canet.NodeClassifier) -> None:
    assert model.classes_.tolist() == NAMES.tolist()
    assert model.n_features_in_ == 5
    assert model.scores_["valid"] > 0.8
    assert len(model.history_["loss"]) == 60
    assert 1 <= model.selected_epoch_ <= 60


def test_default_precision_of_the_caller_changes_nothing(model: canet.NodeClassifier) -> None:
    graph, new = small_user_graph(), small_user_graph(31, seed=1)
    torch.set_default_dtype(torch.double)
    try:
        again = fitted(graph, epochs=60)
        probabilities = again.predict_proba(new)
    finally:
        torch.set_default_dtype(torch.float)
    np.testing.assert_array_equal(probabilities, model.predict_proba(new))


def test_another_graph_is_predicted_by_class_names(model: canet.NodeClassifier) -> None:
    new = small_user_graph(31, seed=1)
    predicted = model.predict(new)
    assert predicted.shape == (31,)
    assert set(predicted) <= set(NAMES)
    assert model.score(new) == pytest.approx((predicted == new.y).mean())
    assert model.score(new) > 0.8


def test_probabilities_are_of_the_classes_and_sum_to_one(model: canet.NodeClassifier) -> None:
    new = small_user_graph(31, seed=1)
    probabilities = model.predict_proba(new)
    assert probabilities.shape == (31, 3)
    np.testing.assert_allclose(probabilities.sum(axis=1), 1)
    assert (NAMES[probabilities.argmax(axis=1)] == model.predict(new)).all()
    np.testing.assert_array_equal(
        model.decision_function(new).argmax(axis=1), probabilities.argmax(axis=1)
    )


def test_a_prepared_graph_replaces_the_data_of_every_call(model: canet.NodeClassifier) -> None:
    new = small_user_graph(31, seed=1)
    prepared = model.prepare(new)
    np.testing.assert_array_equal(model.predict_proba(prepared), model.predict_proba(new))
    np.testing.assert_array_equal(model.embed(prepared, nodes=[4]), model.embed(new, nodes=[4]))
    assert model.score(prepared) == model.score(new)
    with pytest.raises(InputError, match="another model"):
        fitted(epochs=1).predict(prepared)


@pytest.mark.parametrize("nodes", [[4, 0, 9], torch.tensor([4, 0, 9]), np.array([4, 0, 9])])
def test_predictions_of_some_nodes_equal_those_of_all(
    model: canet.NodeClassifier, nodes: Any
) -> None:
    new = small_user_graph(31, seed=1)
    np.testing.assert_allclose(
        model.predict_proba(new, nodes=nodes), model.predict_proba(new)[[4, 0, 9]], rtol=1e-5
    )
    mask = torch.arange(31) % 7 == 3
    assert (model.predict(new, nodes=mask) == model.predict(new)[mask.numpy()]).all()


def test_environments_embeddings_and_novelty_have_one_row_per_node(
    model: canet.NodeClassifier,
) -> None:
    new = small_user_graph(31, seed=1)
    layers = model.environments(new)
    assert [layer.shape for layer in layers] == [(31, 3), (31, 3)]
    np.testing.assert_allclose(layers[0].sum(axis=1), 1, rtol=1e-5)
    assert model.embed(new).shape == (31, 8)
    unlike = model.novelty_score(new)
    assert unlike.shape == (31,)
    assert ((unlike >= 0) & (unlike <= 1)).all()
    with pytest.raises(InputError, match="erm"):
        fitted(method="erm").environments(new)


def test_nodes_far_from_training_have_a_high_novelty_score(model: canet.NodeClassifier) -> None:
    near, far = small_user_graph(30, seed=1), small_user_graph(30, seed=1)
    far.x = 3 * torch.randn(30, 5, generator=torch.Generator().manual_seed(0))
    assert model.novelty_score(far).mean() > model.novelty_score(near).mean() + 0.2


def test_the_same_seed_gives_the_same_bits_and_another_other_ones() -> None:
    new = small_user_graph(31, seed=1)
    first, again, other = (fitted(random_state=seed).predict_proba(new) for seed in (0, 0, 1))
    np.testing.assert_array_equal(first, again)
    assert (first != other).any()


def test_training_leaves_the_callers_generators_alone() -> None:
    torch.manual_seed(5)
    expected = torch.rand(3)
    torch.manual_seed(5)
    fitted()
    assert torch.rand(3).equal(expected)


def test_parameters_are_stored_untouched_and_cloned() -> None:
    model = canet.NodeClassifier("erm", "gat", epochs=7, hidden=9, random_state=3)
    params = model.get_params()
    assert (params["method"], params["backbone"], params["hidden"]) == ("erm", "gat", 9)
    assert "tau" not in params
    assert clone(model).get_params() == params
    assert model.set_params(tau=2.0, epochs=3).get_params()["tau"] == 2.0
    assert "hidden=9" in repr(model)
    with pytest.raises(InputError, match="'tau'"):
        model.set_params(taw=8)


@pytest.mark.filterwarnings("ignore:columns that are empty")
def test_predictions_that_are_not_finite_are_an_error(model: canet.NodeClassifier) -> None:
    new = small_user_graph()
    unit = model.fitted_.method.model.phi_in.weight.abs().sum(dim=1).argmax()
    new.x = model.fitted_.method.model.phi_in.weight[unit].sign().detach().expand(60, 5) * 3.4e38
    with pytest.raises(InputError, match="not finite"):
        model.predict_proba(new)


def test_a_label_unknown_in_training_counts_as_wrong(model: canet.NodeClassifier) -> None:
    new = small_user_graph(30, seed=1)
    new.y = np.where(np.arange(30) < 10, "dog", new.y)
    for one in (model, fitted(epochs=60, metric="macro_f1")):
        with pytest.warns(InputWarning, match="10 nodes"):
            score = one.score(new)
        assert score < one.score(small_user_graph(30, seed=1))
    with pytest.warns(InputWarning, match="10 nodes"):
        assert model.score(new, nodes=np.arange(10)) == 0.0


def test_scores_need_labels_of_the_same_type(model: canet.NodeClassifier) -> None:
    new = small_user_graph()
    for y in (torch.zeros(60, dtype=torch.long), None, [None] * 60):
        new.y = y
        with pytest.raises(InputError, match="y"):
            model.score(new)


def two_classes() -> Data:
    data = small_user_graph(90)
    data.y = torch.arange(90) % 3 == 0
    data.x = data.x[torch.randperm(90, generator=torch.Generator().manual_seed(0))]
    return data


def test_class_weights_move_predictions_towards_the_heavy_class() -> None:
    data = two_classes()
    shares = [
        fitted(data, method="erm", epochs=40, class_weight=weight).predict(data).mean()
        for weight in (None, {True: 20.0, False: 1.0})
    ]
    assert shares[1] > shares[0]
    fitted(data, class_weight="balanced")


def test_a_seed_and_a_number_of_jobs_are_whole_numbers_and_a_missing_seed_is_drawn() -> None:
    for wrong in (-1, 2**32, 1.5, "zero"):
        with pytest.raises(InputError, match="random_state"):
            fitted(random_state=wrong)
    with pytest.raises(InputError, match="jobs is 0"):
        fitted(method="auto", n_jobs=0)
    for drawn in (None, np.random.RandomState(0)):
        fitted(random_state=drawn)


def test_graphs_in_one_data_object_are_independent() -> None:
    model = fitted(backbone="transformer")
    first, second = small_user_graph(20, seed=1), small_user_graph(30, seed=2)
    both = Data(
        x=torch.cat([first.x, second.x]),
        edge_index=torch.cat([first.edge_index, second.edge_index + 20], dim=1),
    )
    number = [7] * 20 + [3] * 30
    together = model.predict_proba(both, batch=number)
    np.testing.assert_allclose(together[:20], model.predict_proba(first, batch=[0] * 20), rtol=1e-4)
    both.batch = torch.tensor(number)
    np.testing.assert_array_equal(model.predict_proba(both), together)


def test_sparse_features_give_what_dense_ones_give() -> None:
    new, sparse = small_user_graph(31, seed=1), small_user_graph(31, seed=1, sparse=True)
    dense = fitted(dropout=0.0).predict_proba(new)
    np.testing.assert_allclose(
        fitted(small_user_graph(sparse=True), dropout=0.0).predict_proba(sparse), dense, rtol=1e-3
    )


def test_undirected_uses_edges_in_both_directions() -> None:
    data, one_way = small_user_graph(), small_user_graph()
    one_way.edge_index = data.edge_index[:, :120]
    data.edge_index = coalesce(data.edge_index)
    expected = fitted(data, undirected=False).predict_proba(data)
    model = fitted(one_way, undirected=True)
    np.testing.assert_allclose(model.predict_proba(one_way), expected, rtol=1e-4)


def test_one_way_edges_give_a_warning_by_default() -> None:
    data = small_user_graph()
    data.edge_index = torch.stack([torch.arange(59), torch.arange(1, 60)])
    with pytest.warns(UserWarning, match="undirected=True"):
        fitted(data)
    fitted(data, undirected=False)


def test_a_method_that_needs_environments_gets_them_by_name() -> None:
    model = fitted(method="irm")
    assert model.environments_seen_ == ["north", "south"]
    data = small_user_graph()
    del data.environment
    with pytest.raises(CanetError, match="environment"):
        fitted(data, method="irm")
    canet.NodeClassifier(**QUICK | {"method": "irm"}).fit(data, environment=[0, 1] * 30)


def test_nodes_of_a_test_mask_are_scored_and_not_trained_on() -> None:
    data = small_user_graph()
    data.test_mask = torch.arange(60) >= 40
    other = small_user_graph()
    other.test_mask = data.test_mask
    other.y = np.where(data.test_mask.numpy(), NAMES[::-1][np.arange(60) % 3], data.y)
    first, second = fitted(data), fitted(other)
    assert set(first.scores_) == {"train", "valid", "test"}
    np.testing.assert_array_equal(first.predict_proba(data), second.predict_proba(data))


CODE = """
import sys, torch
torch.set_num_threads(1)
import numpy as np
import canet
for folder in sys.argv[2:]:
    model = canet.load(folder)
    np.save(folder + ".npy", model.predict_proba(sys.argv[1]))
    assert model.classes_.tolist() == ["ant", "bee", "cat"]
assert not {"torch_geometric", "torch._dynamo"} & set(sys.modules)
"""


def test_saved_models_predict_the_same_bits_in_a_new_process_without_pyg(
    tmp_path: Path, few_models: None
) -> None:
    new, models = small_user_graph(41, seed=3), {}
    pairs = [("auto", None), *((method, "gcn") for method in ("erm", "dann", "eerm"))]
    for method, backbone in [*pairs, *(("canet", backbone) for backbone in canet.BACKBONES)]:
        model = fitted(method=method, backbone=backbone, epochs=3, class_weight="balanced")
        folder = tmp_path / f"{method}-{backbone}"
        model.save(folder)
        models[folder] = model
    write_npz(tmp_path / "new.npz", new)
    command = [sys.executable, "-c", CODE, tmp_path / "new.npz", *models]
    subprocess.run([*map(str, command)], check=True)
    for folder, model in models.items():
        np.testing.assert_array_equal(np.load(f"{folder}.npy"), model.predict_proba(new))
        again = canet.load(folder)
        np.testing.assert_array_equal(again.novelty_score(new), model.novelty_score(new))
        assert again.leaderboard_rows() == model.leaderboard_rows()


def test_a_loaded_model_equals_the_saved_one(model: canet.NodeClassifier, tmp_path: Path) -> None:
    model.save(tmp_path / "model")
    loaded = canet.load(tmp_path / "model")
    assert loaded.get_params() == model.get_params()
    for name in ("settings_", "scores_", "history_", "selected_epoch_", "environments_seen_"):
        assert getattr(loaded, name) == getattr(model, name)
    loaded.save(tmp_path / "again")
    first, second = (
        json.loads((tmp_path / f / "model.json").read_text()) for f in ("model", "again")
    )
    assert first == second


def test_a_small_graph_trains_with_one_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    for threads, nodes, used in ((None, 1_000, 1), (None, 10, 2), (3, 10, 3)):
        monkeypatch.setattr(classifier, "NODES_PER_THREAD", nodes)
        with limited_threads(2):
            result = fitted(epochs=2, threads=threads, device="cpu").fitted_.result
        assert f", {used} thread" in result.device


def test_ignored_columns_are_reported_once_for_a_model_and_again_if_they_change() -> None:
    nodes, edges = orders()
    edges["speed"] = 1.0
    model = canet.NodeClassifier("linear", undirected=True)
    with pytest.warns(InputWarning, match="ignored: speed"):
        model.fit((nodes, edges), label="is_late")
    with pytest.warns(InputWarning) as caught:  # noqa: PT031
        for extra in ("fee", "fee", "tax"):
            model.predict((nodes.assign(**{extra: 1}), edges))
    assert [str(one.message).rpartition(" ")[2] for one in caught] == ["fee", "tax"]
