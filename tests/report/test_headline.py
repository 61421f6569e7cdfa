from __future__ import annotations

from pathlib import Path

from canet.report.comparison import Verdict, compare
from canet.report.headline import evidence, headline
from canet.report.results import read_results
from tests.finished import make_config, write_run

Scores = dict[str, tuple[float, ...]]


def verdicts(root: Path, *comparisons: Scores) -> list[Verdict]:
    """Those of comparisons in which methods have these scores under shift, one a run."""
    tasks = ("synthetic", "cora", "citeseer", "pubmed", "twitch", "arxiv")
    for task, scores in zip(tasks, comparisons, strict=False):
        for method, values in scores.items():
            for seed, value in enumerate(values):
                config = make_config(task, method, seed=seed)
                write_run(root, config, {"ood/far": value, "test_id": 90.0})
    found = [comparison.verdict("gcn") for comparison in compare(read_results(root))]
    return [verdict for verdict in found if verdict]


def test_methods_that_are_best_equally_often_are_named_together(tmp_path: Path) -> None:
    found = verdicts(
        tmp_path, {"canet": (80.0,), "erm": (70.0,)}, {"canet": (70.0,), "erm": (80.0,)}
    )
    assert headline(found) == "Best under shift in 2 comparisons: CaNet and ERM in 1 each"


def test_a_tie_is_told_as_a_tie_and_given_to_nobody(tmp_path: Path) -> None:
    found = verdicts(
        tmp_path,
        {"canet": (80.0,), "erm": (80.001,), "irm": (20.0,)},
        {"canet": (70.0,), "erm": (80.0,)},
    )
    text = "Best under shift in 2 comparisons: ERM in 1; CaNet and ERM tied in 1"
    assert headline(found) == text
    assert evidence(found) == (
        "The lead is larger than the spread in 0 of 2 comparisons and unknown in 1 of single "
        "runs. Never best: IRM."
    )
