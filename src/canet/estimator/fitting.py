"""What `fit` does with a classifier's parameters: settings, class weights, training."""

from __future__ import annotations

from contextlib import nullcontext
from pathlib import Path
from typing import Any

import numpy as np
import torch
from sklearn.utils.class_weight import compute_class_weight
from torch import Tensor

from canet.choice import AutoTrainer
from canet.data.task import ShiftTask
from canet.errors import InputError
from canet.methods import Auto, AutoSettings, Settings, check_backbone
from canet.presets import changed
from canet.training import Run, Trainer
from canet.training.prepared import PreparedGraph
from canet.util.processes import open_pool
from canet.util.progress import Display


def settings_of(model: Any, given: dict[str, Any]) -> Settings:
    """The settings of a classifier's method, with those that were given."""
    changes = given if model.epochs is None else given | {"epochs": model.epochs}
    if model.method != Auto.name:
        check_backbone(model.backbone_name)
        return changed(model.method, changes)
    if model.backbone is not None:
        raise InputError("method 'auto' chooses the backbone: leave it out, or name a method")
    return changed(model.method, changes | {"preset": model.preset})


def train_model(
    model: Any,
    task: ShiftTask,
    settings: Settings,
    weights: Tensor | None,
    seed: int,
    display: Display,
    prepared: PreparedGraph,
) -> Run:
    """The trained method of a classifier, or the ensemble that `auto` chooses."""
    if isinstance(settings, AutoSettings):
        return _choose(model, task, settings, weights, seed, display)
    trainer = Trainer(
        task,
        model.method,
        model.backbone_name,
        settings,
        model.device,
        class_weight=weights,
        threads=torch.get_num_threads(),
    )
    report = display.training_callback(f"{model.method}-{model.backbone_name}")
    run = trainer.run(seed, on_progress=report)
    prepared.graphs[run.method.model.operators] = trainer.fields.graph()
    return run


def _choose(
    model: Any,
    task: ShiftTask,
    settings: AutoSettings,
    weights: Tensor | None,
    seed: int,
    display: Display,
) -> Run:
    pool = open_pool(model.n_jobs, model.ray, model.device)
    threads = torch.get_num_threads() if pool is None else 1
    with pool or nullcontext():
        limits = model.time_limit, pool
        trainer = AutoTrainer(task, settings, model.device, weights, threads, *limits)
        folder = None
        if model.checkpoints is not None:
            folder = Path(model.checkpoints) / trainer.config(seed).name / f"seed-{seed}"
        report = display.training_callback(Auto.name, unit="training")
        return trainer.run(seed, folder, on_progress=report)


def class_weights(given: Any, classes: np.ndarray, y: Tensor) -> Tensor | None:
    """Weights $[C]$ for the classes $[C]$ and the class ids $[n]$ of the training nodes."""
    if given is None:
        return None
    try:
        weights = compute_class_weight(given, classes=classes, y=classes[y.numpy()])
        tensor = torch.tensor(weights, dtype=torch.float32)
    except (ValueError, TypeError) as error:
        raise InputError(
            f"class_weight {str(given)[:60]!r} does not fit ({error}): give 'balanced' or "
            "{class: weight}"
        ) from error
    if not (tensor.isfinite() & (tensor >= 0)).all() or not (tensor > 0).any():
        raise InputError("class_weight must have numbers from 0 on, not all of them 0")
    return tensor
