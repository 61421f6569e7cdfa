"""The interface of `NodeClassifier`: paths, classes, callbacks, saving without training rows."""

import copy
import pickle
import subprocess
import sys
from dataclasses import replace
from importlib.metadata import EntryPoint, EntryPoints
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import canet
from canet.methods.erm import ERM
from canet.nn import BACKBONES, CaNet
from canet.nn.backbones.sage import BACKBONE as SAGE
from canet.util.plugins import add_plugins
from tests.support.user_graphs import small_user_graph

ROWS = ["id,topic,size,colour"] + [
    f"n{i},{'ab'[i % 2]},{i % 2 + i / 100},{['red', 'blue'][i % 2]}" for i in range(40)
]
EDGES = ["source,target"] + [f"n{i},n{(i + 2) % 40}" for i in range(40)]


def write_graph(folder: Path, rows: list[str] = ROWS) -> Path:
    folder.mkdir()
    (folder / "nodes.csv").write_text("\n".join(rows) + "\n")
    (folder / "edges.csv").write_text("\n".join(EDGES) + "\n")
    return folder


@pytest.fixture
def january(tmp_path: Path) -> Path:
    return write_graph(tmp_path / "january")


@pytest.fixture
def february(tmp_path: Path) -> Path:
    """Other values and one colour only, so that its own encoding has other columns."""
    rows = ROWS[:1] + [row.replace("blue", "red") for row in ROWS[1:]]
    return write_graph(tmp_path / "february", rows)


@pytest.fixture
def model(january: Path) -> canet.NodeClassifier:
    data = canet.read_graph(january, label="topic")
    return small(undirected=True).fit(data)


def small(method: Any = "erm", backbone: Any = None, **options: Any) -> canet.NodeClassifier:
    options = {"epochs": 5, "hidden": 8, "device": "cpu"} | options
    return canet.NodeClassifier(method, backbone, **options)


def test_a_path_is_read_with_the_encoding_of_the_model(
    model: canet.NodeClassifier, february: Path
) -> None:
    expected = canet.read_graph(february, encoding=model.encoding_)
    probabilities = model.predict_proba(expected)
    np.testing.assert_array_equal(model.predict_proba(february), probabilities)
    np.testing.assert_array_equal(model.predict_proba(str(february)), probabilities)
    assert model.score(february) == model.score(expected)


@pytest.mark.filterwarnings("ignore:.*were training nodes")
def test_a_graph_with_another_encoding_is_read_again(
    model: canet.NodeClassifier, february: Path
) -> None:
    data = canet.read_graph(february, label="topic")
    assert data.x.shape[1] != model.n_features_in_
    np.testing.assert_array_equal(model.predict_proba(data), model.predict_proba(february))
    assert (
        canet.diagnose(model, None, data, repeats=1).to_json()
        == canet.diagnose(model, None, february, repeats=1).to_json()
    )


def test_changed_features_are_not_silently_replaced(
    model: canet.NodeClassifier, february: Path
) -> None:
    data = canet.read_graph(february, label="topic")
    data.x = data.x + 1
    with pytest.raises(canet.InputError, match="encoding"):
        model.predict(data)


def test_a_class_and_a_backbone_object_give_the_bits_of_their_names() -> None:
    data = small_user_graph()
    by_name = small("erm", "sage").fit(data).predict_proba(data)
    by_class = small(ERM, SAGE).fit(data).predict_proba(data)
    np.testing.assert_array_equal(by_name, by_class)


def test_a_class_brings_its_own_settings() -> None:
    class Other(ERM):
        name = "other"

    data = small_user_graph()
    assert small(Other).fit(data).method_name == "other"
    with pytest.raises(ValueError, match="tau"):
        small(Other, tau=2).fit(data)


@pytest.mark.parametrize("wrong", [{"method": "canett"}, {"method": "erm", "backbone": "gnc"}])
def test_a_misspelt_name_is_a_value_error(wrong: dict[str, str]) -> None:
    with pytest.raises(ValueError, match="did you mean"):
        canet.NodeClassifier(**wrong).fit(small_user_graph())


def test_settings_of_another_method_are_rejected_before_the_graph_is_read() -> None:
    with pytest.raises(canet.InputError, match="tau"):
        small("erm", tau=2).fit(None)


def test_callbacks_must_be_a_list() -> None:
    with pytest.raises(canet.InputError, match="callbacks"):
        small(callbacks=print).fit(small_user_graph())


def test_a_table_without_label_names_the_argument(january: Path) -> None:
    with pytest.raises(canet.InputError, match="label="):
        small(undirected=True).fit(canet.read_graph(january))


def test_modules_are_found_without_their_import() -> None:
    code = "import canet; canet.nn.CaNet, canet.methods.Method"
    subprocess.run([sys.executable, "-c", code], check=True)


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
def test_callbacks_are_called_for_every_epoch(method: str) -> None:
    facts: list[dict[str, Any]] = []
    options = {"preset": "fast"} if method == "auto" else {}
    model = small(method, callbacks=[facts.append], **options).fit(small_user_graph())
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


def test_callbacks_with_processes_are_rejected() -> None:
    model = canet.NodeClassifier(callbacks=[print], n_jobs=2)
    with pytest.raises(canet.InputError, match="n_jobs"):
        model.fit(small_user_graph())


def test_training_stops_early_unless_patience_is_zero() -> None:
    data = small_user_graph()
    early = small(epochs=60, patience=5).fit(data)
    full = small(epochs=60, patience=0).fit(data)
    assert len(early.history_["valid"]) == early.selected_epoch_ + 5 < 60
    assert len(full.history_["valid"]) == 60


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
    assert str(found).strip() in card
    assert canet.load(tmp_path / "after").diagnosis_ == str(found)


def test_the_digest_of_the_card_depends_on_the_data() -> None:
    one, other = small_user_graph(seed=0), small_user_graph(seed=1)
    assert small().fit(one).data_ == small().fit(one).data_
    assert small().fit(one).data_["digest"] != small().fit(other).data_["digest"]


def test_pickle_and_deepcopy_keep_a_fitted_model() -> None:
    data = small_user_graph()
    model = small("canet").fit(data)
    expected = model.predict_proba(data)
    for again in (copy.deepcopy(model), pickle.loads(pickle.dumps(model))):
        np.testing.assert_array_equal(again.predict_proba(data), expected)


def test_a_model_of_an_unknown_method_says_what_to_install(tmp_path: Path) -> None:
    class Elsewhere(ERM):
        name = "elsewhere"

    small(Elsewhere).fit(small_user_graph()).save(tmp_path / "model")
    with pytest.raises(canet.VersionError, match="elsewhere"):
        canet.load(tmp_path / "model")


def test_fit_is_silent_by_default(capfd: pytest.CaptureFixture[str]) -> None:
    small().fit(small_user_graph())
    assert capfd.readouterr() == ("", "")


def test_a_backbone_of_another_package_is_used_by_canet() -> None:
    renamed = replace(SAGE, name="mine")
    x, edges = torch.randn(4, 3), torch.tensor([[0, 1], [1, 2]])
    assert "mine" not in BACKBONES
    assert CaNet(3, 2, backbone=renamed)(x, edges).shape == (4, 2)


def test_undirected_must_be_a_boolean() -> None:
    with pytest.raises(canet.InputError, match="undirected is 'no'"):
        canet.NodeClassifier("erm", undirected="no").fit(small_user_graph())  # type: ignore[arg-type]
