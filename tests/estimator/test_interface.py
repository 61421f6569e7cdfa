"""The interface of `NodeClassifier`: paths, classes, callbacks, saving without training rows."""

import copy
import pickle
import sys
import warnings
from dataclasses import replace
from importlib.metadata import EntryPoint, EntryPoints
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch_geometric.data import Data

import canet
from canet.methods.erm import ERM
from canet.nn import BACKBONES, CaNet
from canet.nn.backbones.sage import BACKBONE as SAGE
from canet.util.plugins import add_plugins
from tests.support.nearest_mean import NearestMean
from tests.support.user_graphs import small_user_graph
from tests.support.user_tables import write_folder

NODES = "id,topic,size,colour\n" + "".join(
    f"n{i},{'ab'[i % 2]},{i % 2 + i / 100},{['red', 'blue'][i % 2]}\n" for i in range(40)
)
EDGES = "source,target\n" + "".join(f"n{i},n{(i + 2) % 40}\n" for i in range(40))


@pytest.fixture
def january(tmp_path: Path) -> Path:
    return write_folder(tmp_path / "january", NODES, EDGES)


@pytest.fixture
def february(tmp_path: Path) -> Path:
    """Other values and one colour only, so that its own encoding has other columns."""
    return write_folder(tmp_path / "february", NODES.replace("blue", "red"), EDGES)


@pytest.fixture
def model(january: Path) -> canet.NodeClassifier:
    return small(undirected=True).fit(canet.read_graph(january, label="topic"))


def small(method: Any = "erm", backbone: Any = None, **options: Any) -> canet.NodeClassifier:
    options = {"epochs": 5, "hidden": 8, "device": "cpu"} | options
    return canet.NodeClassifier(method, backbone, **options)


@pytest.mark.filterwarnings("ignore:.*empty or constant")
def test_a_path_is_read_with_the_encoding_of_the_model(
    model: canet.NodeClassifier, february: Path
) -> None:
    expected = canet.read_graph(february, encoding=model.encoding_)
    probabilities = model.predict_proba(expected)
    np.testing.assert_array_equal(model.predict_proba(february), probabilities)
    np.testing.assert_array_equal(model.predict_proba(str(february)), probabilities)
    assert model.score(february) == model.score(expected)


@pytest.mark.filterwarnings("ignore:.*empty or constant", "ignore:.*were training nodes")
def test_a_graph_with_another_encoding_is_read_again(
    model: canet.NodeClassifier, february: Path
) -> None:
    data = canet.read_graph(february, label="topic")
    assert data.x.shape[1] != model.n_features_in_
    np.testing.assert_array_equal(model.predict_proba(data), model.predict_proba(february))
    assert (
        canet.diagnose(model, None, data, repeats=1).to_dict()
        == canet.diagnose(model, None, february, repeats=1).to_dict()
    )


def test_changed_features_are_not_silently_replaced(
    model: canet.NodeClassifier, february: Path
) -> None:
    data = canet.read_graph(february, label="topic")
    data.x = data.x + 1
    with pytest.raises(canet.InputError, match="encoding"):
        model.predict(data)


def test_a_model_of_tables_rejects_values_that_are_not_encoded(
    model: canet.NodeClassifier, january: Path
) -> None:
    data = canet.read_graph(january, encoding=model.encoding_)
    part = Data(x=data.x[:20], edge_index=data.edge_index[:, :0], encoding=data.encoding)
    assert len(model.predict(part)) == 20
    assert len(model.predict(data.clone())) == 40
    raw = Data(x=100 * data.x, edge_index=data.edge_index)
    for read in (model.predict, model.novelty_score, lambda graph: canet.diagnose(model, graph)):
        with pytest.raises(canet.InputError, match="encoding"):
            read(raw)


@pytest.mark.parametrize("method", ["linear", "auto", "erm"])
def test_a_prediction_that_is_not_finite_names_column_and_node(method: str, tmp_path: Path) -> None:
    data = small_user_graph(200)
    data.x *= 0.1  # so that weights are large
    model = canet.NodeClassifier(method, preset="fast" if method == "auto" else None)
    model.fit(data)
    data.x[7, 0] = 3.3e38
    data.node_id = np.array([f"n{i}" for i in range(200)])
    sparse = data.clone()
    sparse.x = data.x.to_sparse_csr()
    with canet.GraphStoreWriter(tmp_path / "store", 200) as writer:
        writer.add_edges(*data.edge_index.numpy())
        writer.add_features(data.x.numpy())
        writer.set_node_id(data.node_id)
    store = canet.GraphStore(tmp_path / "store")
    for graph in (data, sparse, store):
        for read in (model.predict, model.predict_proba, lambda g: canet.diagnose(model, g)):
            with pytest.raises(canet.InputError, match=r"'n7'.*'0'"):
                read(graph)
    data.x[7, 0] = 1e30
    assert np.isfinite(model.predict_proba(data)).all()


