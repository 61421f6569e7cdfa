import os
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from canet.data.graph_files.tables import TIMESTAMP, MemoryTable, TableFile, find_table
from canet.errors import InputError
from canet.util import memory


def csv_table(folder: Path, text: str | bytes) -> TableFile:
    content = text if isinstance(text, bytes) else text.encode()
    (folder / "nodes.csv").write_bytes(content)
    return find_table(folder, "nodes")


def parquet_table(folder: Path, columns: dict[str, Any]) -> TableFile:
    pq.write_table(pa.table(columns), folder / "nodes.parquet")
    return find_table(folder, "nodes")


def cells(file: TableFile, *names: str, text: tuple[str, ...] = ()) -> list[list[Any]]:
    table = file.read(names, text)
    return [table[name].to_pylist() for name in names]


def test_cells_may_have_quotes_spaces_and_new_lines(tmp_path: Path) -> None:
    file = csv_table(tmp_path, 'a, b,c\n1,"x, ""y""\nz",\n2, z, 3\n')
    assert file.columns == ["a", "b", "c"]
    assert cells(file, "b", "c") == [['x, "y"\nz', "z"], [None, 3]]


@pytest.mark.parametrize(
    ("column", "kind"),
    [
        ("1\n-2\n", pa.int64()),
        ("1\n2.5e3\nnan\ninf\n", pa.float64()),
        (f"{2**70}\n1\n", pa.float64()),
        ("true\nFalse\n", pa.bool_()),
        ("2024-01-31\n2024-01-31T10:00\n", TIMESTAMP),
        ("2024-01-31T10:00+01:00\n2024-01-31T10:00Z\n", TIMESTAMP),
        ("12:00\n13:00\n", pa.string()),
        ("1\nNA\n", pa.float64()),
        ('"1,234"\n$5.50\n7%\n', pa.float64()),
        ('"1,23"\n5\n', pa.string()),
        ("true\nn/a\n", pa.bool_()),
        ("1\nold\n", pa.string()),
        ("NA\nn/a\n", pa.string()),
        ("2024-01-31\n-\n", TIMESTAMP),
        ("true\n1\n", pa.string()),
        ("1\n2024-01-01\n", pa.string()),
    ],
)
def test_the_type_of_a_csv_column_depends_on_all_its_cells(
    tmp_path: Path, column: str, kind: pa.DataType
) -> None:
    assert csv_table(tmp_path, f"a\n{column}").read(["a"])["a"].type == kind


def test_a_late_word_makes_a_long_column_text(tmp_path: Path) -> None:
    rows = "".join(f"{i:08},{i}\n" for i in range(600_000))  # more than one block
    file = csv_table(tmp_path, f"a,b\n{rows}x,1\n")
    table = file.read(["a", "b"])
    assert (table["a"].type, table["b"].type) == (pa.string(), pa.int64())
    assert table["a"][0].as_py() == "00000000"


def test_byte_order_marks_and_blank_lines_are_skipped_and_text_is_not_converted(
    tmp_path: Path,
) -> None:
    file = csv_table(tmp_path, b"\xef\xbb\xbf\r\na,b\r\n\r\n1,2\r\n\r\n")
    assert file.columns == ["a", "b"]
    assert cells(file, "a") == [[1]]
    file = csv_table(tmp_path, "a,b\n01,1.0\n2,\n")
    assert cells(file, "a", "b", text=("a", "b")) == [["01", "2"], ["1.0", None]]


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        ("", "is empty"),
        ("a;b\n1;2\n", "'a;b'"),
        (",a\n0,1\n", "column 1"),
        ("a,b,a\n1,2,3\n", "'a'"),
        ("a,b\n1,2\n3,4,5\n", "line 3 .* 3 cells"),
        (b"a,b\n1,\xe9\n", "UTF-8"),
        (b"a,b\n" + b"1,2\n" * 9999 + b"1,\xe9\n", "'b'"),
        (b"a,\xe9\n1,2\n", "UTF-8"),
    ],
)
def test_invalid_csv_is_rejected_and_the_location_is_named(
    tmp_path: Path, content: str | bytes, problem: str
) -> None:
    with pytest.raises(InputError, match=problem):
        csv_table(tmp_path, content).read(["b"])


