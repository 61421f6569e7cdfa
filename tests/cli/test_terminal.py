"""Commands on a terminal that knows ASCII alone or no language at all, and where there is none."""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from canet.cli.terminal import PLAIN, open_closed_streams, write_everywhere
from tests.own_tables import write_folder

POOR = {"PYTHONIOENCODING": "ascii", "LC_ALL": "C", "TERM": "dumb"}
COMMANDS = """
import json, sys
from canet.cli import main

for words in json.loads(sys.argv[1]):
    sys.argv = ["canet", *words]
    try:
        main()
    except SystemExit as end:
        if end.code:
            sys.exit(f"{words}: exit code {end.code}")
"""


def run(commands: list[list[str]], folder: Path) -> str:
    """What commands print where nothing but ASCII can be written; one process, to save time."""
    done = subprocess.run(
        [sys.executable, "-c", COMMANDS, json.dumps(commands)],
        cwd=folder,
        env=os.environ | POOR,
        capture_output=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr.decode()
    return done.stdout.decode("ascii", "replace")


@pytest.mark.slow
def test_every_command_ends_well_on_an_ascii_terminal(tmp_path: Path, fresh_cache: Path) -> None:
    few = ["--set", "epochs=2", "--set", "hidden=4"]
    nodes = ["größe,kind", *(f"{i % 7},{('rot', 'grün')[i % 2]}" for i in range(40))]
    edges = ["source,target", *(f"{i},{(i + 2) % 40}" for i in range(40))]
    write_folder(tmp_path / "größe", "\n".join(nodes), "\n".join(edges))
    out = run(
        [
            *([], ["--help"], ["train", "--help"], ["datasets"], ["datasets", "synthetic"]),
            *(["methods"], ["methods", "canet"], ["backbones"]),
            ["train", "synthetic", "--seeds", "2", *few, "--out", "läufe"],
            ["evaluate", "läufe"],
            ["report", "läufe"],
            ["archive", "läufe", "--out", "läufe.tar.xz"],
            ["search", "synthetic", "--trials", "1", "--epochs", "1"],
            ["inspect", "größe", "--label", "kind"],
            ["fit", "größe", "--label", "kind", *few, "--out", "modell"],
            ["predict", "modell", "größe", "--out", "p.csv"],
            ["diagnose", "modell", "größe", "--repeats", "1", "--out", "seite.html"],
        ],
        tmp_path,
    )
    assert "lambda, weight of the penalty" in out
    assert ">= 1 and <= 16,384" in out
    assert "x 6" in out
    assert "+-" in out
    assert "Kept in l\\xe4ufe" in out


def test_a_stream_that_knows_all_characters_keeps_them(monkeypatch: pytest.MonkeyPatch) -> None:
    written = {}
    for encoding in ("utf-8", "ascii", "latin-1", "cp1252"):
        raw = io.BytesIO()
        monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(raw, encoding))
        write_everywhere()
        print("96.39 ± 0.43, λ ≥ 1 … é ☃ \udcff", end="", flush=True)
        written[encoding] = raw.getvalue().decode(encoding)
    assert written == {
        "utf-8": "96.39 ± 0.43, λ ≥ 1 … é ☃ \\udcff",
        "ascii": "96.39 +- 0.43, lambda >= 1 ... \\xe9 \\u2603 \\udcff",
        "latin-1": "96.39 ± 0.43, lambda >= 1 ... é \\u2603 \\udcff",
        "cp1252": "96.39 ± 0.43, lambda >= 1 … é \\u2603 \\udcff",
    }


def test_what_stands_for_a_character_is_ascii() -> None:
    assert all(len(char) == 1 and plain.isascii() for char, plain in PLAIN.items())


def test_closed_streams_are_opened_where_nobody_reads(monkeypatch: pytest.MonkeyPatch) -> None:
    kept = io.StringIO()
    monkeypatch.setattr(sys, "stdin", None)
    monkeypatch.setattr(sys, "stdout", None)
    monkeypatch.setattr(sys, "stderr", kept)
    open_closed_streams()
    with sys.stdin as given, sys.stdout as written:
        assert given.read() == ""
        assert written.write("anything") == 8
        assert os.get_inheritable(written.fileno())
    assert sys.stderr is kept


@pytest.mark.slow
def test_a_command_does_its_work_without_standard_streams(tmp_path: Path) -> None:
    words = [sys.executable, "-m", "canet.cli", "train", "synthetic", "--epochs", "1"]
    settings = ["--set", "hidden=4", "--out", "kept"]
    done = subprocess.run(
        ["sh", "-c", 'exec "$0" "$@" <&- >&- 2>&-', *words, *settings], cwd=tmp_path, timeout=120
    )
    assert done.returncode == 0
    assert len(list(tmp_path.glob("kept/**/done"))) == 1
