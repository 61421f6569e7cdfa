import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch

from canet.data.graph_files import read_graph
from canet.data.graph_files.encoding import ColumnEncoding, Encoding, Roles
from canet.errors import InputError, InputWarning, VersionError
from canet.util.schema import parse
from tests.support.user_tables import write_folder

ENCODING = Encoding(
    (
        ColumnEncoding("unit", "constant"),
        ColumnEncoding("age", "number", 30.0, 10.0),
        ColumnEncoding("colour", "category", categories=("blue", "red"), empty=1),
        ColumnEncoding("vip", "indicator"),
        ColumnEncoding("joined", "date", 86400.0, 43200.0),
    ),
    Roles(label="kind"),
    left_out=("blank",),
)
NODES = """\
age,colour,vip,joined,unit
30,red,true,1970-01-02,1
50,,false,1970-01-01,2
20,blue,false,1970-01-02T12:00,3
"""
EXPECTED = [[0, 0, 0, 1, 1, 0], [0, 2, 0, 0, 0, -2], [0, -1, 1, 0, 0, 1]]
EDGES = "source,target\n0,1\n"


def learn(folder: Path, nodes: str, **roles: str) -> Encoding:
    found = read_graph(write_folder(folder, nodes, EDGES), **roles).encoding
    assert isinstance(found, Encoding)
    return found


def encoded(folder: Path, encoding: Encoding, nodes: str = NODES) -> torch.Tensor:
    return read_graph(write_folder(folder, nodes, EDGES), encoding=encoding).x


@pytest.mark.filterwarnings("ignore:.*'blank' is empty")
def test_each_kind_of_column_has_its_encoding(tmp_path: Path) -> None:
    text = "n,zero_one,t,b,d,same,blank,word,some\n"
    text += "1,0,y,True,2024-01-01,5,,yes,yes\n3,1,x,False,2024-01-03,5,,yes,\n"
    found = learn(tmp_path, text)
    assert found.columns == (
        ColumnEncoding("n", "number", 2.0, 1.0, fill=2.0),
        ColumnEncoding("zero_one", "indicator", fill=0.5),
        ColumnEncoding("t", "category", categories=("x", "y")),
        ColumnEncoding("b", "indicator", fill=0.5),
        ColumnEncoding("d", "date", 1704153600.0, 86400.0, fill=1704153600.0),
        ColumnEncoding("same", "constant"),
        ColumnEncoding("word", "constant"),
        ColumnEncoding("some", "category", categories=("yes",), empty=1),
    )
    assert found.left_out == ("blank",)


def test_means_and_standard_deviations_equal_those_of_numpy(tmp_path: Path) -> None:
    values = np.random.default_rng(0).normal(1e6, 3, (1000, 2))
    rows = "".join(f"{a!r},{b!r}\n" for a, b in values.tolist())
    for i, column in enumerate(learn(tmp_path, f"a,b\n{rows}").columns):
        assert column.mean == pytest.approx(values[:, i].mean(), rel=1e-12)
        assert column.std == pytest.approx(values[:, i].std(), rel=1e-9)


def test_the_encoding_is_learnt_without_test_nodes(tmp_path: Path) -> None:
    text = "a,colour,s\n1,red,train\n3,blue,valid\n1000,green, Test\n"
    with pytest.warns(InputWarning, match="green"):
        found = learn(tmp_path / "some", text, split="s")
    assert (found.columns[0].mean, found.columns[0].fill) == (2, 2)
    assert found.columns[1].categories == ("blue", "red")
    found = learn(tmp_path / "all", "a,s\n1,test\n3,test\n", split="s")
    assert found.columns[0].mean == 2


def test_text_columns_of_parquet_stay_text_even_if_they_contain_digits(tmp_path: Path) -> None:
    columns = {"code": ["1", "2"], "day": ["2024-01-01", "2024-01-02"], "count": [1, 3]}
    pq.write_table(pa.table(columns), tmp_path / "nodes.parquet")
    pq.write_table(pa.table({"source": [0], "target": [1]}), tmp_path / "edges.parquet")
    kinds = [column.kind for column in read_graph(tmp_path).encoding.columns]
    assert kinds == ["category", "date", "number"]


