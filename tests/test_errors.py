"""Errors for misspelt names."""

import pytest

from canet.errors import InputError, check_name, unknown_name


@pytest.mark.parametrize(
    ("name", "meant"), [("citeser", "citeseer"), ("gcm", "gcn"), ("taw", "tau")]
)
def test_message_suggests_the_most_similar_name_and_lists_all(name: str, meant: str) -> None:
    message = str(unknown_name("name", name, iter(["cora", "citeseer", "gcn", "tau"])))
    assert message.index(f"'{name}'") < message.index(f"'{meant}'")
    assert "cora, citeseer, gcn, tau" in message


def test_name_that_only_shares_an_ending_is_not_suggested() -> None:
    assert "did you mean" not in str(unknown_name("setting", "interventions", ["direction"]))


@pytest.mark.parametrize("name", ["gcm", None, 3, ["gcn"], {}, "a\nb", "book" * 9_999])
def test_unknown_name_is_a_value_error_with_one_short_line(name: object) -> None:
    check_name("backbone", "gcn", ("gcn", "gat"))
    with pytest.raises(InputError, match="gcn, gat") as caught:
        check_name("backbone", name, ("gcn", "gat"))
    assert isinstance(caught.value, ValueError)
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 150
