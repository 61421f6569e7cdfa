import os
import random
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest
from typer.testing import CliRunner

from canet.cli import app
from canet.data import DATASETS
from canet.errors import CanetError
from canet.paper import EXPERIMENTS, FinishedRuns, Scope
from canet.paper import reproduce as module
from canet.paper.reproduce import choose, jobs_of, reproduce
from canet.runs import FailedJob
from canet.store import RunConfig
from experiments import EXPERIMENTS as STUDIES
from tests.support.made_up import write_made_up

KNOWN = EXPERIMENTS | STUDIES
PROGRAM = """
import sys
from pathlib import Path
from canet.data import DATASETS
from canet.paper import EXPERIMENTS, Scope
from canet.paper.reproduce import reproduce
DATASETS["synthetic"].quick_epochs = 2
scope = Scope(quick=True, methods=("erm",))
reproduce(EXPERIMENTS, "elliptic", Path(sys.argv[1]), scope, device="cpu", quiet=True)
"""


FAST = ("table1", "table2", "ablation", "elliptic", "protocols", "reliance")
"""Experiments whose trial takes a few seconds."""


@pytest.fixture(autouse=True)
def short(monkeypatch: pytest.MonkeyPatch, fresh_cache: Path) -> None:
    """Use the embedded task instead of data files, and two epochs."""
    monkeypatch.setattr(DATASETS["synthetic"], "quick_epochs", 2)


@pytest.fixture
def made_up(monkeypatch: pytest.MonkeyPatch) -> list[RunConfig]:
    """Jobs finish at once with made-up scores; return the list of jobs."""
    asked: list[RunConfig] = []

    def run(configs: list[RunConfig], root: Path, **_: object) -> list[FailedJob]:
        asked.extend(configs)
        for config in configs:
            write_made_up(root, config, 0.6)
        return []

    monkeypatch.setattr(module, "run_jobs", run)
    return asked


def contents(folder: Path) -> dict[str, bytes]:
    files = [*(folder / "tables").iterdir(), *(folder / "figures").iterdir()]
    return {path.name: path.read_bytes() for path in files}