def test_a_missing_table_and_two_tables_of_one_name_are_rejected(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"nodes.csv"):
        find_table(tmp_path, "nodes")
    for suffix in ("csv", "parquet"):
        (tmp_path / f"nodes.{suffix}").write_text("a\n1\n")
    with pytest.raises(InputError, match=r"both nodes.csv and nodes.parquet"):
        find_table(tmp_path, "nodes")


def test_columns_of_parquet_keep_their_type(tmp_path: Path) -> None:
    day = np.datetime64("2024-01-02", "us").astype(object)
    file = parquet_table(
        tmp_path,
        {
            "whole": pa.array([1, None], pa.int16()),
            "number": pa.array([0.5, None], pa.float32()),
            "true": pa.array([True, None]),
            "text": pa.array(["1", ""]),
            "category": pa.array(["x", None]).dictionary_encode(),
            "day": pa.array([day, None], pa.date32()),
            "nothing": pa.nulls(2),
        },
    )
    table = file.read(file.columns)
    kinds = [pa.int64(), pa.float64(), pa.bool_(), pa.string(), pa.string(), TIMESTAMP, pa.null()]
    assert table.schema.types == kinds
    first = [1, 0.5, True, "1", "x", day, None]
    assert [table[name].to_pylist() for name in file.columns] == [[cell, None] for cell in first]


def test_columns_that_cannot_be_read_are_named(tmp_path: Path) -> None:
    file = parquet_table(
        tmp_path, {"id": pa.array([2**63], pa.uint64()), "embedding": [[0.5, 1.5]]}
    )
    for name in file.columns:
        with pytest.raises(InputError, match=f"'{name}'"):
            file.read([name])


@pytest.mark.parametrize("name", ["nodes.csv", "nodes.parquet"])
def test_pipes_devices_folders_and_incomplete_and_huge_files_are_rejected(
    name: str, tmp_path: Path
) -> None:
    path = tmp_path / name

    def large() -> None:
        path.touch()
        os.truncate(path, 2**43)

    def device() -> None:
        path.symlink_to("/dev/zero")

    for make in (large, partial(path.write_bytes, b"PAR1"), device, partial(os.mkfifo, path)):
        make()
        with pytest.raises(InputError, match=name):
            find_table(tmp_path, "nodes").read(["a"])
        path.unlink()
    path.mkdir()
    with pytest.raises(InputError, match=name):
        find_table(tmp_path, "nodes")


def test_a_parquet_file_with_more_rows_than_memory_is_rejected(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = parquet_table(tmp_path, {"a": [0] * 10_000})
    monkeypatch.setattr(memory, "free_memory", lambda: 79_999)
    with pytest.raises(InputError, match="nodes"):
        file.read(["a"])
    monkeypatch.setattr(memory, "free_memory", lambda: 80_000)
    assert file.read(["a"]).num_rows == 10_000


def test_text_of_parquet_that_does_not_fit_into_memory_is_rejected(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    columns = {"same": ["x" * 10_000] * 1000, "other": [f"{i:01000d}" for i in range(1000)]}
    file = parquet_table(tmp_path, columns)
    assert file.path.stat().st_size < 100_000
    for name, size in (("same", 10**7), ("other", 10**6)):
        monkeypatch.setattr(memory, "free_memory", lambda size=size: size - 1)
        with pytest.raises(InputError, match="GiB"):
            file.read([name])
        monkeypatch.setattr(memory, "free_memory", lambda size=size: size + 20_000)
        assert file.read([name])[name].to_pylist() == columns[name]


@pytest.mark.parametrize("kind", ["csv", "parquet", "memory"])
def test_formatted_numbers_are_numbers_in_every_table(tmp_path: Path, kind: str) -> None:
    columns = {"price": ["$20", "1,234", "7%"], "zip": ["01234", "x", "2"]}
    if kind == "csv":
        file: Any = csv_table(tmp_path, 'price,zip\n$20,01234\n"1,234",x\n7%,2\n')
    else:
        table = pa.table(columns)
        file = MemoryTable(Path("nodes"), table)
        file = file if kind == "memory" else parquet_table(tmp_path, columns)
    assert cells(file, "price", "zip") == [[20.0, 1234.0, 7.0], columns["zip"]]
    assert cells(file, "price", text=("price",)) == [columns["price"]]
