"""Names of the user's data never control the terminal, a page or a picture."""

import csv
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import canet
from canet.data.graph_files import inspect_graph
from canet.errors import CONTROL_CHARACTERS, InputError, InputWarning
from canet.util.progress import Display
from tests.support.commands import call
from tests.support.terminal import terminal

NASTY = "\x1b[31mx\x07\u202ey\u2066\u200bz\nw\ttab 漢😀[/red]"
ROWS = 80


def write_graph(folder: Path, seed: int = 0) -> Path:
    """A graph with names of everything that contain control characters, and missing glyphs."""
    random = np.random.default_rng(seed)
    label = random.integers(0, 2, ROWS)
    columns = {
        "id": [f"{NASTY}{i}" for i in range(ROWS)],
        f"label{NASTY}": [f"{'ab'[y]}{NASTY}" for y in label],
        f"where{NASTY}": [f"{'cdg'[i % 3]}{NASTY}" for i in range(ROWS)],
        f"number{NASTY}": label + random.normal(seed, 1, ROWS),
        f"category{NASTY}": [f"{'ef'[y ^ (i % 3 == 0)]}{NASTY}" for i, y in enumerate(label)],
        f"decimal{NASTY}": [f"{i % 7},5" for i in range(ROWS)],
        f"text{NASTY}": [f"{i} {NASTY}" for i in range(ROWS)],
    }
    ids = np.array(columns["id"])
    edges = {end: ids[random.integers(0, ROWS, 3 * ROWS)] for end in ("source", "target")}
    folder.mkdir()
    pd.DataFrame(columns).to_csv(folder / "nodes.csv", index=False)
    pd.DataFrame(edges).to_csv(folder / "edges.csv", index=False)
    return folder


ROLES = {"label": f"label{NASTY}", "environment": f"where{NASTY}", "without": f"text{NASTY}"}
OPTIONS = [word for role, name in ROLES.items() for word in (f"--{role}", name)]


def check_clean(*texts: str) -> None:
    for text in texts:
        found = CONTROL_CHARACTERS.search(text.replace("\n", ""))
        assert found is None, text.replace("\n", "")[found.start() - 60 : found.end() + 60]


def check_names(*texts: str) -> None:
    """The texts show a name, without control characters and without line breaks in it."""
    check_clean(*texts)
    for text in texts:
        assert "z w tab" in text, text[:2000]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("names")
    for seed, name in enumerate(("old", "new")):
        write_graph(place / name, seed)
    return place


@pytest.fixture(scope="module")
def model(folder: Path) -> canet.NodeClassifier:
    model = canet.NodeClassifier(preset="fast", undirected=True)
    with pytest.warns(InputWarning) as caught:
        model.fit(folder / "old", **ROLES)
    check_names(str(caught[0].message))
    check_clean(*(str(one.message) for one in caught))
    return model


def test_texts_about_a_model_show_names_without_control_characters(
    model: canet.NodeClassifier, folder: Path, tmp_path: Path
) -> None:
    model.save(tmp_path / "model")
    model = canet.load(tmp_path / "model")
    check_names(
        model.summary(),
        model.leaderboard().to_string(),
        str(model.encoding_),
        (tmp_path / "model" / "MODEL_CARD.md").read_text(),
        str(inspect_graph(folder / "old", **ROLES)),
    )
    weighted = canet.NodeClassifier("linear", class_weight={NASTY: 1})
    check_clean(repr(model), repr(weighted), repr(model.encoding_))
    data = canet.read_graph(folder / "new", encoding=model.encoding_)
    for fails in (
        lambda: canet.read_graph(folder / "new", label=f"no{NASTY}"),
        lambda: model.predict(data, nodes=[f"no{NASTY}"]),
    ):
        with pytest.raises(InputError) as error:
            fails()
        check_names(str(error.value))


def test_a_diagnosis_shows_names_without_control_characters_and_warnings(
    model: canet.NodeClassifier, folder: Path
) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", InputWarning)
        found = canet.diagnose(model, folder / "old", folder / "new", repeats=1)
    page = found.page()  # a warning of matplotlib about a letter would be an error
    check_names(str(found), page)
    assert "<svg" in page
    assert "漢😀" in page


@pytest.mark.filterwarnings("always::canet.errors.InputWarning")
def test_commands_show_names_without_control_characters(folder: Path) -> None:
    fit = ("fit", "old", *OPTIONS, "--method", "linear", "--out", "model")
    predict = ("predict", "model", "new", "--threshold", "best", "--out", "found.csv")
    for arguments in (
        ("inspect", "old", *OPTIONS),
        fit,
        predict,
        ("diagnose", "model", "new", "--training", "old", "--out", "page.html", "--repeats", 1),
        ("compare", "old", *OPTIONS, "--methods", "linear", "--seeds", 1, "--undirected"),
    ):
        answer = call(folder, *arguments)
        assert answer.code == 0, answer.err
        check_clean(answer.out, answer.err)
        check_names(answer.err if arguments[0] == "compare" else answer.out)
    check_clean((folder / "comparison" / "report.html").read_text())
    with (folder / "found.csv").open(newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    assert rows[0]["id"] == f"{NASTY}0"  # data, not a display
    assert {row["prediction"] for row in rows} <= {f"a{NASTY}", f"b{NASTY}"}


def test_progress_shows_names_without_control_characters(
    capsys: pytest.CaptureFixture[Any],
) -> None:
    with Display(2) as shown:
        shown.say(NASTY)
        shown.update(1, text=NASTY)
    check_names(*capsys.readouterr().err.splitlines(), shown.line)
    with terminal() as screen, Display(2) as shown:
        shown.say(NASTY)
        shown.update(1, text=NASTY)
    assert not {"\x07", "\u202e", "\u2066", "\u200b"} & {*screen.getvalue()}
    assert "[/red]" in screen.getvalue()
