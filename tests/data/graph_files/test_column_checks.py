from pathlib import Path

import pytest

from canet.data.graph_files.chunks import find_table
from canet.data.graph_files.column_checks import (
    check_fits,
    check_learnable,
    check_present,
    raise_error,
)
from canet.data.graph_files.columns import ColumnEncoding, Encoding
from canet.data.graph_files.survey import Survey, survey
from canet.errors import InputError

ENCODING = Encoding(
    (
        ColumnEncoding("age", "number", 30.0, 10.0),
        ColumnEncoding("vip", "indicator"),
        ColumnEncoding("joined", "date", 0.0, 10.0),
        ColumnEncoding("colour", "category", categories=("blue", "red")),
    )
)
FITTING = "age,vip,joined,colour\n1,0,2024-01-01,green\n2,1,2024-01-02,7\n"


def look(folder: Path, text: str) -> tuple[Survey, Path]:
    (folder / "nodes.csv").write_text(text, encoding="utf-8")
    table = find_table(folder, "nodes")
    return survey(table, table.columns, [], None), table.path


def numbered(count: int) -> str:
    return "".join(f"{i},name {i}\n" for i in range(count))


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("a,b\n1,\n,2\n3,4\n", r"empty cells in columns of numbers: 'a' \(1\), 'b' \(1\); fill"),
        ("a,b\n1,inf\n2,-inf\n", r"infinite cells in columns of numbers: 'b' \(2\); fill"),
        (
            f"a,who\n{numbered(51)}",
            "51 different values in column 'who': mend it, leave it out, or",
        ),
        ("a\n1e300\n-1e300\n", "up to 1e.300 in column 'a', too large to standardise"),
        ("a,b\n1,x\n1,x\n", "no feature that differs between nodes: add one"),
    ],
)
def test_what_cannot_become_features_is_refused(tmp_path: Path, text: str, problem: str) -> None:
    with pytest.raises(InputError, match=problem):
        check_learnable(*look(tmp_path, text), raise_error)


def test_a_slip_among_many_numbers_is_named(tmp_path: Path) -> None:
    rows = "".join(f"{i}\n" for i in range(60))
    problem = r"61 different values in column 'a' \('n/a' in row 61 is no number\): mend it"
    with pytest.raises(InputError, match=problem):
        check_learnable(*look(tmp_path, f"a\n{rows}n/a\n"), raise_error)


def test_fifty_categories_are_few_for_any_graph(tmp_path: Path) -> None:
    check_learnable(*look(tmp_path, f"a,who\n{numbered(50)}"), raise_error)


def test_all_problems_are_collected_where_nobody_raises(tmp_path: Path) -> None:
    problems: list[str] = []
    check_learnable(*look(tmp_path, "a,b,c\n1,,inf\n2,5,1\n"), problems.append)
    assert [problem.split("' has ")[1][:8] for problem in problems] == ["empty ce", "infinite"]


def test_a_later_graph_may_have_other_categories(tmp_path: Path) -> None:
    check_fits(ENCODING, *look(tmp_path, FITTING), raise_error)


@pytest.mark.parametrize(
    ("old", "new", "problem"),
    [
        ("\n2,1", "\nold,1", r"text in column 'age' \('old' in row 2 .*\), which held numbers in"),
        ("\n2,1", "\n,1", r"empty cells in columns of numbers: 'age' \(1\)"),
        (",1,2024", ",maybe,2024", "text in column 'vip' .* which held 0 and 1 in training"),
        ("2024-01-0", "1", "numbers in column 'joined', which held dates in training: convert"),
    ],
)
def test_a_later_graph_must_hold_the_same_kinds(
    tmp_path: Path, old: str, new: str, problem: str
) -> None:
    with pytest.raises(InputError, match=problem):
        check_fits(ENCODING, *look(tmp_path, FITTING.replace(old, new)), raise_error)


def test_a_missing_column_is_named_with_the_nearest() -> None:
    check_present(["age"], ["age", "colour"], Path("nodes.csv"))
    problem = "'nodes.csv' has no column 'color' .and 1 more.: did you mean 'colour'. it has age, "
    with pytest.raises(InputError, match=problem):
        check_present(["color", "size"], ["age", "colour"], Path("nodes.csv"))
