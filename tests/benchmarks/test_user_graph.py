from pathlib import Path

import pytest

from benchmarks import __main__ as command
from benchmarks import user_graph
from canet.data.benchmarks.files import FileStatus
from canet.errors import CanetError


@pytest.mark.parametrize("name", ["table 10⁵", "words sparse"])
def test_every_stage_is_measured(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(user_graph, "SHAPES", {name: (300, 120)})
    monkeypatch.setattr(user_graph, "EPOCHS", {name: 1})
    found = user_graph.measure(name, tmp_path, "cpu", with_diagnosis=False)
    stages = {*user_graph.STAGES} - {"diagnose"} - ({"read"} if name.startswith("words") else set())
    assert {*found} == stages
    assert found["peak GB"] > 0.05


@pytest.mark.slow
def test_a_graph_is_measured_in_its_own_process() -> None:
    assert user_graph.measure_in_process("words sparse", "cpu", False)["import"] > 0


def run(*arguments: str) -> None:
    command.app(list(arguments), standalone_mode=False)


def test_the_subcommand_shows_a_row_for_each_graph(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(command, "measure_in_process", lambda *_: {"read": 2.0})
    monkeypatch.setattr(command, "file_status", lambda _: [FileStatus("cora", "missing", None)])
    run("user_graph", "--no-diagnosis")
    _, _, *rows = capsys.readouterr().out.splitlines()
    assert [row.split(" | ")[0] for row in rows] == [f"| {name}" for name in user_graph.GRAPHS]
    assert "skipped" in rows[0]
    assert rows[-1].split(" | ")[1:4] == ["–", "2.00", "–"]
    run("user_graph", "--graphs", "table 10⁵,words dense")
    assert len(capsys.readouterr().out.splitlines()) == 4


@pytest.mark.parametrize(
    "arguments", [("--full", "user_graph"), ("user_graph", "--graphs", "table")], ids=str
)
def test_options_that_would_be_ignored_are_rejected(arguments: tuple[str, ...]) -> None:
    with pytest.raises(CanetError):
        run(*arguments)
