"""One table through every door: CSV and Parquet files, pandas, Arrow and polars."""

from dataclasses import replace
from datetime import datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

import canet
from canet.data.graph_files import inspect_graph, read_graph
from canet.errors import InputError, InputWarning

ROWS = 60
DOORS = ("csv", "parquet", "pandas", "arrow", "polars")
EDGES = {"source": list(range(ROWS)), "target": [*range(1, ROWS), 0]}


def nodes(decimal: str = ".") -> dict[str, list[Any]]:
    def price(i: int) -> str:
        text = f"{1000 + i * 7.5:,.2f}"
        return text.translate(str.maketrans(",.", ".,")) if decimal == "," else text

    def number(i: int) -> str:
        return f"{i - 7.5:g}".replace(".", decimal)

    return {
        "id": list(range(ROWS)),
        "whole": [i * i % 37 for i in range(ROWS)],
        "real": [None if i == 3 else i / 7 for i in range(ROWS)],
        "day as text": [f"2024-01-{1 + i % 28:02}" for i in range(ROWS)],
        "moment as text": [f"2024-01-02T10:{i:02}:00+01:00" for i in range(ROWS)],
        "day": [datetime(2024, 1, 1 + i % 28) for i in range(ROWS)],
        "price": [f"{price(i)} €" for i in range(ROWS)],
        "percent": [f"{number(i)} %" for i in range(ROWS)],
        "number as text": [number(i) for i in range(ROWS)],
        "yes": ["true" if i % 3 else "False" for i in range(ROWS)],
        "with words": [("NA", "?")[i % 2] if i % 5 == 0 else number(i) for i in range(ROWS)],
        "state": [("OK", "OK ", " OK", "bad")[i % 4] for i in range(ROWS)],
        "note": [f"free text, number {i}" for i in range(ROWS)],
        "label": [("good", "good ", "bad")[i % 3] for i in range(ROWS)],
    }


def put(door: str, folder: Path, columns: dict[str, list[Any]], **csv: Any) -> Any:
    """Return what `read_graph` reads: a folder, or two tables."""
    frames = pd.DataFrame(columns), pd.DataFrame(EDGES)
    if door == "pandas":
        return frames
    if door in ("csv", "parquet"):
        folder.mkdir(exist_ok=True)
        for frame, name in zip(frames, ("nodes", "edges"), strict=True):
            if door == "csv":
                frame.to_csv(folder / f"{name}.csv", index=False, **csv)
            else:
                frame.to_parquet(folder / f"{name}.parquet")
        return folder
    tables = pa.table(columns), pa.table(EDGES)
    return tables if door == "arrow" else tuple(map(like_polars, tables))


def like_polars(table: pa.Table) -> Any:
    """An object with the interface of a polars frame, whose text is large_string."""
    texts = [i for i, kind in enumerate(table.schema.types) if kind == pa.string()]
    for i in texts:
        table = table.set_column(i, table.column_names[i], table[i].cast(pa.large_string()))
    return SimpleNamespace(columns=table.column_names, __arrow_c_stream__=table.__arrow_c_stream__)


@pytest.mark.parametrize("decimal", [".", ","])
@pytest.mark.parametrize("door", DOORS)
def test_one_table_gives_the_same_features_through_every_door(
    door: str, decimal: str, tmp_path: Path
) -> None:
    given = nodes(decimal)
    format = {"sep": ";", "decimal": decimal} if decimal == "," and door == "csv" else {}
    options = format or ({"decimal": decimal} if decimal == "," else {})
    found = read_graph(put(door, tmp_path / "g", given, **format), label="label", **options)
    kinds = {column.name: column.kind for column in found.encoding.columns}
    words = {"state": "category", "yes": "indicator"}
    assert kinds == {
        name: words.get(name, "date" if name[:3] in ("day", "mom") else "number")
        for name in given
        if name not in ("id", "note", "label")
    }
    assert found.encoding.left_out == ("note",)
    assert set(found.y.tolist()) == {"good", "bad"}
    means = {column.name: column.mean for column in found.encoding.columns}
    assert means["price"] == pytest.approx(1000 + 7.5 * (ROWS - 1) / 2)
    assert means["percent"] == means["number as text"] == pytest.approx((ROWS - 1) / 2 - 7.5)
    moment = pd.Timestamp("2024-01-02T09:29:30").timestamp()
    assert means["moment as text"] == pytest.approx(moment)
    expected = read_graph(*put("pandas", tmp_path, nodes()), label="label")
    assert found.encoding.names == expected.encoding.names
    assert np.allclose(found.x, expected.x, atol=1e-6)