def test_many_columns_that_are_mostly_zero_are_sparse(tmp_path: Path) -> None:
    def words(count: int, share: int) -> str:
        head = ",".join(f"w{i}" for i in range(count))
        rows = [",".join(str(int((i + j) % share == 0)) for i in range(count)) for j in range(40)]
        return "\n".join([head, *rows]) + "\n"

    assert learn(tmp_path, words(300, 20)).layout == "sparse"
    assert learn(tmp_path, words(300, 4)).layout == "dense"
    assert learn(tmp_path, words(200, 20)).layout == "dense"


@pytest.mark.parametrize("count", [50, 51])
def test_a_text_column_with_more_than_fifty_values_and_few_repetitions_is_left_out(
    tmp_path: Path, count: int
) -> None:
    rows = "".join(f"{i},name {i}\n" for i in range(count))
    found = learn(tmp_path, f"a,who\n{rows}")
    assert len(found.names) == (51 if count == 50 else 1)
    assert found.left_out == (() if count == 50 else ("who",))


def test_a_word_among_numbers_is_named(tmp_path: Path) -> None:
    rows = [f"{i}\n" for i in range(60)]
    with pytest.raises(InputError, match=r"'a' .*'old' in row 61"):
        learn(tmp_path, "".join(["a\n", *rows, "old\n"]))
    with pytest.warns(InputWarning, match=r"'a' was read as text .'old' in row 21"):
        found = learn(tmp_path, "".join(["a\n", *rows[:20], "old\n"]))
    assert found.columns[0].kind == "category"


def test_columns_become_the_features_of_the_encoding(tmp_path: Path) -> None:
    assert ENCODING.names == ["unit", "age", "colour=blue", "colour=red", "vip", "joined"]
    assert list(ENCODING.blocks.values()) == [[0], [1], [2, 3], [4], [5]]
    x = encoded(tmp_path, ENCODING)
    assert x.dtype == torch.float32
    assert x.tolist() == EXPECTED
    sparse = encoded(tmp_path, Encoding(ENCODING.columns, layout="sparse"))
    assert sparse.layout == torch.sparse_csr
    assert sparse.to_dense().tolist() == EXPECTED
    assert sparse.values().numel() == np.count_nonzero(EXPECTED)


def test_categories_are_compared_as_text(tmp_path: Path) -> None:
    encoding = learn(tmp_path / "old", "code\n01\n2\nx\ntrue\n12:00\n")
    x = encoded(tmp_path / "new", encoding, "code\n01\n2\n")
    assert [encoding.names[i] for i in x.argmax(dim=1)] == ["code=01", "code=2"]


def test_new_categories_are_zero_and_other_numbers_are_kept_with_a_warning(tmp_path: Path) -> None:
    nodes = NODES.replace("red", "green").replace("blue", "green")
    with pytest.warns(InputWarning, match="'colour' .2, such as 'green'"):
        x = encoded(tmp_path, ENCODING, nodes)
    assert not x[:, 2:4].any()
    with pytest.warns(InputWarning, match="'vip' .*7"):
        x = encoded(tmp_path, ENCODING, NODES.replace("true", "7").replace("false", "1"))
    assert x[:, 4].tolist() == [7, 1, 1]


@pytest.mark.parametrize(
    ("old", "new", "problem"),
    [
        ("50,", "old,", "'age' .* text .*'old' in row 2"),
        ("true", "maybe", "'vip'"),
        ("1970-01-0", "1", "'joined'"),
    ],
)
def test_columns_of_a_later_graph_must_have_the_same_kinds(
    tmp_path: Path, old: str, new: str, problem: str
) -> None:
    nodes = NODES.replace(old, new).replace("T12:00", "")
    with pytest.raises(InputError, match=problem):
        encoded(tmp_path, ENCODING, nodes)


def test_an_encoding_can_be_restored_from_json() -> None:
    assert parse(Encoding, json.loads(json.dumps(asdict(ENCODING))), Path("model.json")) == ENCODING


@pytest.mark.parametrize(
    "content",
    [
        [],
        {},
        asdict(ENCODING) | {"columns": [3]},
        asdict(ENCODING) | {"layout": "folded"},
        asdict(ENCODING) | {"roles": {"label": 3}},
        asdict(ENCODING) | {"columns": [{"name": "a", "kind": "word"}]},
    ],
)
def test_content_that_is_not_an_encoding_is_rejected(content: Any) -> None:
    with pytest.raises(VersionError, match=r"model\.json"):
        parse(Encoding, content, Path("model.json"))
