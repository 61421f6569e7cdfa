"""Settings: dataclass fields with help, valid values and search range."""

import math
import types
from collections.abc import Callable, Mapping, Sequence
from dataclasses import Field, field, fields, replace
from functools import cache
from typing import Any, Literal, TypeVar, get_args, get_origin, get_type_hints

from canet.errors import InputError, check_name

S = TypeVar("S")
MAX_NUMBER = 10**6  # largest value of a numeric setting that declares no maximum
MAX_VALUE_LENGTH = 40
_hints: Callable[[Any], dict[str, Any]] = cache(get_type_hints)


def setting(
    default: object,
    help: str,
    *,
    choices: Sequence[Any] = (),
    minimum: float | None = None,
    above: float | None = None,
    below: float | None = None,
    maximum: float = MAX_NUMBER,
    search: Sequence[Any] = (),
) -> Any:
    """Return a dataclass field with its help, its valid values and the values to search."""
    metadata = {"help": help, "choices": tuple(choices), "search": tuple(search)}
    bounds = {"minimum": minimum, "above": above, "below": below, "maximum": maximum}
    return field(default=default, metadata={**metadata, **bounds})


def override(settings: S, changes: Mapping[str, Any]) -> S:
    """Return `settings` with some values changed; values may be strings from the command line.

    Raises:
        InputError: A name is unknown or a value is invalid.
    """
    declared = {f.name: f for f in fields(settings)}  # type: ignore[arg-type]
    hints = _hints(type(settings))
    parsed = {}
    for name, value in changes.items():
        check_name("setting", name, declared)
        parsed[name] = _checked_value(declared[name], hints[name], value)
    return replace(settings, **parsed)  # type: ignore[type-var]


def check(settings: Any) -> None:
    """Reject invalid values in a settings object that was created directly."""
    hints = _hints(type(settings))
    for declared in fields(settings):
        hint, value = hints[declared.name], getattr(settings, declared.name)
        if type(_checked_value(declared, hint, value)) is not str and isinstance(value, str):
            raise _invalid_value(declared, hint, value)


def parse_assignments(assignments: Sequence[str]) -> dict[str, str]:
    """`["tau=2", "hidden=32"]` → `{"tau": "2", "hidden": "32"}`."""
    parsed = {}
    for text in assignments:
        name, equals, value = (part.strip() for part in text.partition("="))
        if not equals or not name:
            raise InputError(f"cannot read '{text}': write a setting as key=value")
        parsed[name] = value
    return parsed


def describe_settings(settings_type: type) -> dict[str, dict[str, Any]]:
    """Return help, default, valid values and search range of each setting of a settings class."""
    hints = _hints(settings_type)
    return {
        declared.name: {
            "help": declared.metadata["help"],
            "default": declared.default,
            "valid": valid_values(declared, hints[declared.name]),
            "search": list(declared.metadata["search"]),
        }
        for declared in fields(settings_type)
    }


def valid_values(declared: Field[Any], hint: object) -> str:
    """Describe the valid values of a setting."""
    rule = declared.metadata
    if choices := _choices(declared, hint):
        return "one of " + ", ".join(map(str, choices))
    kind, optional = _plain_type(hint)
    if kind is bool:
        return "true or false"
    if kind is str:
        return "text"
    words = "an integer" if kind is int else "a number"
    bounds = [("≥", rule["minimum"]), (">", rule["above"]), ("<", rule["below"])]
    bounds += [("≤", rule["maximum"])] if rule["below"] is None else []
    limits = " and ".join(f"{sign} {bound:,.9g}" for sign, bound in bounds if bound is not None)
    return f"{words} {limits}".strip() + (" or none" if optional else "")


def _choices(declared: Field[Any], hint: object) -> tuple[Any, ...]:
    """Return the only valid values: `choices`, or those of a Literal; empty: there are others."""
    return declared.metadata["choices"] or (get_args(hint) if get_origin(hint) is Literal else ())


def _checked_value(declared: Field[Any], hint: object, value: object) -> Any:
    rule = declared.metadata
    try:
        parsed = _parsed_value(value, hint)
    except (TypeError, ValueError, OverflowError) as error:
        raise _invalid_value(declared, hint, value) from error
    if parsed is None:
        return None
    if choices := _choices(declared, hint):
        valid = parsed in choices
    elif isinstance(parsed, int | float):
        valid = (
            (rule["minimum"] is None or parsed >= rule["minimum"])
            and (rule["above"] is None or parsed > rule["above"])
            and (rule["below"] is None or parsed < rule["below"])
            and parsed <= rule["maximum"]
        )
    else:
        valid = True
    if not valid:
        raise _invalid_value(declared, hint, value)
    return parsed


def _invalid_value(declared: Field[Any], hint: object, value: object) -> InputError:
    return InputError(
        f"invalid value '{_short_text(value)}' for setting '{declared.name}': "
        f"it must be {valid_values(declared, hint)}"
    )


def _short_text(value: object) -> str:
    """Return a value as one short line."""
    try:
        text = " ".join(str(value).split())
    except ValueError:  # Python does not convert integers with thousands of digits
        text = type(value).__name__
    return text if len(text) <= MAX_VALUE_LENGTH else f"{text[:MAX_VALUE_LENGTH]}…"


def _parsed_value(value: object, hint: object) -> Any:
    kind, optional = _plain_type(hint)
    if optional and (value is None or str(value).lower() == "none"):
        return None
    if kind is bool:
        words = {"true": True, "false": False, "1": True, "0": False}
        if str(value).lower() not in words:
            raise ValueError(value)
        return words[str(value).lower()]
    if kind is not str and isinstance(value, bool | bytes):
        raise ValueError(value)
    if kind is int and isinstance(value, float) and not value.is_integer():
        raise ValueError(value)
    if kind is str and isinstance(value, list | tuple):  # such as fanout=[10, 5]
        value = ",".join(map(str, value))
    parsed = kind(value)
    if kind is float and not math.isfinite(parsed):
        raise ValueError(value)
    return parsed


def _plain_type(hint: object) -> tuple[type, bool]:
    """`float | None` → (float, True); `int` → (int, False); a Literal of strings → (str, False)."""
    if get_origin(hint) is types.UnionType:
        (kind,) = (arg for arg in get_args(hint) if arg is not type(None))
        return kind, True
    return (hint, False) if isinstance(hint, type) else (str, False)