@pytest.mark.parametrize(
    "what",
    [pytest.param(what, marks=() if what in FAST else pytest.mark.slow) for what in KNOWN],
)
def test_each_experiment_writes_tables_and_prints_the_headline(
    what: str, made_up: list[RunConfig], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert reproduce(KNOWN, what, tmp_path, Scope(quick=True)) == []
    names = {path.name for path in (tmp_path / "tables").iterdir()}
    drawn = {path.name for path in (tmp_path / "figures").glob("*")}
    assert all(name.endswith(("-quick.svg", "-quick.png")) for name in drawn)
    assert bool(drawn) == (what not in ("table1", "table2"))
    (experiment,) = choose(KNOWN, what, Scope(quick=True))
    experiment.draw(FinishedRuns(tmp_path / "none"), tmp_path / "empty")
    assert {f"{Path(name).stem}.csv" for name in names} < names
    assert all("quick" in name for name in names)
    printed = capsys.readouterr().out
    assert "synthetic in place of" in printed
    assert KNOWN[what].title in printed
    assert f"Written: {tmp_path / 'tables'}" in printed


@pytest.mark.slow
def test_all_runs_shared_jobs_once_and_writes_the_report(
    made_up: list[RunConfig], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    reproduce(EXPERIMENTS, "all", tmp_path, Scope(quick=True))
    jobs = [(config.name, config.seed) for config in made_up]
    assert len(jobs) == len(set(jobs))
    assert (tmp_path / "report.html").is_file()
    assert "report.html" in capsys.readouterr().out


def test_a_job_with_curves_replaces_the_same_job_without(
    made_up: list[RunConfig], tmp_path: Path
) -> None:
    scope = Scope(methods=("erm",), tasks=("cora",))
    separate = [choose(KNOWN, "table1", scope), choose(KNOWN, "protocols", scope)]
    jobs = jobs_of([*separate[0], *separate[1]])
    assert len({repr(replace(job, ood_curves=False)) for job in jobs}) == len(jobs)
    assert len(jobs) < sum(len(jobs_of(experiments)) for experiments in separate)
    reproduce(STUDIES, "protocols", tmp_path, scope, quiet=True)
    before = len(made_up)
    reproduce(EXPERIMENTS, "table1", tmp_path, scope, quiet=True)
    assert [job.seed for job in made_up[before:] if job.data_seed == 0] == 2 * [1, 2, 3, 4]
    assert not [job for job in made_up[before:] if job.data_seed > 0]
    page = (tmp_path / "tables" / "table1.md").read_text(encoding="utf-8")
    assert "of 5" not in page


def test_starting_again_runs_nothing_and_writes_the_same_bytes(tmp_path: Path) -> None:
    scope = Scope(quick=True, methods=("erm",))
    assert reproduce(EXPERIMENTS, "elliptic", tmp_path, scope, device="cpu", quiet=True) == []
    markers = {path: path.stat().st_mtime_ns for path in tmp_path.rglob("done")}
    before = contents(tmp_path)
    assert len(markers) == 4
    reproduce(EXPERIMENTS, "elliptic", tmp_path, scope, device="cpu", quiet=True)
    assert contents(tmp_path) == before
    assert {path: path.stat().st_mtime_ns for path in tmp_path.rglob("done")} == markers


@pytest.mark.slow
def test_a_killed_reproduction_resumes_to_the_same_tables(tmp_path: Path) -> None:
    def start() -> subprocess.Popen:
        command = [sys.executable, "-c", PROGRAM, str(tmp_path / "killed")]
        environment = os.environ | {"OMP_NUM_THREADS": "1"}
        return subprocess.Popen(command, env=environment, start_new_session=True)

    scope = Scope(quick=True, methods=("erm",))
    reproduce(EXPERIMENTS, "elliptic", tmp_path / "undisturbed", scope, device="cpu", quiet=True)
    markers: dict[Path, int] = {}
    generator = random.Random(0)
    for share in (0.5, 0.9):
        process = start()
        deadline = time.monotonic() + 100
        while process.poll() is None and time.monotonic() < deadline:
            if len(list((tmp_path / "killed").rglob("config.json"))) > 4 * share:
                break
            time.sleep(0.02)
        time.sleep(generator.uniform(0, 0.3))
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        for marker, written in markers.items():
            assert marker.stat().st_mtime_ns == written
        markers |= {path: path.stat().st_mtime_ns for path in tmp_path.glob("killed/**/done")}
    assert start().wait(300) == 0
    for marker, written in markers.items():
        assert marker.stat().st_mtime_ns == written
    assert contents(tmp_path / "killed") == contents(tmp_path / "undisturbed")


def test_failures_are_listed_and_leave_gaps(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def run(configs: list[RunConfig], root: Path, **_: object) -> list[FailedJob]:
        for config in configs[1:]:
            write_made_up(root, config, 0.6)
        return [FailedJob(configs[0], ["training stopped", "the loss is not finite"])]

    monkeypatch.setattr(module, "run_jobs", run)
    result = CliRunner().invoke(app, ["reproduce", "table1", "--quick", "--out", str(tmp_path)])
    assert result.exit_code == 1
    assert "failed: synthetic erm-gcn, data seed 0, seed 0" in result.output
    assert "    the loss is not finite" in result.output
    assert "--retry" in result.output
    page = (tmp_path / "tables" / "table1-quick.md").read_text(encoding="utf-8")
    assert "60.00 (1 of 2)" in page


def test_methods_and_tasks_are_lists_with_commas(
    made_up: list[RunConfig], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    options = ["--methods", "erm, irm", "--tasks", "citeseer", "--out", str(tmp_path), "--quiet"]
    result = CliRunner().invoke(app, ["reproduce", "table1", *options])
    assert result.exit_code == 0
    assert {config.method for config in made_up} == {"erm", "irm"}
    assert {config.task for config in made_up} == {"citeseer"}


@pytest.mark.parametrize(
    ("what", "scope", "words"),
    [
        ("table3", Scope(), "table3"),
        ("protocols", Scope(), "protocols"),
        ("table1", Scope(methods=("ermm",)), "ermm"),
        ("table1", Scope(tasks=("corra",)), "corra"),
        ("table1", Scope(tasks=("twitch",)), "cora, citeseer, pubmed"),
        ("ablation", Scope(methods=("erm",)), "--methods"),
    ],
)
def test_what_cannot_be_run_is_rejected(what: str, scope: Scope, words: str) -> None:
    with pytest.raises(CanetError, match=words):
        choose(EXPERIMENTS, what, scope)
