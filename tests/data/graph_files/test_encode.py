from pathlib import Path

import numpy as np
import torch

from canet.data.graph_files.chunks import find_table
from canet.data.graph_files.columns import ColumnEncoding, Encoding
from canet.data.graph_files.encode import encode

COLUMNS = (
    ColumnEncoding("unit", "constant"),
    ColumnEncoding("age", "number", 30.0, 10.0),
    ColumnEncoding("colour", "category", categories=("blue", "red")),
    ColumnEncoding("vip", "indicator"),
    ColumnEncoding("joined", "date", 86400.0, 43200.0),
)
NODES = """\
age,colour,vip,joined,unit
30,red,true,1970-01-02,1
50,,false,1970-01-01,2
20,blue,false,1970-01-02T12:00,3
"""
EXPECTED = [[0, 0, 0, 1, 1, 0], [0, 2, 0, 0, 0, -2], [0, -1, 1, 0, 0, 1]]


def encoded(folder: Path, encoding: Encoding, text: str) -> tuple[torch.Tensor, list[str]]:
    (folder / "nodes.csv").write_text(text, encoding="utf-8")
    return encode(encoding, find_table(folder, "nodes"), text.count("\n") - 1)


def test_columns_become_the_features_of_the_encoding(tmp_path: Path) -> None:
    x, warnings = encoded(tmp_path, Encoding(COLUMNS), NODES)
    assert x.dtype == torch.float32
    assert x.tolist() == EXPECTED
    assert warnings == []


def test_the_sparse_layout_holds_the_same(tmp_path: Path) -> None:
    x, _ = encoded(tmp_path, Encoding(COLUMNS, layout="sparse"), NODES)
    assert x.layout == torch.sparse_csr
    assert x.to_dense().tolist() == EXPECTED
    assert x.values().numel() == np.count_nonzero(EXPECTED)


def test_unknown_categories_are_zero_and_counted(tmp_path: Path) -> None:
    nodes = NODES.replace("red", "green").replace("blue", "green")
    x, (warning,) = encoded(tmp_path, Encoding(COLUMNS), nodes)
    assert not x[:, 2:4].any()
    assert (
        "2 cells in column 'colour' with categories that training did not have, such as 'green'"
        in warning
    )


def test_values_beyond_zero_and_one_are_told_where_training_had_none(tmp_path: Path) -> None:
    nodes = NODES.replace("true", "7").replace("false", "1")
    x, (warning,) = encoded(tmp_path, Encoding(COLUMNS), nodes)
    assert x[:, 4].tolist() == [7, 1, 1]
    assert "has 7 in column 'vip', which was 0 or 1 in training" in warning
