from pathlib import Path

import numpy as np
import pytest

from canet.data.graph_files import chunks
from canet.data.graph_files.chunks import find_table
from canet.data.graph_files.survey import Moments, Survey, survey


def look(folder: Path, text: str, split: str | None = None, whole: tuple[str, ...] = ()) -> Survey:
    (folder / "nodes.csv").write_text(text, encoding="utf-8")
    table = find_table(folder, "nodes")
    names = [name for name in table.columns if name not in whole]
    return survey(table, names, whole, split)


def test_moments_of_parts_are_those_of_the_whole() -> None:
    values = np.random.default_rng(0).normal(1e6, 3, 1000)
    moments = Moments()
    for part in np.array_split(values, 7):
        moments.add(part)
    assert moments.mean == pytest.approx(values.mean(), rel=1e-12)
    assert moments.std == pytest.approx(values.std(), rel=1e-9)
    assert (moments.minimum, moments.maximum) == (values.min(), values.max())


def test_kinds_are_told_from_the_cells(tmp_path: Path) -> None:
    text = "n,t,b,d,e\n1,x,true,2024-01-01,\n,y,False,2024-01-02,\n"
    found = look(tmp_path, text)
    kinds = {name: column.kind for name, column in found.columns.items()}
    assert kinds == {"n": "number", "t": "text", "b": "boolean", "d": "date", "e": "empty"}
    assert found.rows == 2
    assert found.columns["n"].empty == 1


def test_a_late_word_makes_a_column_text_with_all_its_values(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(chunks, "CELLS", 2)
    column = look(tmp_path, "a,b\n1,1\n2,2\n3,3\nNA,4\n2,5\n").columns["a"]
    assert column.kind == "text"
    assert column.words == {"1", "2", "3", "NA"}
    assert column.stray == ("NA", 4)


def test_a_column_of_numbers_here_and_dates_there_is_text(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(chunks, "CELLS", 1)
    assert look(tmp_path, "a\n1\n2024-01-01\n").columns["a"].kind == "text"
    assert look(tmp_path, "a\ntrue\n1\n").columns["a"].kind == "text"


def test_nodes_of_the_test_set_do_not_count_in_statistics(tmp_path: Path) -> None:
    text = "a,colour,s\n1,red,train\n3,blue,valid\n1000,green, Test\n"
    found = look(tmp_path, text, split="s", whole=("s",))
    assert found.columns["a"].moments.mean == 2
    assert found.columns["a"].moments.maximum == 3
    assert found.columns["colour"].words == {"red", "blue"}
    assert (found.rows, found.kept) == (3, 2)
    assert found.whole["s"].tolist() == ["train", "valid", "Test"]


def test_all_nodes_count_where_all_are_of_the_test_set(tmp_path: Path) -> None:
    found = look(tmp_path, "a,s\n1,test\n3,test\n", split="s", whole=("s",))
    assert found.columns["a"].moments.mean == 2
    assert found.kept == 2


def test_infinite_cells_are_counted_and_left_out_of_the_mean(tmp_path: Path) -> None:
    column = look(tmp_path, "a\n1\ninf\n3\nnan\n").columns["a"]
    assert (column.infinite, column.empty, column.moments.mean) == (1, 1, 2)


def test_text_that_a_file_declares_is_text_though_it_looks_like_numbers(tmp_path: Path) -> None:
    pa = pytest.importorskip("pyarrow")
    pq = pytest.importorskip("pyarrow.parquet")
    columns = {"code": ["1", "2"], "maybe": pa.array([True, None]), "count": [1, 2]}
    pq.write_table(pa.table(columns), tmp_path / "nodes.parquet")
    found = survey(find_table(tmp_path, "nodes"), list(columns), [], None)
    kinds = {name: column.kind for name, column in found.columns.items()}
    assert kinds == {"code": "text", "maybe": "boolean", "count": "number"}


def test_different_values_are_counted_up_to_a_bound(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("canet.data.graph_files.survey.MOST_CATEGORIES", 3)
    column = look(tmp_path, "a\nv\nw\nx\ny\n").columns["a"]
    assert column.words is None
    assert column.num_categories == 4
