"""Empty cells, left out columns and counts: the encoding, and its use on a later graph."""

import json
from dataclasses import asdict
from pathlib import Path

import numpy as np
import pytest
import torch
from sklearn.impute import SimpleImputer

from canet.data.graph_files import read_graph
from canet.data.graph_files.encoding import Encoding, Fill
from canet.errors import InputError, InputWarning
from canet.util.schema import parse
from tests.support.user_tables import write_folder

EDGES = "source,target\n0,1\n"


@pytest.mark.parametrize("fill", ["mean", "median", "most_frequent"])
def test_empty_numbers_are_filled_as_scikit_learn_fills_them(tmp_path: Path, fill: Fill) -> None:
    column = np.array([1, 1, 4, np.nan, 9, np.nan])
    rows = "".join("\n" if np.isnan(v) else f"{v:g}\n" for v in column)
    text = "a,b\n" + "".join(f"{line},{i}\n" for i, line in enumerate(rows.splitlines()))
    graph = read_graph(write_folder(tmp_path, text, EDGES), fill=fill)
    filled = SimpleImputer(strategy=fill).fit_transform(column[:, None])[:, 0]
    expected = (filled - np.nanmean(column)) / np.nanstd(column)
    assert graph.encoding.names == ["a", "a=empty", "b"]
    assert graph.x[:, 0].numpy() == pytest.approx(expected, abs=1e-6)
    assert graph.x[:, 1].tolist() == [0, 0, 0, 1, 0, 1]
    again = parse(Encoding, json.loads(json.dumps(asdict(graph.encoding))), Path("a.json"))
    assert again == graph.encoding


def test_empty_booleans_and_dates_are_filled_and_marked(tmp_path: Path) -> None:
    text = "vip,joined\ntrue,1970-01-01\n,1970-01-03\nfalse,\ntrue,1970-01-02\n"
    graph = read_graph(write_folder(tmp_path, text, EDGES))
    assert graph.encoding.names == ["vip", "vip=empty", "joined", "joined=empty"]
    assert graph.x[:, 0].tolist() == pytest.approx([1, 2 / 3, 0, 1])
    assert graph.x[2, 2:].tolist() == [0, 1]
    notes = "\n".join(graph.encoding.notes())
    assert "vip (1), joined (1)" in notes


def test_empty_columns_are_no_features(tmp_path: Path) -> None:
    nodes = "a,none,label\n1,,x\n2,,y\n"
    with pytest.warns(InputWarning, match="'none' is empty"):
        graph = read_graph(write_folder(tmp_path, nodes, EDGES), label="label")
    assert graph.encoding.names == ["a"]
    assert graph.x[:, 0].tolist() == [-1, 1]


def test_formatted_numbers_and_words_for_empty_cells_are_read(tmp_path: Path) -> None:
    text = 'income,rate,old\n"51,371",4.5%,NA\n"$1,048,576",n/a,true\n-7,10%,false\n'
    graph = read_graph(write_folder(tmp_path, text, EDGES))
    income, rate, old = graph.encoding.columns
    assert income.mean == pytest.approx((51371 + 1048576 - 7) / 3)
    assert rate.mean == pytest.approx((4.5 + 10) / 2)
    assert (old.kind, old.fill, old.marks_empty) == ("indicator", 0.5, True)
    graph = read_graph(write_folder(tmp_path, "a,b\n5,1\n,2\n5,3\n", EDGES))  # one value
    assert graph.x[:, :2].tolist() == [[0, 0], [0, 1], [0, 0]]


def test_a_later_graph_is_filled_with_the_number_of_training(tmp_path: Path) -> None:
    first = read_graph(write_folder(tmp_path / "a", "a,b\n1,1\n3,\n5,2\n", EDGES))
    later = write_folder(tmp_path / "b", "a,b\n,1\n5,\n,9\n", EDGES)
    with pytest.warns(InputWarning, match=r"filled with the mean of training: 'a' \(2\)$"):
        graph = read_graph(later, encoding=first.encoding)
    assert graph.x[0, 0] == graph.x[2, 0] == 0
    assert graph.x[:, 2].tolist() == [0, 1, 0]


def test_columns_can_be_left_out_of_this_and_later_graphs(tmp_path: Path) -> None:
    folder = write_folder(tmp_path, "a,voucher\n1,x\n2,y\n4,x\n", EDGES)
    graph = read_graph(folder, without=["voucher"])
    assert graph.encoding.names == ["a"]
    assert any("left out" in note and "voucher" in note for note in graph.encoding.notes())
    later = read_graph(folder, encoding=graph.encoding)  # no warning about an unused column
    assert torch.equal(later.x, graph.x)
    with pytest.raises(InputError, match="no column 'vuocher': did you mean 'voucher'"):
        read_graph(folder, without="vuocher")


def test_counts_keep_their_zeros_and_many_columns_stay_sparse(tmp_path: Path) -> None:
    counts = np.zeros((50, 300), dtype=int)
    counts[0], counts[np.arange(300) % 49 + 1, np.arange(300)] = 3, 2
    text = ",".join(f"w{i}" for i in range(300)) + "\n"
    text += "".join(",".join(map(str, row)) + "\n" for row in counts.tolist())
    graph = read_graph(write_folder(tmp_path, text, EDGES))
    assert {column.kind for column in graph.encoding.columns} == {"count"}
    assert graph.x.layout == torch.sparse_csr
    expected = counts / counts.std(axis=0)
    assert graph.x.to_dense().numpy() == pytest.approx(expected, rel=1e-6)


def test_new_values_give_one_warning(tmp_path: Path) -> None:
    heads = [f"c{i}" for i in range(30)]
    first = ",".join(heads) + "\n" + "\n".join(",".join([w] * 30) for w in "xyx") + "\n"
    encoding = read_graph(write_folder(tmp_path / "a", first, EDGES)).encoding
    with pytest.warns(InputWarning) as caught:
        read_graph(write_folder(tmp_path / "b", first.replace("y", "z"), EDGES), encoding=encoding)
    (warning,) = caught
    assert "'c0' (1, such as 'z')" in str(warning.message)
    assert "and 25 more" in str(warning.message)


def test_the_encoding_can_be_printed(tmp_path: Path) -> None:
    text = "age,city,note\n" + "".join(f"{i % 7},c{i % 2},n {i}\n" for i in range(60)) + ",c1,end\n"
    shown = str(read_graph(write_folder(tmp_path, text, EDGES)).encoding)
    assert "age: number, mean" in shown
    assert "marked in 'age=empty'" in shown
    assert "city: category, 2 values (c0, c1)" in shown
    assert "left out: note" in shown
