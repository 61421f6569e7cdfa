"""What early stopping costs: scores under shift with and without patience.

    python -m experiments.patience FILE [--device cuda] [--part I/N]

trains the networks of `auto`, and CaNet with its published settings, on every
task of `experiments.choice` with two data seeds, and scores every epoch under shift. It writes one
JSON object per training to FILE, as JSON lines. `python -m experiments.patience FILE... --table`
prints the table of the page.
"""

from __future__ import annotations

import argparse
import json
from collections import defaultdict
from collections.abc import Iterator, Sequence
from pathlib import Path
from statistics import mean, stdev
from typing import Any

import numpy as np

from canet.data import DATASETS, load_task
from canet.defaults import task_settings
from canet.models import Trainer
from canet.models.auto import AutoSettings
from canet.models.portfolio import NETWORKS
from canet.settings import override
from canet.store.summary import OOD
from experiments.choice import Case, cases

NUM_DRAWS = 2
PATIENCE = (20, 50, 100, 150, 200)


def train(case: Case, device: str) -> Iterator[dict[str, Any]]:
    """Yield the curves of every model on one case."""
    task = load_task(
        case.task, data_seed=case.draw, protocol=case.protocol, generator=case.generator
    )
    shared = override(AutoSettings(), DATASETS[case.task].shared_settings)
    models: list[tuple[str, Any]] = []
    for recipe in NETWORKS:
        models.append(
            ("auto", Trainer(task, recipe.method, recipe.backbone, recipe.settings(shared), device))
        )
    models.append(
        ("canet", Trainer(task, "canet", "gcn", task_settings(case.task, "canet", "gcn"), device))
    )
    for kind, trainer in models:
        run = trainer.run(case.draw, ood_curves=True)
        shifted = [curve for name, curve in run.history.items() if name.startswith(OOD)]
        yield {
            **case._asdict(),
            "kind": kind,
            "model": run.config.model,
            "epochs": len(run.history["valid"]),
            "stops": stops(run.history["valid"], np.mean(shifted, axis=0).tolist()),
        }


def stops(valid: Sequence[float], shifted: Sequence[float]) -> dict[str, list[float]]:
    """Return for each patience the epochs, and the scores of the selected epoch."""
    found = {}
    for patience in (*PATIENCE, len(valid)):
        epochs, best = stop(valid, patience)
        found[str(patience)] = [epochs, best, round(valid[best], 5), round(shifted[best], 5)]
    return found


def stop(valid: Sequence[float], patience: int) -> tuple[int, int]:
    """Return the number of trained epochs and the selected epoch, from 0."""
    best = 0
    for epoch, score in enumerate(valid):
        best = epoch if score > valid[best] else best
        if epoch - best >= patience:
            return epoch + 1, best
    return len(valid), best


def table(runs: Sequence[dict[str, Any]]) -> str:
    """Return a Markdown table: epochs that are left, and the change of the scores in points.

    The standard error is that of independent training sets: the models of one of them, and its
    draws, are not independent.
    """
    lines = [
        "| models | patience | trainings | epochs % | same epoch % | valid | under shift | ± |",
        "|---|--:|--:|--:|--:|--:|--:|--:|",
    ]
    for kind in ("auto", "canet"):
        chosen = [run for run in runs if run["kind"] == kind]
        for patience in PATIENCE:
            shares, same, valid, shifted = [], [], [], []
            of_set = defaultdict[tuple[str, ...], list[float]](list)
            for run in chosen:
                full, one = run["stops"][str(run["epochs"])], run["stops"][str(patience)]
                shares.append(one[0] / run["epochs"])
                same.append(one[1] == full[1])
                valid.append(one[2] - full[2])
                shifted.append(one[3] - full[3])
                of_set[run["task"], run["protocol"], run["generator"]].append(shifted[-1])
            error = stdev(map(mean, of_set.values())) / len(of_set) ** 0.5
            lines.append(
                f"| {kind} | {patience} | {len(chosen)} | {100 * mean(shares):.0f} "
                f"| {100 * mean(same):.0f} | {100 * mean(valid):+.2f} "
                f"| {100 * mean(shifted):+.2f} | {100 * error:.2f} |"
            )
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("files", nargs="+", type=Path)
    parser.add_argument("--device", default="auto")
    parser.add_argument("--part", default="1/1")
    parser.add_argument("--table", action="store_true")
    arguments = parser.parse_args()
    if arguments.table:
        texts = [line for file in arguments.files for line in file.read_text().splitlines()]
        print(table([json.loads(text) for text in texts]))
        return
    number, count = map(int, arguments.part.split("/"))
    todo = [case for case in cases() if case.draw < NUM_DRAWS][number - 1 :: count]
    with arguments.files[0].open("a") as file:
        for case in todo:
            for run in train(case, arguments.device):
                file.write(json.dumps(run) + "\n")
                file.flush()


if __name__ == "__main__":
    main()
