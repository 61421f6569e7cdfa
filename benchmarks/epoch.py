"""Seconds per epoch (training step + validation score) of the plain equations and of our engine.

    python benchmarks/epoch.py [TASK ...] [--backbone gcn|gat] [--epochs N]

Ratios are measured in one run on one machine: medians after a warm-up, three contestants in turn.
"""

from __future__ import annotations

import argparse
import statistics
import time
from dataclasses import replace

import torch
from torch.nn import functional as F

from canet.console import print_table
from canet.data import load_task
from canet.data.task import ShiftTask
from canet.experiments.presets import preset
from canet.training import Trainer
from plain import PlainCaNet

WARM_UP = 2


def engine(task: ShiftTask, method: str, backbone: str, epochs: int) -> list[float]:
    """Times of our engine's epochs."""
    settings = replace(
        preset(task.name, method, backbone), epochs=epochs + WARM_UP, direction="along"
    )
    moments: list[float] = []
    trainer = Trainer(task, method, backbone, settings, device="cpu")
    trainer.run(on_progress=lambda done, total, score: moments.append(time.perf_counter()))
    return [b - a for a, b in zip(moments[WARM_UP - 1 :], moments[WARM_UP:], strict=False)]


def plain(task: ShiftTask, backbone: str, epochs: int) -> list[float]:
    """Times of the plain implementation's epochs, on the same CPU."""
    settings = preset(task.name, "canet", backbone)
    data = task.data
    x = data.x.to_dense() if data.x.layout == torch.sparse_csr else data.x
    model = PlainCaNet(
        task.num_features,
        task.num_classes,
        settings.hidden,
        settings.num_layers,
        settings.num_environments,
        backbone,
    )
    optimizer = torch.optim.Adam(model.parameters(), lr=settings.learning_rate)
    times = []
    for _ in range(epochs + WARM_UP):
        begin = time.perf_counter()
        model.train()
        optimizer.zero_grad()
        logits, divergence = model(x, data.edge_index, settings.tau, settings.dropout)
        loss = F.cross_entropy(logits[task.train], data.y[task.train]) + divergence
        loss.backward()
        optimizer.step()
        model.eval()
        with torch.no_grad():
            logits, _ = model(x, data.edge_index, settings.tau, settings.dropout)
            (logits[task.valid].argmax(dim=1) == data.y[task.valid]).float().mean()
        times.append(time.perf_counter() - begin)
    return times[WARM_UP:]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("tasks", nargs="*", default=["synthetic"])
    parser.add_argument("--backbone", choices=("gcn", "gat"), default="gcn")
    parser.add_argument("--epochs", type=int, default=10)
    options = parser.parse_args()
    rows = []
    for name in options.tasks:
        task = load_task(name)
        slow = statistics.median(plain(task, options.backbone, options.epochs))
        erm = statistics.median(engine(task, "erm", options.backbone, options.epochs))
        ours = statistics.median(engine(task, "canet", options.backbone, options.epochs))
        milliseconds = [f"{1000 * t:.1f}" for t in (slow, erm, ours)]
        rows.append([name, *milliseconds, f"{slow / ours:.1f}", f"{ours / erm:.1f}"])
    columns = ["task", "plain ms", "ERM ms", "CaNet ms", "plain ÷ CaNet", "CaNet ÷ ERM"]
    title = f"Epoch on {torch.get_num_threads()} CPU threads, {options.backbone}"
    print_table(title, columns, rows)


if __name__ == "__main__":
    main()
