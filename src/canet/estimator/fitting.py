"""Steps of `NodeClassifier.fit`: settings, class weights and training."""

from __future__ import annotations

import hashlib
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
from canet.methods import Auto, AutoSettings, Settings, get_backbone
from canet.presets import changed
from canet.training import Run, Trainer
from canet.training.prepared import PreparedGraph
from canet.util.processes import open_pool
from canet.util.progress import Display


def settings_of(model: Any, changes: dict[str, Any]) -> Settings:
    """Return the checked settings of a classifier: defaults of the method with some changes."""
    changes = changes | {"patience": model.patience}
    changes |= {} if model.epochs is None else {"epochs": model.epochs}
    if callable(model.callbacks):
        raise InputError("callbacks must be a list of functions: pass callbacks=[f]")
    if model.method != Auto.name:
        get_backbone(model.backbone or "gcn")
        return changed(model.method, changes)
    if model.backbone is not None:
        raise InputError("method 'auto' chooses the backbone: leave out backbone, or pass a method")
    if model.callbacks and (model.n_jobs > 1 or model.ray):
        raise InputError("callbacks need n_jobs=1 and no Ray: they are called in this process")
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
    """Train the method of a classifier, or the ensemble that `auto` chooses."""
    if isinstance(settings, AutoSettings):
        return _choose(model, task, settings, weights, seed, display)
    trainer = Trainer(
        task,
        model.method,
        model.backbone or "gcn",
        settings,
        model.device,
        class_weight=weights,
        threads=torch.get_num_threads(),
        callbacks=model.callbacks or (),
    )
    report = display.training_callback(f"{model.method_name}-{model.backbone_name}")
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
        trainer = AutoTrainer(
            task, settings, model.device, weights, threads, *limits, callbacks=model.callbacks or ()
        )
        folder = None
        if model.checkpoints is not None:
            folder = Path(model.checkpoints) / trainer.config(seed).name / f"seed-{seed}"
        report = display.training_callback(Auto.name, unit="training")
        return trainer.run(seed, folder, on_progress=report)


def class_weights(class_weight: Any, classes: np.ndarray, y: Tensor) -> Tensor | None:
    """Return the weight of each class $[C]$ for the class ids $[n]$ of the training nodes."""
    if class_weight is None:
        return None
    try:
        weights = compute_class_weight(class_weight, classes=classes, y=classes[y.numpy()])
        tensor = torch.tensor(weights, dtype=torch.float32)
    except (ValueError, TypeError) as error:
        raise InputError(
            f"class_weight {str(class_weight)[:60]!r} is not valid ({error}): pass 'balanced' or "
            "{class: weight}"
        ) from error
    if not (tensor.isfinite() & (tensor >= 0)).all() or not (tensor > 0).any():
        raise InputError("class_weight must be numbers ≥ 0, and at least one of them > 0")
    return tensor


def describe_data(task: ShiftTask) -> dict[str, Any]:
    """Return the size of the training data and the SHA-256 of features, edges and labels."""
    sizes = {"train": task.train, "valid": task.valid, "test": task.test_id}
    x = task.data.x
    sparse = x.layout == torch.sparse_csr
    parts = [x.crow_indices(), x.col_indices(), x.values()] if sparse else [x]
    digest = hashlib.sha256()
    for tensor in (*parts, task.data.edge_index, task.data.y, *sizes.values()):
        digest.update(np.ascontiguousarray(tensor.numpy()).data)
    return {
        "nodes": task.num_nodes,
        "edges": task.data.edge_index.shape[1],
        **{name: nodes.numel() for name, nodes in sizes.items()},
        "digest": digest.hexdigest(),
    }
