from dataclasses import dataclass, fields
from typing import Any, Literal

import pytest

from canet.errors import CanetError, InputError
from canet.methods import METHODS, Settings
from canet.settings import override, parse_assignments, setting, valid_values


@dataclass(frozen=True)
class Example:
    width: int = setting(8, "how wide", minimum=1, maximum=100, search=(8, 16))
    rate: float = setting(0.1, "how fast", above=0)
    share: float = setting(0.5, "how much", minimum=0, below=1)
    slow_rate: float | None = setting(None, "how slow", above=0)
    way: Literal["along", "against"] = setting("along", "which", choices=("along", "against"))
    flag: bool = setting(False, "whether")


@pytest.mark.parametrize(
    ("name", "given", "expected"),
    [
        *(("width", given, 32) for given in ("32", 32, 32.0)),
        ("width", "1", 1),
        *(("rate", given, float(given)) for given in ("5e-4", "2", 3)),
        *(("share", given, float(given)) for given in ("0", "0.999")),
        *(("slow_rate", given, None) for given in ("none", "None", None)),
        ("slow_rate", "0.25", 0.25),
        ("way", "against", "against"),
        *(("flag", given, True) for given in ("true", "True", "1", True)),
        *(("flag", given, False) for given in ("false", "0", False)),
    ],
)
def test_value_is_converted_to_the_type_of_its_setting(
    name: str, given: Any, expected: Any
) -> None:
    value = getattr(override(Example(), {name: given}), name)
    assert value == expected
    assert type(value) is type(expected)


@pytest.mark.parametrize(
    ("name", "valid", "wrong"),
    [
        (
            "width",
            "an integer ≥ 1 and ≤ 100",
            ["0", "1.5", 1.5, "wide", "", None, True, 101, 10**20, float("inf")],
        ),
        (
            "rate",
            "a number > 0 and ≤ 1,000,000",
            ["0", "nan", "inf", "1e999", 1e308, "1000001", False],
        ),
        ("share", "a number ≥ 0 and < 1", ["-0.1", "1"]),
        ("slow_rate", "a number > 0 and ≤ 1,000,000 or none", ["0", "fast"]),
        ("way", "one of along, against", ["sideways", None]),
        ("flag", "true or false", ["yes", "2", None]),
    ],
)
def test_invalid_value_is_rejected_and_the_message_names_the_valid_values(
    name: str, valid: str, wrong: list[Any]
) -> None:
    for given in wrong:
        with pytest.raises(InputError) as caught:
            override(Example(), {name: given})
        assert f"'{name}'" in str(caught.value)
        assert str(caught.value).endswith(valid)


ABSURD = [
    *(10**20, -(10**20), 10**400, 10**5000, -1, 1e308, -1e308, float("inf"), float("nan")),
    *("99999999999999999999", "inf", "nan", "-inf", "", " ", "None?", "1e999", "\x00", "true?"),
    *([], {}, [1], object(), 1j, b"1", (1, 0.5)),
]


@pytest.mark.parametrize("method", METHODS)
def test_every_setting_of_every_method_rejects_absurd_values_in_one_line(method: str) -> None:
    settings_type = METHODS[method].settings_type
    shared, tried = {one.name for one in fields(Settings)}, 0
    own = [one for one in fields(settings_type) if method == "erm" or one.name not in shared]
    for declared in own:
        others = [] if isinstance(declared.default, bool | str) else [True, False]
        for value in [*ABSURD, *others]:
            for act in (
                lambda name, value: override(settings_type(), {name: value}),
                lambda name, value: settings_type(**{name: value}),
            ):
                with pytest.raises(CanetError) as caught:
                    act(declared.name, value)
                assert "\n" not in str(caught.value)
                assert len(str(caught.value)) < 250
                tried += 1
    assert tried >= 2 * len(ABSURD) * len(own)


@pytest.mark.parametrize("method", METHODS)
def test_settings_created_directly_do_not_convert_text_to_numbers(method: str) -> None:
    settings_type = METHODS[method].settings_type
    for declared in fields(settings_type):
        if not isinstance(declared.default, str):
            with pytest.raises(CanetError, match=f"'{declared.name}'"):
                settings_type(**{declared.name: str(declared.default)})


def test_message_about_an_unknown_setting_suggests_one_and_lists_all() -> None:
    with pytest.raises(CanetError, match=r"'width'.* width, rate, share, slow_rate, way, flag$"):
        override(Example(), {"widht": "3"})


def test_override_returns_changed_settings_and_leaves_the_original_unchanged() -> None:
    given = Example(rate=0.2)
    assert override(given, {"width": "3", "flag": "true"}) == Example(width=3, rate=0.2, flag=True)
    assert given == Example(rate=0.2)
    assert override(given, {}) == given


def test_assignments_are_split_at_the_first_equals_sign_and_the_last_one_wins() -> None:
    found = parse_assignments(["tau=2", " hidden = 32 ", "a=b=c", "tau=3"])
    assert found == {"tau": "3", "hidden": "32", "a": "b=c"}
    assert parse_assignments([]) == {}


@pytest.mark.parametrize("text", ["tau", "=2", " =2", "", "--tau 2"])
def test_text_without_name_and_equals_sign_is_rejected(text: str) -> None:
    with pytest.raises(InputError, match="key=value"):
        parse_assignments([text])


@pytest.mark.parametrize("method", METHODS)
def test_every_setting_has_help_and_valid_default_and_search_values(method: str) -> None:
    defaults = METHODS[method].settings_type()
    for declared in fields(defaults):
        assert declared.metadata["help"]
        assert valid_values(declared, type(getattr(defaults, declared.name)))
        for value in (getattr(defaults, declared.name), *declared.metadata["search"]):
            assert getattr(override(defaults, {declared.name: value}), declared.name) == value
            assert getattr(override(defaults, {declared.name: str(value)}), declared.name) == value