def test_a_frame_has_the_ids_the_classes_and_the_probabilities(
    model: canet.NodeClassifier, january: Path
) -> None:
    pytest.importorskip("pandas")
    for nodes in (None, ["n7", "n3"]):
        for how in ({}, {"calibrated": True}, {"threshold": 0.9}):
            calibrated = {name: how[name] for name in how if name == "calibrated"}
            frame = model.predict(january, nodes, as_frame=True, **how)
            probabilities = model.predict_proba(january, nodes, **calibrated)
            assert frame.index.tolist() == (nodes or [f"n{i}" for i in range(40)])
            assert frame.prediction.tolist() == model.predict(january, nodes, **how).tolist()
            assert frame.columns.tolist()[1:] == ["probability_a", "probability_b"]
            np.testing.assert_array_equal(frame.iloc[:, 1:], probabilities)
            log = model.predict_log_proba(january, nodes, **calibrated)
            np.testing.assert_allclose(np.exp(log), probabilities, rtol=1e-12)
    arrays = small_user_graph()
    assert small().fit(arrays).predict(arrays, [5, 2], as_frame=True).index.tolist() == [5, 2]


def test_log_probabilities_are_finite_where_probabilities_are_zero(
    model: canet.NodeClassifier, january: Path
) -> None:
    data = canet.read_graph(january, encoding=model.encoding_)
    data.x *= 1e6
    assert (model.predict_proba(data) == 0).any()
    assert np.isfinite(model.predict_log_proba(data)).all()


def test_a_class_and_a_backbone_object_give_the_bits_of_their_names() -> None:
    data = small_user_graph()
    by_name = small("erm", "sage").fit(data).predict_proba(data)
    by_class = small(ERM, SAGE).fit(data).predict_proba(data)
    np.testing.assert_array_equal(by_name, by_class)


def test_a_table_without_label_names_the_argument(january: Path) -> None:
    with pytest.raises(canet.InputError, match="label="):
        small(undirected=True).fit(canet.read_graph(january))


