"""What is committed under docs/results is what the archive beside it gives."""

from __future__ import annotations

import csv
import re
import shutil
from pathlib import Path

import pytest

from benchmarks.markdown import interventions
from benchmarks.results import Results
from canet.paper import Finished, Scope
from canet.paper.paper_report import write_report
from canet.paper.reproduce import RUNS, choose, features_at_hand
from canet.store import unpack_archive

DOCS = Path(__file__).parents[2] / "docs"
REPRODUCTION = DOCS / "results" / "reproduction"
BACKBONES = DOCS / "results" / "backbones"
DIAGNOSIS = DOCS / "results" / "diagnosis"
INTERVENTIONS = DOCS / "results" / "interventions"
README = DOCS.parent / "README.md"


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("reproduction") / RUNS
    unpack_archive(REPRODUCTION / "runs.tar.xz", root)
    return root


@pytest.fixture
def scope(runs: Path, fresh_cache: Path) -> Scope:
    """The whole paper on a machine without any data file."""
    return Scope(features_at_hand=features_at_hand(runs))


def test_every_run_of_the_paper_is_in_the_archive_and_no_other(runs: Path, scope: Scope) -> None:
    finished = Finished(runs)
    configs = [config for e in choose("all", scope) for config in e.configs()]
    used = {place.path for place in finished.places(configs)}
    assert used == {marker.parent for marker in runs.rglob("done")}
    assert all(finished.places([config]) for config in configs)


def test_tables_are_the_committed_ones_byte_for_byte(
    runs: Path, scope: Scope, tmp_path: Path
) -> None:
    finished = Finished(runs)
    for experiment in choose("all", scope):
        for table in experiment.tables(finished):
            table.write(tmp_path)
    made = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    committed = {path.name: path.read_bytes() for path in (REPRODUCTION / "tables").iterdir()}
    assert made == committed


def test_the_report_is_the_committed_one_byte_for_byte(runs: Path, tmp_path: Path) -> None:
    for folder in ("tables", "figures"):
        shutil.copytree(REPRODUCTION / folder, runs.parent / folder, dirs_exist_ok=True)
    write_report(runs.parent, tmp_path / "report.html")
    ours, committed = tmp_path / "report.html", REPRODUCTION / "report.html"
    assert ours.read_bytes() == committed.read_bytes()


def test_the_readme_shows_table_1_of_the_archive() -> None:
    """Every cell of the README's table, rounded from the committed one."""
    with (REPRODUCTION / "tables" / "table1.csv").open(newline="", encoding="utf-8") as file:
        cells = {(r["backbone"], r["method"], r["score"]): r for r in csv.DictReader(file)}
    lines = README.read_text(encoding="utf-8").splitlines()
    start = lines.index(
        "| | cora, GCN | citeseer, GCN | pubmed, GCN | cora, GAT | citeseer, GAT | pubmed, GAT |"
    )
    columns = [c.strip().split(", ") for c in lines[start].strip("|").split("|")[1:]]
    rows = [line for line in lines[start + 2 : start + 12] if line.startswith("|")]
    assert len(rows) == 10
    for row in rows:
        method, *shown = (cell.strip().replace("**", "") for cell in row.strip("|").split("|"))
        for (task, backbone), text in zip(columns, shown, strict=True):
            cell = cells[backbone, method, f"{task} OOD"]
            expected = f"{float(cell['mean']):.1f} ± {float(cell['std']):.1f}"
            if cell["published"]:
                paper = cell["published"]
                expected += f" [{paper if paper == 'OOM' else format(float(paper), '.1f')}]"
            assert re.sub(r"\s+", " ", text) == expected


@pytest.mark.slow
@pytest.mark.parametrize(
    "committed", [BACKBONES, DIAGNOSIS, INTERVENTIONS], ids=lambda folder: folder.name
)
def test_an_experiment_apart_is_made_of_its_own_archive(
    committed: Path, tmp_path: Path, fresh_cache: Path
) -> None:
    unpack_archive(committed / "runs.tar.xz", tmp_path / RUNS)
    scope, finished = (
        Scope(features_at_hand=features_at_hand(tmp_path / RUNS)),
        Finished(tmp_path / RUNS),
    )
    (experiment,) = choose(committed.name, scope)
    used = {place.path for place in finished.places(experiment.configs())}
    assert used == {marker.parent for marker in tmp_path.rglob("done")}
    for table in experiment.tables(finished):
        table.write(tmp_path / "tables")
    made = {path.name: path.read_bytes() for path in (tmp_path / "tables").iterdir()}
    assert made == {path.name: path.read_bytes() for path in (committed / "tables").iterdir()}


