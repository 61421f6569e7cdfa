import os
import re
from dataclasses import replace
from pathlib import Path

import pytest

from canet.paper.published import (
    ARXIV_LEAD,
    COLUMNS,
    ELLIPTIC_LEAD,
    PAPER_BACKBONES,
    PAPER_METHODS,
    PAPER_NAMES,
    SHIFTED_FR,
    TABLES,
    published,
)
from canet.report.score import to_percent
from canet.store.summary import OOD_MEAN
from tests.support.finished import make_config

LABELS = {"Table 1": "tbl-comp-small", "Table 2": "tbl-comp-large"}


@pytest.fixture(scope="module")
def paper() -> str:
    default = Path(__file__).parents[2] / ".." / "shared" / "paper.tex"
    path = Path(os.environ.get("CANET_PAPER") or default)
    if not path.is_file():
        pytest.skip("the paper's source is not here: CANET_PAPER names it")
    return path.read_text(encoding="utf-8")


@pytest.mark.parametrize("table", TABLES)
def test_all_scores_are_those_of_the_paper(paper: str, table: str) -> None:
    body = paper.split(rf"\label{{{LABELS[table]}}}")[1].split(r"\end{table*}")[0]
    columns = [
        (task, SHIFTED_FR if split == "ood/FR" else split)
        for task in TABLES[table]
        for split in COLUMNS[task]
    ]
    backbone, seen = "", set()
    for line in body.replace(r"\model", "CaNet").splitlines():
        cells = line.split("&")
        if start := re.search(r"\{(GCN|GAT)\}", cells[0]):
            backbone = start[1].lower()
        if not backbone or len(cells) != 2 + len(columns):
            continue
        method = PAPER_NAMES[next(name for name in PAPER_NAMES if re.search(rf"\b{name}\b", line))]
        seen.add((backbone, method))
        for (task, split), cell in zip(columns, cells[2:], strict=True):
            ours = published(make_config(task, method, backbone), split)
            assert ours is not None
            assert ours.table == table
            numbers = re.findall(r"\d+\.\d+", cell)
            expected = "OOM" if "OOM" in cell else " ± ".join(numbers)
            assert ours.text == expected, (task, backbone, method, split)
    assert seen == {(b, m) for b in PAPER_BACKBONES for m in PAPER_METHODS}


def test_the_leads_are_those_of_the_text(paper: str) -> None:
    gcn, gat = (f"{to_percent(ARXIV_LEAD[backbone]):.1f}" for backbone in ("gcn", "gat"))
    assert f"{gcn}\\%$ and ${gat}\\%" in paper
    assert f"average {to_percent(ELLIPTIC_LEAD):.2f}\\% improvement" in paper


@pytest.mark.parametrize(
    ("task", "method", "split"),
    [
        ("elliptic", "canet", OOD_MEAN),
        ("synthetic", "canet", OOD_MEAN),
        ("cora", "vrex", OOD_MEAN),
        ("cora", "canet", "valid"),
        ("twitch", "canet", OOD_MEAN),
    ],
)
def test_what_the_paper_does_not_report_is_none(task: str, method: str, split: str) -> None:
    assert published(make_config(task, method), split) is None


@pytest.mark.parametrize(
    "change", [{"features": "structural"}, {"protocol": "disjoint"}, {"inductive": True}]
)
def test_other_features_and_protocols_have_no_published_numbers(change: dict) -> None:
    config = make_config("arxiv", "canet")
    assert published(config, "test_id") is not None
    assert published(replace(config, **change), "test_id") is None
