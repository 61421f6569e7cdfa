"""Every number on the command line has bounds: absurd ones are refused before anything is done."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any, get_args, get_origin, get_type_hints

import pytest

from canet.cli import app, main

ABSURD = ["100000000000000000000000", "-1", "nan", "inf", "", "many"]


def number_options() -> Iterator[tuple[str, str, Any]]:
    """Command, option and what is declared of it, for every option that takes a number."""
    for registered in app.registered_commands:
        assert registered.callback is not None
        hints = get_type_hints(registered.callback, include_extras=True)
        for name, hint in hints.items():
            kind, *declared = get_args(hint) if get_origin(hint) is Annotated else (hint,)
            if declared and {int, float} & {kind, *get_args(kind)}:
                yield registered.callback.__name__, f"--{name.replace('_', '-')}", declared[0]


def needed(command: str) -> list[str]:
    """Arguments without which a command complains of something else first."""
    return {
        "fit": ["graph", "--out", "model"],
        "diagnose": ["model", "graph"],
        "train": ["synthetic"],
        "search": ["synthetic"],
        "reproduce": ["table1", "--out", "out"],
    }.get(command, [])


def test_there_are_options_that_take_numbers() -> None:
    assert {command for command, _, _ in number_options()} >= {
        "train",
        "fit",
        "search",
        "reproduce",
    }


@pytest.mark.parametrize(
    ("command", "option", "declared"),
    [pytest.param(*found, id=f"{found[0]} {found[1]}") for found in number_options()],
)
def test_a_number_out_of_range_is_refused_in_one_line(
    command: str,
    option: str,
    declared: Any,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert declared.min is not None
    assert declared.max is not None
    for value in ABSURD:
        refused([command, *needed(command), f"{option}={value}"], tmp_path, monkeypatch, capsys)


@pytest.mark.parametrize(
    "assignment",
    ["hidden=99999999999999999999", "epochs=1e308", "tau=inf", "num_layers=-3", "dropout=true"],
)
@pytest.mark.parametrize("command", ["train", "fit"])
def test_an_absurd_setting_is_refused_before_anything_is_done(
    command: str,
    assignment: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    words = [command, *needed(command), "--set", assignment]
    assert "invalid value" in refused(words, tmp_path, monkeypatch, capsys)


def refused(
    words: list[str],
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> str:
    """The one line that a command says before it ends, having written nothing."""
    monkeypatch.chdir(folder)
    monkeypatch.setattr(warnings, "showwarning", warnings.showwarning)  # it is put back
    monkeypatch.setattr(sys, "argv", ["canet", *words])
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == 2
    said = capsys.readouterr().err
    assert said.count("\n") == 1
    assert list(folder.iterdir()) == []
    return said
