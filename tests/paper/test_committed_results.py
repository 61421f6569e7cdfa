"""The committed tables and the pages agree with the archives under results/."""

import csv
import json
import re
from pathlib import Path

import pytest

import experiments
from benchmarks.markdown import interventions
from benchmarks.results import Results
from canet.paper import EXPERIMENTS, FinishedRuns, Scope
from canet.paper.paper_report import write_report
from canet.paper.reproduce import RUNS, available_features, choose
from canet.report.tables import Table
from canet.store import unpack_archive

ROOT = Path(__file__).parents[2]
RESULTS = ROOT / "results"
KNOWN = EXPERIMENTS | experiments.EXPERIMENTS
EXPERIMENTS_OF = {
    "reproduction": [*EXPERIMENTS, "protocols"],
    "backbones": ["backbones"],
    "reliance": ["reliance"],
    "interventions": ["interventions"],
}


@pytest.fixture(scope="module")
def unpacked(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Name of an archive → its runs, unpacked on first use."""
    root = tmp_path_factory.mktemp("results")

    class Unpacked(dict[str, Path]):
        def __missing__(self, name: str) -> Path:
            unpack_archive(RESULTS / name / "runs.tar.xz", root / name / RUNS)
            self[name] = root / name / RUNS
            return self[name]

    return Unpacked()


def values(table: Table) -> tuple[list[str], list[list[object]]]:
    content = json.loads(table.json())
    return content["columns"], content["rows"]


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=() if name == "backbones" else pytest.mark.slow)
        for name in EXPERIMENTS_OF
    ],
)
def test_an_archive_contains_exactly_the_runs_of_the_committed_tables(
    name: str, unpacked: dict[str, Path], fresh_cache: Path
) -> None:
    """On a machine without any data file."""
    runs = unpacked[name]
    scope, finished = Scope(available_features=available_features(runs)), FinishedRuns(runs)
    chosen = [
        experiment for what in EXPERIMENTS_OF[name] for experiment in choose(KNOWN, what, scope)
    ]
    configs = [config for experiment in chosen for config in experiment.configs()]
    folders = {folder.path for folder in finished.folders(configs)}
    assert folders == {marker.parent for marker in runs.rglob("done")}
    assert all(finished.folders([config]) for config in configs)
    made = {table.name: values(table) for one in chosen for table in one.tables(finished)}
    committed = [Table.read(path) for path in (RESULTS / name / "tables").glob("*.json")]
    assert made == {table.name: values(table) for table in committed}


@pytest.mark.slow
def test_the_report_shows_the_numbers_of_the_archive(
    unpacked: dict[str, Path], tmp_path: Path
) -> None:
    def data(page: Path) -> list[str]:
        content = page.read_text(encoding="utf-8")
        text = re.split('<section id="(?:figures|provenance)">', content)[0]
        return re.findall(r'(?:data-value|aria-label)="([^"]*)"', text)

    write_report(unpacked["reproduction"], tmp_path / "report.html")
    ours = data(tmp_path / "report.html")
    assert len(ours) > 1000
    assert ours == data(RESULTS / "reproduction" / "report.html")


Cells = dict[tuple[str, ...], dict[str, str]]


def cells(folder: str, name: str, *keys: str) -> Cells:
    """The lines of a committed CSV, by the texts of some columns."""
    path = RESULTS / folder / "tables" / f"{name}.csv"
    with path.open(newline="", encoding="utf-8") as file:
        return {tuple(line[key] for key in keys): line for line in csv.DictReader(file)}


def text(cell: dict[str, str], sign: str = "") -> str:
    mean, std = float(cell["mean"]), float(cell["std"])
    return f"{mean:{sign}.1f} ± {std:.1f}".replace("-", "−")


def page_lines(name: str) -> list[str]:
    return (ROOT / name).read_text(encoding="utf-8").splitlines()


def test_the_page_of_the_reproduction_shows_table_1() -> None:
    """Every cell, rounded from the committed one."""
    found = cells("reproduction", "table1", "backbone", "method", "score")
    lines = page_lines("docs/results/reproduction.md")
    start = lines.index(
        "| | cora, GCN | citeseer, GCN | pubmed, GCN | cora, GAT | citeseer, GAT | pubmed, GAT |"
    )
    columns = [c.strip().split(", ") for c in lines[start].strip("|").split("|")[1:]]
    rows = [line for line in lines[start + 2 : start + 12] if line.startswith("|")]
    assert len(rows) == 10
    for row in rows:
        method, *shown = (cell.strip().replace("**", "") for cell in row.strip("|").split("|"))
        for (task, backbone), shown_text in zip(columns, shown, strict=True):
            cell = found[backbone, method, f"{task} OOD"]
            expected = text(cell)
            if paper := cell["published"]:
                expected += f" [{paper if paper == 'OOM' else format(float(paper), '.1f')}]"
            assert re.sub(r"\s+", " ", shown_text) == expected


def test_the_page_of_the_backbones_shows_their_table() -> None:
    """Every cell, rounded from the committed one; the best of a method is bold."""
    found = cells("backbones", "backbones", "task", "score", "backbone")
    names = list(dict.fromkeys(backbone for _, _, backbone in found))
    lines, tasks = page_lines("docs/results/backbones.md"), {task for task, _, _ in found}
    assert len(tasks) == 7
    for task in tasks:
        expected = []
        for method in ("ERM", "CaNet"):
            row = [found[task, f"{method} OOD", name] for name in names]
            best = max(float(cell["mean"]) for cell in row)
            expected += [
                f"**{text(cell)}**" if float(cell["mean"]) == best else text(cell) for cell in row
            ]
        assert f"| {task} | {' | '.join(expected)} |" in lines


def test_the_page_of_the_interventions_shows_their_tables() -> None:
    """Every row of its tables, rounded from the committed ones."""
    page = page_lines("results/interventions/details.md")
    kinds, tasks = ("shared", "redrawn", "resampled"), ("cora", "citeseer", "pubmed")
    places = [(task, backbone) for task in tasks for backbone in ("GCN", "GAT")]

    def found(part: str, *keys: str) -> Cells:
        return cells("interventions", f"interventions{part}", *keys, "score")

    difference = found("-control", "generator", "task", "backbone", "selection")
    for kind in kinds:
        for rule in ("best validation", "last epoch"):
            row = [text(difference[kind, *place, rule, "CaNet, inferred"], "+") for place in places]
            assert f"| `{kind}`, {rule} | {' | '.join(row)} |" in page
    seeds = found("-seeds", "task", "backbone")
    row = [text(seeds[*place, "best validation"], "+") for place in places]
    assert f"| `resampled`, five runs on each data seed | {' | '.join(row)} |" in page
    scores = found("", "generator", "task", "backbone")
    (head,) = [line for line in page if line.startswith("| OOD, GCN |")]
    labels = [label.strip() for label in head.split("|")[2:-1]]
    for kind in kinds:
        for task in ("synthetic", *tasks):
            row = [text(scores[kind, task, "GCN", label]) for label in labels]
            assert f"| `{kind}`, {task} | {' | '.join(row)} |" in page
    real = found("-real", "task", "backbone")
    for task, backbone in {(task, backbone) for task, backbone, _ in real}:
        shown = ["ERM", "ERM, inferred − ERM: OOD", "ERM, inferred − ERM: ID", "CaNet"]
        splits = ("OOD", "OOD, last epoch", "ID")
        shown += [f"CaNet, inferred − CaNet: {split}" for split in splits]
        row = [text(real[task, backbone, s], "+" if "−" in s else "") for s in shown]
        assert f"| {task}, {backbone} | {' | '.join(row)} |" in page
    ablation = found("-ablation", "variant")
    for variant in {variant for variant, _ in ablation}:
        row = [text(cell, "+") for (name, _), cell in ablation.items() if name == variant][:-1]
        assert any(line.startswith(f"| {variant} | {' | '.join(row)} |") for line in page)
    for device, where in (("cpu", "two CPU cores"), ("h200", "NVIDIA H200")):
        measured = Results.read(RESULTS / "interventions" / f"bench-{device}.json")
        for label, *row in interventions(measured).rows:
            assert f"| {label.removesuffix(' K 3')}, {where} | {' | '.join(row)} |" in page
