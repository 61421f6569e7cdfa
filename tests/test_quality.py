"""A floor under the quality of the methods, on shifted test nodes."""

from pathlib import Path

import pytest

from tests.support.commands import call

pytestmark = pytest.mark.slow


def under_shift(folder: Path, task: str, method: str, *options: object) -> float:
    """The mean score on the shifted test sets."""
    how = ("--device", "cpu", "--out", method, "--json")
    content = call(folder, "train", task, "--method", method, *options, *how).content
    return float(content["scores"]["test_ood_mean"]["mean"])


def test_auto_is_ten_points_above_erm_on_synthetic(tmp_path: Path) -> None:
    erm = under_shift(tmp_path, "synthetic", "erm", "--epochs", 100)
    assert under_shift(tmp_path, "synthetic", "auto", "--epochs", 15) >= erm + 0.1


def test_canet_is_ten_points_above_erm_on_cora(tmp_path: Path, data_root: Path) -> None:
    how = ("--backbone", "gcn", "--seeds", 2, "--epochs", 100)
    erm, canet = (under_shift(tmp_path, "cora", method, *how) for method in ("erm", "canet"))
    assert canet >= erm + 0.1
