"""The study of the diagnosis: its page, its constants, and rows of made-up models."""

import json
from pathlib import Path

import numpy as np
import pytest
from sklearn.metrics import roc_auc_score

from canet.diagnosis.sections.expected import ERRORS
from experiments import diagnosis

ROOT = Path(__file__).parents[2]
FILE = ROOT / "results/diagnosis/transfers.jsonl"


@pytest.fixture(scope="module")
def rows() -> list[dict[str, object]]:
    return [json.loads(line) for line in FILE.read_text().splitlines()]


def test_the_page_and_the_package_have_the_numbers_of_the_file(
    rows: list[dict[str, object]],
) -> None:
    page = (ROOT / "docs/results/diagnosis.md").read_text(encoding="utf-8").splitlines()
    for line in diagnosis.tables(rows).splitlines():
        assert line in page
    assert diagnosis.errors_of(rows) == ERRORS


def test_a_task_is_judged_without_its_own_errors(rows: list[dict[str, object]]) -> None:
    plain = [row for row in rows if row["metric"] in ("accuracy", "roc_auc")]
    changed = [row | {"actual": 0.0} if row["task"] == "roads" else row for row in plain]
    before, after = (diagnosis.judged(part, "auto") for part in (plain, changed))
    values = [[one.value for one in part if one.task == "roads"] for part in (before, after)]
    assert values[0] == values[1]
    assert {one.actual for one in after if one.task == "roads"} == {0.0}


def test_rows_have_the_scores_of_the_parts() -> None:
    random = np.random.default_rng(0)
    parts = ("valid", "without group 1", "ood/next", diagnosis.TRAINING)
    y = {part: random.integers(2, size=60) for part in parts}
    logits = {part: random.normal(size=(60, 2)) + np.eye(2)[y[part]] for part in parts[:3]}
    first, second = diagnosis.rows_of(logits, y, "roc_auc")
    margin = {part: own[:, 1] - own[:, 0] for part, own in logits.items()}
    assert first["actual"] == pytest.approx(
        roc_auc_score(y["ood/next"], margin["ood/next"]), abs=1e-5
    )
    held_out = roc_auc_score(y["without group 1"], margin["without group 1"])
    assert first["held_out"] == pytest.approx(held_out, abs=1e-5)
    assert (first["test"], second["metric"]) == ("next", "average_precision")
