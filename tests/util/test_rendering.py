import math

import pytest

from canet.util.rendering import amount, number, percent, wrap


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        (number(-0.001, 2), "0.00"),
        (number(-1234.5, 1), "−1,234.5"),
        (number(math.inf), "–"),
        (percent(0.1234, 1), "12.3"),
        (amount(0.00001234), "1.234e−05"),
        (amount(1234.56), "1,235"),
        (amount(86400.0, is_date=True), "1970-01-02"),
    ],
)
def test_numbers_are_short(text: str, shown: str) -> None:
    assert text == shown


def test_a_number_and_its_percent_sign_stay_on_one_line() -> None:
    assert wrap("x" * 95 + " 12 %").splitlines() == ["x" * 95, "12 %"]