def test_entry_points_add_methods_and_bad_ones_are_left_out(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    good, *bad = [
        EntryPoint("sage", "canet.nn.backbones.sage:BACKBONE", "canet.backbones"),
        EntryPoint("missing", "no_such_package:THING", "canet.backbones"),
        EntryPoint("wrong", "canet.methods.erm:ERM", "canet.backbones"),
    ]
    monkeypatch.setattr("canet.util.plugins._all_entry_points", lambda: EntryPoints([good, *bad]))
    registry: dict[str, Any] = {}
    with pytest.warns(canet.InputWarning) as caught:
        add_plugins("canet.backbones", registry, type(SAGE))
    assert registry == {"sage": SAGE}
    assert len(caught) == 2
    bad.clear()
    with pytest.warns(canet.InputWarning, match="already in use"):
        add_plugins("canet.backbones", registry, type(SAGE))


@pytest.mark.parametrize("method", ["erm", "auto"])
def test_callbacks_are_called_for_every_epoch(method: str, few_models: None) -> None:
    facts: list[dict[str, Any]] = []
    model = small(method, callbacks=[facts.append]).fit(small_user_graph())
    assert {tuple(one) for one in facts} == {("model", "seed", "epoch", "epochs", "loss", "valid")}
    assert [one["epoch"] for one in facts[:5]] == [1, 2, 3, 4, 5]
    if method == "erm":
        assert [one["loss"] for one in facts] == model.history_["loss"]
        assert [one["valid"] for one in facts] == model.history_["valid"]
    else:
        assert len({one["model"] for one in facts}) * 5 == len(facts)


def test_callbacks_do_not_change_the_result() -> None:
    data = small_user_graph()
    with_callback = small(callbacks=[lambda facts: None]).fit(data).predict_proba(data)
    np.testing.assert_array_equal(with_callback, small().fit(data).predict_proba(data))


def test_a_model_without_reference_predicts_but_has_no_novelty(tmp_path: Path) -> None:
    data = small_user_graph()
    model = small().fit(data)
    model.save(tmp_path / "model", keep_reference=False)
    assert not list((tmp_path / "model").glob("reference-*"))
    loaded = canet.NodeClassifier.load(tmp_path / "model")
    np.testing.assert_array_equal(loaded.predict_proba(data), model.predict_proba(data))
    for call in (loaded.novelty_score, lambda data: canet.diagnose(loaded, None, data)):
        with pytest.raises(canet.InputError, match="keep_reference"):
            call(data)


def test_the_model_card_names_data_scores_and_diagnosis(tmp_path: Path) -> None:
    data = small_user_graph()
    model = small().fit(data)
    model.save(tmp_path / "before")
    card = (tmp_path / "before" / "MODEL_CARD.md").read_text()
    assert model.data_["digest"] in card
    assert f"{100 * model.scores_['valid']:.1f} %" in card
    assert "canet diagnose" in card
    found = canet.diagnose(model, data, repeats=1)
    model.save(tmp_path / "after")
    card = (tmp_path / "after" / "MODEL_CARD.md").read_text()
    assert all(line in card for line in str(found).splitlines())
    assert canet.load(tmp_path / "after").diagnosis_ == str(found)


def test_pickle_and_deepcopy_keep_a_fitted_model() -> None:
    data = small_user_graph()
    model = small("canet").fit(data)
    expected = model.predict_proba(data)
    for again in (copy.deepcopy(model), pickle.loads(pickle.dumps(model))):
        np.testing.assert_array_equal(again.predict_proba(data), expected)


def test_fit_is_silent_by_default(capfd: pytest.CaptureFixture[str]) -> None:
    small().fit(small_user_graph())
    assert capfd.readouterr() == ("", "")


def test_a_backbone_of_another_package_is_used_by_canet() -> None:
    renamed = replace(SAGE, name="mine")
    x, edges = torch.randn(4, 3), torch.tensor([[0, 1], [1, 2]])
    assert "mine" not in BACKBONES
    assert CaNet(3, 2, backbone=renamed)(x, edges).shape == (4, 2)


@pytest.mark.filterwarnings("ignore:(?s)the model predicts")
def test_names_in_the_model_card_are_text_and_not_markup(tmp_path: Path) -> None:
    data = small_user_graph()
    names = np.array(["<b>ant</b>", "[x](http://e.org)|`y`", "cat\n# title\x1b[31m"])
    data.y = names[np.arange(60) % 3]
    small().fit(data).save(tmp_path / "model")
    card = (tmp_path / "model" / "MODEL_CARD.md").read_text()
    (line,) = (line for line in card.splitlines() if line.startswith("| Classes |"))
    assert "&lt;b&gt;ant&lt;/b&gt;" in line
    assert r"\[x\](http\://e.org)\|\`y\`" in line
    assert not {"<", "\x1b"} & {*card}
    assert "\n# title" not in card


@pytest.mark.parametrize("fanout", [[3, 2], (3, 2)])
def test_a_fanout_may_be_a_sequence(fanout: Any, tmp_path: Path) -> None:
    data = small_user_graph()
    first, second = (small(fanout=one, batch_size=16).fit(data) for one in (fanout, "3,2"))
    np.testing.assert_array_equal(first.predict_proba(data), second.predict_proba(data))
    first.save(tmp_path / "model")
    assert canet.load(tmp_path / "model").settings_["fanout"] == "3,2"


@pytest.mark.parametrize("sparse", [True, False])
@pytest.mark.parametrize("method", ["erm", "auto"])
def test_columns_of_a_data_are_left_out_by_number(
    method: str, sparse: bool, tmp_path: Path
) -> None:
    data, other = small_user_graph(sparse=sparse), small_user_graph()
    other.x[:, 1], other.x[:, 4] = 1e6, torch.nan
    other.x = other.x.to_sparse_csr() if sparse else other.x
    options = {"preset": "fast"} if method == "auto" else {}
    model = small(method, **options).fit(data, without=[4, 1])
    assert model.left_out_ == [1, 4]
    expected = model.predict_proba(data)
    model.save(tmp_path / "model")
    assert "left out: 1, 4" in (tmp_path / "model" / "MODEL_CARD.md").read_text()
    for same in (model, canet.load(tmp_path / "model")):
        assert np.array_equal(same.predict_proba(other), expected)
    assert not model.reference().x.to_dense()[:, [1, 4]].any()
    assert data.x.to_dense()[:, [1, 4]].any()
    again = canet.load(tmp_path / "model").fit(data, warm_start=model, without=0)
    assert again.left_out_ == [0, 1, 4]


@pytest.mark.parametrize("without", [["size"], 5, [0, -1], [True], "0,x"])
def test_columns_that_a_data_does_not_have_are_named(without: Any) -> None:
    with pytest.raises(canet.InputError, match="columns 0 to 4"):
        small().fit(small_user_graph(), without=without)


def test_an_encoded_graph_is_read_again_to_leave_columns_out(january: Path) -> None:
    with pytest.raises(canet.InputError, match="read_graph"):
        small().fit(canet.read_graph(january, label="topic", without="colour"), without=["size"])


# Notes about columns and labels


def test_fit_and_inspect_give_the_same_notes(tmp_path: Path) -> None:
    rows = [f"n{i},{'Yes' if i % 12 == 0 else 'no '},{i % 5},{i % 12 == 0}" for i in range(60)]
    rows[2] = "n2,NO,2,False"
    nodes = "\n".join(["id,kind,size,paid", *rows])
    folder = write_folder(tmp_path / "graph", nodes, "source,target\nn1,n2\n")
    shown = canet.inspect_graph(folder, label="kind").warnings
    with pytest.warns(canet.InputWarning) as caught:
        small(undirected=True).fit(folder, label="kind")
    given = [str(warning.message) for warning in caught]
    for words in ("'NO', 'no'", "macro_f1"):
        assert [words in text for text in given if text in shown].count(True) == 1


@pytest.mark.parametrize("undirected", [None, True, False])
def test_fit_and_inspect_warn_without_edges_and_about_an_empty_column(
    tmp_path: Path, undirected: bool | None
) -> None:
    nodes = "id,kind,size,blank\n" + "".join(f"{i},{'ab'[i % 2]},{i % 7},\n" for i in range(40))
    folder = write_folder(tmp_path / "graph", nodes, "source,target\n")
    shown = canet.inspect_graph(folder, label="kind").warnings
    with pytest.warns(canet.InputWarning) as caught:
        small(undirected=undirected).fit(folder, label="kind")
    assert sorted(str(warning.message) for warning in caught) == sorted(shown)
    assert ["no edges" in text or "'blank'" in text for text in shown] == [True, True]


def test_a_column_that_gives_the_label_away_is_a_warning_of_fit(january: Path) -> None:
    (shown,) = (w for w in canet.inspect_graph(january, label="topic").warnings if "colour" in w)
    assert "alone says whether" in shown
    with pytest.warns(canet.InputWarning) as caught:
        small(undirected=True).fit(january, label="topic")
    assert shown in [str(warning.message) for warning in caught]


@pytest.mark.parametrize(("rare", "metric"), [(3, "accuracy"), (6, "accuracy"), (3, "roc_auc")])
def test_a_class_below_ten_percent_is_a_warning_if_accuracy_is_used(rare: int, metric: str) -> None:
    data = small_user_graph()
    data.y = np.where(np.arange(60) % 20 < rare // 3, "fraud", "ok")
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        small(metric=metric).fit(data)
    named = [w for w in caught if "'fraud' has 5.0%" in str(w.message)]
    assert len(named) == (rare == 3 and metric == "accuracy")
    assert all("average_precision" in str(warning.message) for warning in named)


# Methods that are not registered


class Mine(ERM):
    name = "mine"


@pytest.mark.parametrize("kind", [Mine, NearestMean])
def test_a_model_of_your_own_class_is_loaded_with_the_class(kind: Any, tmp_path: Path) -> None:
    data = small_user_graph()
    model = small(kind).fit(data)
    assert model.method_name == kind.name
    model.save(tmp_path / "model")
    loaded = canet.load(tmp_path / "model", method=kind)
    np.testing.assert_array_equal(loaded.predict_proba(data), model.predict_proba(data))
    assert loaded.method is kind
    with pytest.raises(canet.VersionError, match=rf"'{kind.name}'.*method=CLASS"):
        canet.load(tmp_path / "model")
    with pytest.raises(canet.InputError, match=f"'{kind.name}'"):
        canet.load(tmp_path / "model", method=ERM)


# Saving


def test_a_model_is_replaced_only_on_request(tmp_path: Path) -> None:
    model = small().fit(small_user_graph())
    model.save(tmp_path / "model")
    with pytest.raises(canet.CanetError, match="overwrite=True"):
        model.save(tmp_path / "model")
    model.save(tmp_path / "model", overwrite=True)


def test_a_loaded_model_prints_no_progress(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("canet.util.progress.SECONDS_BETWEEN_LINES", 0.001)
    data = small_user_graph()
    small(verbose=1).fit(data).save(tmp_path / "model")
    assert "epoch" in capfd.readouterr().err
    canet.diagnose(canet.load(tmp_path / "model"), data, repeats=1)
    assert capfd.readouterr() == ("", "")


def test_the_leaderboard_is_a_data_frame_if_pandas_is_installed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    pandas = pytest.importorskip("pandas")
    model = small("auto", preset="fast").fit(small_user_graph())
    board = model.leaderboard()
    assert isinstance(board, pandas.DataFrame)
    assert board.to_dict("records") == model.leaderboard_rows()
    monkeypatch.setitem(sys.modules, "pandas", None)
    assert model.leaderboard() == model.leaderboard_rows()
