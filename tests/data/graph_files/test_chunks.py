import builtins
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from canet.data.graph_files import chunks
from canet.data.graph_files.chunks import Table, check_memory, find_table
from canet.errors import InputError


def csv_table(folder: Path, text: str) -> Table:
    (folder / "nodes.csv").write_text(text, encoding="utf-8")
    return find_table(folder, "nodes")


def parquet_table(folder: Path, columns: dict[str, Any]) -> Table:
    pa = pytest.importorskip("pyarrow")
    pq = pytest.importorskip("pyarrow.parquet")
    pq.write_table(pa.table(columns), folder / "nodes.parquet")
    return find_table(folder, "nodes")


def cells(table: Table, name: str) -> np.ndarray:
    (chunk,) = table.chunks([name])
    return chunk[name]


def test_cells_of_csv_are_text_and_only_wanted_columns_come(tmp_path: Path) -> None:
    table = csv_table(tmp_path, 'a, b,c\n1,"x, y",\n2,z,3\n')
    assert table.columns == ["a", "b", "c"]
    (chunk,) = table.chunks(["b", "c"])
    assert {name: column.tolist() for name, column in chunk.items()} == {
        "b": ["x, y", "z"],
        "c": ["", "3"],
    }


def test_rows_come_in_chunks_of_bounded_size(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(chunks, "CELLS", 6)
    rows = "".join(f"{i},{-i}\n" for i in range(8))
    found = list(csv_table(tmp_path, f"a,b\n{rows}").chunks(["b"]))
    assert [len(chunk["b"]) for chunk in found] == [3, 3, 2]
    assert np.concatenate([chunk["b"] for chunk in found]).tolist() == [str(-i) for i in range(8)]


def test_a_byte_order_mark_and_blank_lines_are_passed_over(tmp_path: Path) -> None:
    (tmp_path / "nodes.csv").write_bytes(b"\xef\xbb\xbfa,b\r\n\r\n1,2\r\n\r\n")
    table = find_table(tmp_path, "nodes")
    assert table.columns == ["a", "b"]
    assert cells(table, "a").tolist() == ["1"]


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("", "is empty: its first line must name the columns"),
        ("a;b\n1;2\n", "has the header 'a;b': separate cells by commas"),
        (",a\n0,1\n", "no name for column 1: name it, or leave it out .pandas"),
        ("a,b,a\n1,2,3\n", "has two columns 'a'"),
        ('"a\nb",c\n1,2\n', "has a column 'a\\\\nb': name it in plain letters"),
    ],
)
def test_a_wrong_header_is_refused(tmp_path: Path, text: str, problem: str) -> None:
    with pytest.raises(InputError, match=problem):
        csv_table(tmp_path, text)


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        (b"a,b\n1,2\n3,4,5\n", "has 3 cells in line 3 and 2 in its header: quote cells"),
        (b"a,b\n1,\xe9\n", "is not UTF-8 .* save it as UTF-8"),
        (b'a,b\n1,"2\n', "is no CSV file .*unexpected end of data.*write it again"),
    ],
)
def test_wrong_rows_are_refused_with_their_line(
    tmp_path: Path, content: bytes, problem: str
) -> None:
    (tmp_path / "nodes.csv").write_bytes(content)
    with pytest.raises(InputError, match=problem):
        list(find_table(tmp_path, "nodes").chunks(["b"]))


def test_a_folder_has_one_table_of_a_name(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"neither nodes.csv nor nodes.parquet"):
        find_table(tmp_path, "nodes")
    for suffix in ("csv", "parquet"):
        (tmp_path / f"nodes.{suffix}").write_text("a\n1\n")
    with pytest.raises(InputError, match=r"both nodes.csv and nodes.parquet: keep one"):
        find_table(tmp_path, "nodes")


def test_a_folder_in_place_of_a_table_is_refused(tmp_path: Path) -> None:
    (tmp_path / "nodes.csv").mkdir()
    with pytest.raises(InputError, match=r"nodes.csv' cannot be read"):
        find_table(tmp_path, "nodes")


def test_columns_of_parquet_keep_their_type(tmp_path: Path) -> None:
    pa = pytest.importorskip("pyarrow")
    day = np.datetime64("2024-01-02", "us")
    table = parquet_table(
        tmp_path,
        {
            "whole": pa.array([1, 2], pa.int16()),
            "whole_or_empty": pa.array([1, None]),
            "number": pa.array([0.5, None], pa.float32()),
            "true": pa.array([True, False]),
            "true_or_empty": pa.array([True, None]),
            "text": pa.array(["x", None]),
            "category": pa.array(["x", None]).dictionary_encode(),
            "day": pa.array([day.astype(object), None], pa.date32()),
            "nothing": pa.nulls(2),
        },
    )
    assert table.typed
    (chunk,) = table.chunks(table.columns)
    assert chunk["whole"].dtype == np.int64
    np.testing.assert_array_equal(chunk["whole_or_empty"], [1.0, np.nan])
    np.testing.assert_array_equal(chunk["number"], [0.5, np.nan])
    assert chunk["true"].tolist() == [True, False]
    assert chunk["true_or_empty"].tolist() == ["True", ""]
    assert chunk["text"].tolist() == chunk["category"].tolist() == ["x", ""]
    assert chunk["day"][0] == day
    assert np.isnat(chunk["day"][1])
    assert chunk["nothing"].tolist() == ["", ""]


def test_lists_in_parquet_are_told_as_unreadable(tmp_path: Path) -> None:
    table = parquet_table(tmp_path, {"a": [1], "embedding": [[0.5, 1.5]]})
    assert list(table.unreadable) == ["embedding"]
    assert "list" in table.unreadable["embedding"]


def test_integers_beyond_int64_are_refused_with_the_mend(tmp_path: Path) -> None:
    pa = pytest.importorskip("pyarrow")
    table = parquet_table(tmp_path, {"id": pa.array([2**63], pa.uint64())})
    with pytest.raises(InputError, match="column 'id': write them as text"):
        list(table.chunks(["id"]))


def test_a_damaged_parquet_file_is_refused_in_one_line(tmp_path: Path) -> None:
    parquet_table(tmp_path, {"a": list(range(1000))})
    path = tmp_path / "nodes.parquet"
    content = path.read_bytes()
    path.write_bytes(content[: len(content) // 2])
    with pytest.raises(InputError, match=r"no readable Parquet file .*: write it again$") as error:
        find_table(tmp_path, "nodes")
    assert "\n" not in str(error.value)


def test_parquet_without_pyarrow_says_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plain = builtins.__import__

    def without(name: str, *rest: Any) -> Any:
        if name.startswith("pyarrow"):
            raise ImportError(name)
        return plain(name, *rest)

    (tmp_path / "nodes.parquet").write_bytes(b"")
    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(InputError, match=r"needs pyarrow: pip install pyarrow .*'.\[parquet\]'"):
        find_table(tmp_path, "nodes")


def test_more_than_the_free_memory_is_refused() -> None:
    check_memory(1, "a byte")
    with pytest.raises(InputError, match=r"the graph takes [\d,.]+ GiB and [\d,.]+ GiB of memory"):
        check_memory(2**60, "the graph")