def test_the_page_of_the_backbones_shows_their_table() -> None:
    """Every cell, rounded from the committed one; the best of a method is bold."""
    with (BACKBONES / "tables" / "backbones.csv").open(newline="", encoding="utf-8") as file:
        cells = {(r["task"], r["score"], r["backbone"]): r for r in csv.DictReader(file)}
    names = list(dict.fromkeys(backbone for _, _, backbone in cells))
    lines = (DOCS / "results" / "backbones.md").read_text(encoding="utf-8").splitlines()
    tasks = list(dict.fromkeys(task for task, _, _ in cells))
    assert len(tasks) == 7
    for task in tasks:
        expected = []
        for method in ("ERM", "CaNet"):
            row = [cells[task, f"{method} OOD", name] for name in names]
            best = max(float(cell["mean"]) for cell in row)
            for cell in row:
                text = f"{float(cell['mean']):.1f} ± {float(cell['std']):.1f}"
                expected.append(f"**{text}**" if float(cell["mean"]) == best else text)
        assert f"| {task} | {' | '.join(expected)} |" in lines


def test_the_page_of_the_diagnosis_shows_its_tables() -> None:
    """Every cell of both tables, rounded from the committed ones."""
    lines = (DOCS / "results" / "diagnosis.md").read_text(encoding="utf-8").splitlines()
    for name, keys, chosen in (
        ("diagnosis-errors", ("task", "protocol"), None),
        ("diagnosis", ("task", "protocol", "backbone", "method"), "OOD: flips, spurious block"),
    ):
        path = DIAGNOSIS / "tables" / f"{name}.csv"
        with path.open(newline="", encoding="utf-8") as file:
            cells = [r for r in csv.DictReader(file) if chosen in (None, r["score"])]
        rows: dict[tuple[str, ...], list[str]] = {}
        for cell in cells:
            row = tuple(cell[key] for key in keys[:3])
            text = f"{float(cell['mean']):.1f} ± {float(cell['std']):.1f}"
            rows.setdefault(row, []).append(text)
        for row, texts in rows.items():
            assert f"| {' | '.join(row)} | {' | '.join(texts)} |" in lines


def test_the_page_of_the_interventions_shows_their_tables() -> None:
    """Every row of its tables, rounded from the committed ones."""
    page = (DOCS / "results" / "interventions.md").read_text(encoding="utf-8").splitlines()

    def cells(name: str, *keys: str) -> dict[tuple[str, ...], dict[str, str]]:
        path = INTERVENTIONS / "tables" / f"{name}.csv"
        with path.open(newline="", encoding="utf-8") as file:
            return {tuple(r[key] for key in keys): r for r in csv.DictReader(file)}

    def text(cell: dict[str, str], sign: str = "") -> str:
        mean, std = float(cell["mean"]), float(cell["std"])
        return f"{mean:{sign}.1f} ± {std:.1f}".replace("-", "−")

    kinds, tasks, two = (
        ("shared", "redrawn", "resampled"),
        ("cora", "citeseer", "pubmed"),
        ("GCN", "GAT"),
    )
    places = [(task, backbone) for task in tasks for backbone in two]
    above = cells("interventions-blind", "generator", "task", "backbone", "selection", "score")
    for kind in kinds:
        for rule in ("best validation", "last epoch"):
            row = [text(above[kind, *place, rule, "CaNet, inferred"], "+") for place in places]
            assert f"| `{kind}`, {rule} | {' | '.join(row)} |" in page
    seeds = cells("interventions-seeds", "task", "backbone", "score")
    row = [text(seeds[*place, "best validation"], "+") for place in places]
    assert f"| `resampled`, five runs on each draw | {' | '.join(row)} |" in page
    scores = cells("interventions", "generator", "task", "backbone", "score")
    (head,) = [line for line in page if line.startswith("| OOD, GCN |")]
    arms = [arm.strip() for arm in head.split("|")[2:-1]]
    for kind in kinds:
        for task in ("synthetic", *tasks):
            row = [text(scores[kind, task, "GCN", arm]) for arm in arms]
            assert f"| `{kind}`, {task} | {' | '.join(row)} |" in page
    real = cells("interventions-real", "task", "backbone", "score")
    for task, backbone in {(task, backbone) for task, backbone, _ in real}:
        shown = ["ERM", "ERM, inferred above: OOD", "ERM, inferred above: ID", "CaNet"]
        shown += [f"CaNet, inferred above: {split}" for split in ("OOD", "OOD, last epoch", "ID")]
        row = [text(real[task, backbone, s], "+" if "above" in s else "") for s in shown]
        assert f"| {task}, {backbone} | {' | '.join(row)} |" in page
    ablation = cells("interventions-ablation", "variant", "score")
    for variant in {variant for variant, _ in ablation}:
        row = [text(cell, "+") for (name, _), cell in ablation.items() if name == variant][:-1]
        assert any(line.startswith(f"| {variant} | {' | '.join(row)} |") for line in page)
    for device, where in (("cpu", "two CPU cores"), ("h200", "NVIDIA H200")):
        for label, *measured in interventions(
            Results.read(INTERVENTIONS / f"bench-{device}.json")
        ).rows:
            assert f"| {label.removesuffix(' K 3')}, {where} | {' | '.join(measured)} |" in page
