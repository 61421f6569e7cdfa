import json
from pathlib import Path
from typing import Any

import pytest

from canet.data.graph_files.chunks import find_table
from canet.data.graph_files.columns import ColumnEncoding, Encoding, Roles
from canet.data.graph_files.survey import survey
from canet.errors import CanetError

COLUMNS = (
    ColumnEncoding("age", "number", 30.0, 10.0),
    ColumnEncoding("colour", "category", categories=("blue", "red"), empty=1),
    ColumnEncoding("vip", "indicator"),
    ColumnEncoding("unit", "constant"),
)
ENCODING = Encoding(COLUMNS, Roles(id="id", label="kind"), left_out=("blank",))


def learn(folder: Path, text: str) -> Encoding:
    (folder / "nodes.csv").write_text(text, encoding="utf-8")
    table = find_table(folder, "nodes")
    return Encoding.learn(survey(table, table.columns, [], None), Roles())


def test_each_kind_of_column_is_encoded_in_its_way(tmp_path: Path) -> None:
    text = "n,zero_one,t,b,d,same,blank\n1,0,y,True,2024-01-01,5,\n3,1,x,False,2024-01-03,5,\n"
    found = learn(tmp_path, text)
    by_name = {column.name: column for column in found.columns}
    assert {name: column.kind for name, column in by_name.items()} == {
        "n": "number",
        "zero_one": "indicator",
        "t": "category",
        "b": "indicator",
        "d": "date",
        "same": "constant",
    }
    assert (by_name["n"].mean, by_name["n"].std) == (2, 1)
    assert by_name["t"].categories == ("x", "y")
    assert by_name["d"].std == 24 * 60 * 60
    assert found.left_out == ("blank",)


def test_one_word_or_nothing_is_a_category_and_one_word_alone_is_constant(tmp_path: Path) -> None:
    found = learn(tmp_path, "n,some,all\n1,yes,yes\n2,,yes\n")
    assert [column.kind for column in found.columns] == ["number", "category", "constant"]
    assert found.names == ["n", "some=yes", "all"]


def test_names_and_blocks_follow_the_features() -> None:
    assert ENCODING.names == ["age", "colour=blue", "colour=red", "vip", "unit"]
    assert ENCODING.blocks == {"age": [0], "colour": [1, 2], "vip": [3], "unit": [4]}


def test_many_columns_that_are_mostly_zero_are_sparse(tmp_path: Path) -> None:
    def words(count: int, share: int) -> str:
        head = ",".join(f"w{i}" for i in range(count))
        rows = [",".join(str(int((i + j) % share == 0)) for i in range(count)) for j in range(40)]
        return "\n".join([head, *rows]) + "\n"

    assert learn(tmp_path, words(300, 20)).layout == "sparse"
    assert learn(tmp_path, words(300, 4)).layout == "dense"
    assert learn(tmp_path, words(200, 20)).layout == "dense"


def test_notes_tell_what_became_of_columns() -> None:
    assert ENCODING.notes() == [
        "text in column 'colour' became 2 categories (blue, red); 1 empty cell has none",
        "1 column standardised (mean 0, standard deviation 1): 'age'",
        "1 column with the same value for all nodes outside the test set, so always 0: 'unit'",
        "1 column empty and left out: 'blank'",
    ]


def test_an_encoding_survives_json() -> None:
    assert Encoding.from_json(json.loads(json.dumps(ENCODING.to_json()))) == ENCODING


def test_it_is_shown_in_a_few_words() -> None:
    assert repr(ENCODING) == "Encoding(4 columns → 5 features)"


def without(key: str) -> dict[str, Any]:
    return {name: value for name, value in ENCODING.to_json().items() if name != key}


def with_column(**changes: Any) -> dict[str, Any]:
    content = json.loads(json.dumps(ENCODING.to_json()))
    content["columns"][0] |= changes
    return content


@pytest.mark.parametrize(
    "content",
    [
        None,
        [],
        "text",
        without("columns"),
        without("layout"),
        ENCODING.to_json() | {"columns": []},
        ENCODING.to_json() | {"columns": [3]},
        ENCODING.to_json() | {"layout": "folded"},
        ENCODING.to_json() | {"roles": {"label": 3}},
        ENCODING.to_json() | {"roles": {"colour": "x"}},
        ENCODING.to_json() | {"left_out": 3},
        with_column(kind="word"),
        with_column(name=None),
        with_column(name="colour"),
        with_column(std=0.0),
        with_column(mean=float("nan")),
        with_column(mean="1"),
        with_column(kind="category", categories=[]),
        with_column(kind="category", categories=["a", "a"]),
        with_column(kind="category", categories=[1]),
        with_column(unknown=1),
    ],
)
def test_damaged_json_is_refused(content: Any) -> None:
    with pytest.raises(CanetError, match="encoding of features is damaged: restore it, or fit"):
        Encoding.from_json(content)
