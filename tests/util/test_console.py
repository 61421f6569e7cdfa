import io
import re
import sys
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, redirect_stderr, redirect_stdout
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from canet.cli.listings import Reporter, print_table, show_tasks, summary_rows
from canet.data import DATASETS, TaskDescription
from canet.data.benchmarks.dataset import Statistics
from canet.data.benchmarks.files import FileStatus
from canet.util import progress
from canet.util.progress import SECONDS_BETWEEN_LINES


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch) -> AbstractContextManager[Terminal]:
    """A block in which standard output and error are a terminal of 80 columns."""
    for name in ("NO_COLOR", "FORCE_COLOR", "TTY_COMPATIBLE", "TTY_INTERACTIVE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "80")

    @contextmanager
    def shown() -> Iterator[Terminal]:
        screen = Terminal()
        with redirect_stdout(screen), redirect_stderr(screen):
            yield screen

    return shown()


def text_of(screen: Terminal) -> list[str]:
    """Lines without colours and movements of the cursor."""
    return re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", screen.getvalue()).splitlines()


def last_bar(screen: Terminal) -> str:
    return [line.strip() for line in text_of(screen) if line.strip()][-1]


def share_done(bar: str) -> float:
    """How much of a bar is filled."""
    (whole,) = re.findall("[━╺╸]+", bar)
    return re.search("[╺╸]", whole).start() / len(whole)  # type: ignore[union-attr]


class Clock:
    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 1000.0
        monkeypatch.setattr(progress, "time", SimpleNamespace(monotonic=lambda: self.now))


def test_without_a_terminal_a_line_comes_now_and_then(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    clock = Clock(monkeypatch)
    reporter = Reporter(2, quiet=False)
    with reporter.showing():
        for run in ("first", "second"):
            report = reporter.next_run(run)
            for epoch in range(1, 101):
                clock.now += 0.3
                report(epoch, 100, 50 + epoch / 10)
    out, err = capsys.readouterr()
    lines = err.splitlines()
    assert out == ""
    assert lines[0] == "0/2 runs; about 1 min left; first: epoch 34/100, valid 53.4"
    assert len(lines) == 60 // (SECONDS_BETWEEN_LINES + 0.2)
    assert lines[-1].startswith("1/2 runs; about 1 min left; second: epoch ")


def test_short_work_without_a_terminal_prints_no_progress(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with Reporter(1, quiet=False).showing() as reporter:
        reporter.next_run("short")(1, 1, 50.0)
    assert capsys.readouterr() == ("", "")


def test_quiet_prints_nothing_even_on_a_terminal(
    monkeypatch: pytest.MonkeyPatch, terminal: AbstractContextManager[Terminal]
) -> None:
    clock = Clock(monkeypatch)
    with terminal as screen, Reporter(1, quiet=True).showing() as reporter:
        report = reporter.next_run("run")
        clock.now += 2 * SECONDS_BETWEEN_LINES
        report(1, 2, 50.0)
    assert screen.getvalue() == ""


def test_terminal_shows_one_bar_over_all_runs_and_wipes_it(
    terminal: AbstractContextManager[Terminal],
) -> None:
    with terminal as screen, Reporter(2, quiet=False).showing() as reporter:
        reporter.next_run("first")(10, 10, 61.0)
        reporter.next_run("second")(5, 10, 62.5)
    line = last_bar(screen)
    assert re.fullmatch(r"1/2 runs ━+╺━+ [-0-9:]+ second: epoch 5/10, .*", line)
    assert share_done(line) == pytest.approx(0.75, abs=0.05)
    up = "\x1b[1A"
    assert screen.getvalue().endswith(f"{up}\x1b[2K")
    assert screen.getvalue().count(up) == 1


def test_finished_runs_that_are_only_read_count_as_done(
    terminal: AbstractContextManager[Terminal],
) -> None:
    with terminal as screen, Reporter(4, quiet=False).showing() as reporter:
        for run in ("a", "b", "c"):
            reporter.next_run(run)
        reporter.next_run("d")(1, 10, 50.0)
    line = last_bar(screen)
    assert share_done(line) == pytest.approx(0.775, abs=0.05)


def test_table_has_every_cell_and_numbers_flush_right(capsys: pytest.CaptureFixture[str]) -> None:
    title = "A title that is longer than the table"
    print_table(title, ["name", "score"], [("a", "9.50 ± 0.10"), ("longer", "10.25 ± 0.00")])
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == title
    assert "│ a      │  9.50 ± 0.10 │" in lines
    assert "│ longer │ 10.25 ± 0.00 │" in lines


def test_texts_in_a_table_are_shown_as_they_are(capsys: pytest.CaptureFixture[str]) -> None:
    print_table("[bold]", ["file"], [("/data [1]/[red]x",), (":smile:",)])
    out = capsys.readouterr().out
    assert "[bold]" in out
    assert "/data [1]/[red]x" in out
    assert ":smile:" in out


def test_table_fits_the_terminal_and_loses_no_letter(
    terminal: AbstractContextManager[Terminal],
) -> None:
    path = "/a/long/folder" * 9
    with terminal as screen:
        print_table("Files", ["file", "place"], [("name", path)])
    lines = text_of(screen)
    assert all(len(line) <= 80 for line in lines)
    cells = [line.split("│")[2].strip() for line in lines if line.startswith("│")]
    assert "".join(cells) == path


def test_table_in_a_file_does_not_depend_on_the_terminal(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", "20")
    print_table("Files", ["place"], [("/folder" * 12,)])
    assert "/folder" * 12 in capsys.readouterr().out


def test_table_goes_nowhere_without_standard_output(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(sys, "stdout", None)
        print_table("Files", ["place"], [("folder",)])
    assert capsys.readouterr() == ("", "")


def described(name: str, state: str, files: list[FileStatus]) -> TaskDescription:
    entry = DATASETS[name]
    return TaskDescription(
        name=name,
        description=entry.description,
        shift=entry.shift,
        metric=entry.metric,
        state=state,
        statistics=entry.statistics or Statistics(1500, 2952, 5, 1200),
        domains=entry.domains,
        spurious=entry.spurious,
        protocols=entry.protocols,
        features=entry.features,
        files=files,
    )


TASKS = [
    described(name, "missing", [FileStatus(f"{name}/{i}", "missing", None) for i in range(18)])
    for name in DATASETS
]


def test_list_of_tasks_fits_eighty_columns_without_a_torn_word(
    terminal: AbstractContextManager[Terminal],
) -> None:
    with terminal as screen:
        show_tasks(TASKS)
    lines = text_of(screen)
    assert all(len(line) <= 80 for line in lines)
    assert "…" not in screen.getvalue()
    for task in TASKS:
        (line,) = (line for line in lines if line.startswith(f"│ {task.name} "))
        assert f" {task.statistics.nodes:,} " in line
        assert "missing: 18 files" in line


def test_list_of_tasks_in_a_file_tells_shift_metric_and_splits(
    capsys: pytest.CaptureFixture[str],
) -> None:
    splits = {"train": 4062, "valid": 2031, "test_id": 2030, "ood/a": 1000, "ood/b": 234}
    show_tasks([replace(TASKS[1], splits=splits)])
    (line,) = (line for line in capsys.readouterr().out.splitlines() if "cora" in line)
    for cell in ("2,708 × 6", "spurious features", "accuracy", "4,062 / 2,031 / 2,030", "1,234"):
        assert f" {cell} " in line


def test_one_affected_file_is_named_and_several_are_counted(
    capsys: pytest.CaptureFixture[str],
) -> None:
    bad, good = FileStatus("x/bad.csv", "damaged", None), FileStatus("x/good.csv", "present", None)
    show_tasks(
        [
            described("cora", "damaged", [bad, good]),
            described("twitch", "damaged", [bad, bad, good]),
            described("arxiv", "present", [good]),
            described("synthetic", "present", []),
        ]
    )
    out = capsys.readouterr().out
    for words in ("damaged: bad.csv", "damaged: 2 files", "present, intact", "none needed"):
        assert words in out


def test_rows_of_a_summary_follow_the_protocol() -> None:
    def spread(mean: float) -> dict[str, Any]:
        return {"mean": mean, "std": 1.0, "values": [mean - 1, mean, mean + 1]}

    scores = {
        "train": spread(99),
        "valid": spread(88),
        "test_id": spread(77),
        "test_ood": {"near": spread(66), "far": spread(55)},
        "test_ood_mean": spread(60.5),
    }
    rows = summary_rows({"scores": scores})
    assert [name for name, _ in rows] == [
        *("train", "valid", "test_id", "test_ood near", "test_ood far", "test_ood mean")
    ]
    assert rows[-1][1] == "60.50 ± 1.00"
    of_one_run = {"mean": 60.5, "std": 0.0, "values": [60.5]}
    single = summary_rows({"scores": scores | {"test_ood_mean": of_one_run}})
    assert single[-1] == ("test_ood mean", "60.50")
    with_more = summary_rows({"scores": scores | {"left_out": {"gap": spread(1)}}})
    assert with_more == [*rows, ("left out gap", "1.00 ± 1.00")]