@pytest.mark.parametrize("door", DOORS[1:])
def test_digits_that_are_text_in_a_table_with_types_stay_text(door: str, tmp_path: Path) -> None:
    columns = nodes() | {"zip": [f"{i % 3:05}" for i in range(ROWS)]}
    found = read_graph(put(door, tmp_path, columns), label="label")
    assert {"zip=00000", "zip=00001", "zip=00002"} < set(found.encoding.names)


@pytest.mark.parametrize("door", DOORS)
def test_the_other_decimal_mark_is_named(door: str, tmp_path: Path) -> None:
    """Column `many` has too many values for categories; `few` would be categories."""
    fractions = [f"{i},5" for i in range(ROWS)]
    columns = {"age": list(range(ROWS)), "few": (["-1,5", "2,5", "NA"] * ROWS)[:ROWS]}
    place = put(door, tmp_path, columns)
    with pytest.warns(InputWarning, match=r"'few'.*'-1,5'.*--decimal ,"):
        read_graph(place)
    place = put(door, tmp_path, columns | {"many": fractions})
    with pytest.raises(InputError, match=r"'many'.*'0,5'.*--decimal ,"):
        read_graph(place)
    problems = " ".join(inspect_graph(place).warnings)
    assert "'few'" in problems
    assert "'many'" in problems
    kinds = [column.kind for column in inspect_graph(place, decimal=",").encoding.columns]
    assert kinds == ["number"] * 3


def test_a_model_reads_later_files_with_its_decimal_mark_and_separator(tmp_path: Path) -> None:
    german = {"sep": ";", "decimal": ","}
    place = put("csv", tmp_path / "german", nodes(","), **german)
    with pytest.raises(InputError, match="sep=';'"):
        read_graph(place)
    model = canet.NodeClassifier("linear", undirected=True).fit(
        place, label="label", without="note", **german
    )
    model.save(tmp_path / "model")
    model = canet.load(tmp_path / "model")
    expected = model.predict_proba(place)
    for door in ("pandas", "parquet"):
        found = model.predict_proba(put(door, tmp_path / door, nodes(",")))
        assert np.allclose(found, expected, atol=1e-6)
    english = put("csv", tmp_path / "english", nodes())
    with pytest.raises(InputError, match="sep=','"):
        model.predict(english)
    semicolons = put("csv", tmp_path / "points", nodes(), sep=";")
    with pytest.raises(InputError, match=r"decimal='\.'"):
        model.predict(semicolons)
    for place, sep in ((english, ","), (semicolons, ";")):
        data = read_graph(place, label="label", decimal=".", sep=sep)
        assert np.allclose(model.predict_proba(data), expected, atol=1e-6)


def test_decimal_and_sep_are_for_tables(tmp_path: Path) -> None:
    np.savez(tmp_path / "graph.npz", x=np.eye(3), edge_index=np.zeros((2, 1), int))
    frames = put("pandas", tmp_path, nodes())
    for place, wrong in (
        (tmp_path / "graph.npz", {"decimal": ","}),
        (tmp_path / "graph.npz", {"sep": ";"}),
        (frames, {"sep": ";"}),
        (frames, {"decimal": ";"}),
        (frames, {"sep": ";;"}),
    ):
        for read in (read_graph, inspect_graph):
            with pytest.raises(InputError, match=next(iter(wrong))):
                read(place, **wrong)


def test_categories_of_earlier_versions_with_spaces_are_recognised(tmp_path: Path) -> None:
    frames = put("pandas", tmp_path, nodes())
    data = read_graph(frames, label="label")
    earlier = [
        replace(column, categories=tuple(f"{word} " for word in column.categories))
        for column in data.encoding.columns
    ]
    found = read_graph(frames, encoding=replace(data.encoding, columns=tuple(earlier)))
    assert np.array_equal(found.x, data.x)
