"""The runs of an experiment with made-up scores, curves and weights, written without training."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from canet.data import DATASETS
from canet.methods import get_method
from canet.methods.base import Findings
from canet.paper.elliptic import LEFT_OUT
from canet.paper.experiment import Experiment
from canet.paper.finished_runs import FinishedRuns
from canet.paper.method_table import MethodTable
from canet.report.score import Score
from canet.report.tables import Table
from canet.settings import override
from canet.store import RunConfig
from canet.store.run_folder import WEIGHTS
from experiments.reliance import BASE, ID, OOD, RELIANCE, SPURIOUS
from tests.support.finished import write_run


def write_runs(
    experiment: Experiment, root: Path, ood: Callable[[RunConfig], float] = lambda config: 0.6
) -> FinishedRuns:
    """Finish every job of an experiment; `ood` gives the score of each on every OOD set."""
    for config in experiment.configs():
        write_made_up(root, config, ood(config), not isinstance(experiment, MethodTable))
    return FinishedRuns(root)


def write_made_up(root: Path, config: RunConfig, ood: float, with_model: bool = True) -> None:
    """Finish a job; if `with_model`, with its weights and what the model relies on."""
    scores = {"test_id": 0.8, **dict.fromkeys(DATASETS[config.task].ood_sets, ood)}
    if config.task == "elliptic":
        scores |= dict.fromkeys(LEFT_OUT, 0.5)
    curves = {name: [0.1, 0.3, 0.2] for name in ("train", *DATASETS[config.task].ood_sets)}
    history = {"loss": [3.0, 2.0, 1.0], "valid": [0.4, 0.3, 0.2], **curves}
    found = Findings(num_columns=40, shifted_columns=[39, 30, 29], share=[0.9, 0.8, 0.2])
    findings = None if config.settings.get("interventions", "none") == "none" else found
    place = write_run(root, config, scores, history, findings)
    if not with_model:
        return
    if config.method == "canet":
        method = get_method("canet")
        settings = override(method.settings_type(), config.settings)
        torch.manual_seed(config.seed)
        place.add_tensors(WEIGHTS, method(settings, config.backbone, 5, 2).state_dict())
    place.add_json(RELIANCE, {"reliance": made_up_reliance(config)})


def made_up_reliance(config: RunConfig) -> dict[str, Any]:
    """Other methods have a tenth of ERM's flips."""
    flipped = 0.5 if config.method == "erm" else 0.05
    effect = {block: {"flipped": flipped, "lost": flipped / 2} for block in (SPURIOUS, BASE)}
    return {ID: effect, OOD: effect}


def cell(table: Table, backbone: str, method: str, column: str) -> Score:
    (row,) = [row for row in table.rows if (row[0], row[1]) == (backbone, method)]
    return row[list(table.columns).index(column)]


def names(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir()} if folder.exists() else set()
