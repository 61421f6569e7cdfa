from typing import Any

import pytest

from canet.errors import CanetError, check_name, unknown_name


def test_unknown_name_puts_the_nearest_first_and_lists_all_in_one_line() -> None:
    message = str(unknown_name("task", "cita", ["cora", "citeseer", "arxiv"]))
    assert message == "unknown task 'cita': valid are cora, citeseer, arxiv"
    message = str(unknown_name("task", "citeser", ["cora", "citeseer", "arxiv"]))
    assert message == (
        "unknown task 'citeser': did you mean 'citeseer'? valid are cora, citeseer, arxiv"
    )


def test_unknown_name_takes_any_iterable() -> None:
    message = str(unknown_name("method", "errm", iter(["erm", "canet"])))
    assert message == "unknown method 'errm': did you mean 'erm'? valid are erm, canet"


def test_one_wrong_letter_of_three_is_near_and_a_name_that_shares_an_ending_is_not() -> None:
    for name, meant in (("gcm", "gcn"), ("taw", "tau")):
        assert f"did you mean '{meant}'?" in str(unknown_name("name", name, ["gat", "gcn", "tau"]))
    message = str(unknown_name("setting", "interventions", ["hidden", "direction"]))
    assert message == "unknown setting 'interventions': valid are hidden, direction"


@pytest.mark.parametrize(
    ("name", "shown"), [(None, "None"), (3.5, "3.5"), (["a\nb"], r"['a\nb']"), ("a\nb", "a b")]
)
def test_what_is_no_name_is_shown_by_its_text_in_one_line(name: Any, shown: str) -> None:
    assert str(unknown_name("method", name, ["erm"])) == f"unknown method '{shown}': valid are erm"


def test_a_name_as_long_as_a_book_is_cut() -> None:
    assert len(str(unknown_name("setting", "book" * 9_999, ["hidden"]))) < 100


@pytest.mark.parametrize("name", ["gcm", None, 3, ["gcn"], {}])
def test_what_is_none_of_the_names_is_refused_whatever_it_is(name: object) -> None:
    check_name("backbone", "gcn", ("gcn", "gat"))
    with pytest.raises(CanetError, match=r"unknown backbone '.*valid are gcn, gat"):
        check_name("backbone", name, ("gcn", "gat"))
