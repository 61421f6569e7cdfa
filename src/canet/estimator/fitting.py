"""Steps of `NodeClassifier.fit`: settings, class weights and training."""

from __future__ import annotations

from contextlib import nullcontext
from pathlib import Path
from typing import Any

import numpy as np
import torch
from sklearn.utils.class_weight import compute_class_weight
from torch import Tensor

from canet.data.graph import warn_one_way
from canet.data.graph_data import AnyGraph, GraphLike, is_graph
from canet.data.metrics import METRICS
from canet.data.task import ShiftTask
from canet.data.user_task import UserTask, user_task
from canet.defaults import changed
from canet.errors import InputError, check_name, warn_user
from canet.estimator.reference import Reference
from canet.methods import Auto, AutoSettings, Settings, get_backbone
from canet.models import AutoTrainer
from canet.models.refit import refit
from canet.training import Run, Trainer
from canet.training.prepared import Prepared, PreparedGraph, prepare_graph
from canet.util.devices import pick_device
from canet.util.jobs import open_pool
from canet.util.progress import Display

READ_ARGUMENTS = (
    "label",
    "environment",
    "time",
    "sample_weight",
    "id",
    "split",
    "weight",
    "source_column",
    "target_column",
    "without",
    "fill",
)


def graph_to_fit(
    data: GraphLike,
    columns: dict[str, Any],
    arrays: dict[str, Any],
    settings: Settings,
    earlier: Any = None,
) -> AnyGraph:
    """Return a PyG `Data` unchanged; read any other graph with the arguments of `read_graph`.

    A graph store stays on disk if the settings ask for training in batches. With an `earlier`
    model, the graph gets the same feature columns.

    Args:
        data: The graph.
        columns: Arguments of `read_graph`.
        arrays: Other arguments of `fit` about the graph; None if they are not given.
        settings: Settings of the method.
        earlier: The model whose training continues, or None.
    """
    for name in columns:
        check_name("argument", name, READ_ARGUMENTS)
    edges = arrays["edges"]
    opened: AnyGraph
    if is_graph(data):
        if edges is not None or columns:
            given = "edges" if edges is not None else next(iter(columns))
            raise InputError(
                f"fit takes {given} only for tables, files and networkx graphs: set edge_index, y "
                "and the masks of the Data"
            )
        opened = data
    else:
        from canet.data.graph_files import ReadOptions, read_columns  # needs pyarrow

        encoding = None if earlier is None else earlier.encoding_
        place = data if edges is None else (data, edges)
        opened = read_columns(place, ReadOptions.of(**columns), encoding, in_memory=False)
    if "csr" in opened and not settings.in_batches:
        opened = opened.store.load()
    names = [name for name, value in arrays.items() if value is not None]
    if "csr" in opened and names:
        raise InputError(
            f"fit takes {names[0]} only for graphs in memory: the splits and columns of a graph "
            "store were chosen when it was written"
        )
    return opened if earlier is None else earlier.open_graph(opened, in_memory=False)


def training_data(
    model: Any, data: AnyGraph, arrays: dict[str, Any], seed: int, earlier: Any = None
) -> tuple[Prepared, UserTask]:
    """Check the graph, and return it with the task of learning its labels.

    Arguments as for `graph_to_fit`.
    """
    known = None if earlier is None else earlier.classes_
    prepared = prepare_graph(data, arrays["batch"], bool(model.undirected))
    graph = prepared.user_graph
    if model.undirected is None and graph.edge_index is not None:
        warn_one_way(graph.edge_index)
    names = ("train", "valid", "environment", "time", "sample_weight")
    how = {"metric": model.metric, "seed": seed, "checked": graph, "known_classes": known}
    return prepared, user_task(data, **{name: arrays[name] for name in names}, **how)


def check_earlier(model: Any, earlier: Any) -> None:
    """Reject an earlier model that the training of `model` cannot continue."""
    if not hasattr(earlier, "classes_"):
        raise InputError("warm_start must be a fitted NodeClassifier, such as canet.load(folder)")
    names = [(one.method_name, one.backbone_name) for one in (earlier, model)]
    if names[0] != names[1]:
        was, now = ("-".join(dict.fromkeys(pair)) for pair in names)
        raise InputError(
            f"warm_start is a model of {was}, but this one is {now}: use the same method and "
            "backbone, for example model = canet.load(folder); model.fit(data, warm_start=model)"
        )


def settings_of(model: Any, changes: dict[str, Any]) -> Settings:
    """Return the checked settings of a classifier: defaults of the method with some changes."""
    changes = changes | {"patience": model.patience}
    changes |= {} if model.epochs is None else {"epochs": model.epochs}
    check_name("metric", model.metric, METRICS)
    if model.undirected not in (None, True, False):
        raise InputError(f"undirected is {model.undirected!r}: pass True, False or None")
    pick_device(model.device)
    if callable(model.callbacks):
        raise InputError("callbacks must be a list of functions: pass callbacks=[f]")
    if model.method_name != Auto.name:
        get_backbone(model.backbone_name)
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
    prepared: Prepared,
    earlier: Any = None,
) -> Run:
    """Train the method of a classifier, or the ensemble that `auto` chooses.

    With an `earlier` model, its training continues.
    """
    if isinstance(settings, AutoSettings):
        return _choose(model, task, settings, weights, seed, display, earlier)
    trainer = Trainer(
        task,
        model.method,
        model.backbone or "gcn",
        settings,
        model.device,
        class_weight=weights,
        threads=torch.get_num_threads(),
        callbacks=model.callbacks or (),
        initial=None if earlier is None else earlier.method_.state_dict(),
    )
    report = display.training_callback(f"{model.method_name}-{model.backbone_name}")
    run = trainer.run(seed, on_progress=report)
    if isinstance(prepared, PreparedGraph):
        prepared.graphs[run.method.model.operators] = trainer.fields.graph()
    return run


def _choose(
    model: Any,
    task: ShiftTask,
    settings: AutoSettings,
    weights: Tensor | None,
    seed: int,
    display: Display,
    earlier: Any,
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
        report = display.training_callback(Auto.name, unit="run")
        if earlier is not None:
            return refit(trainer, earlier.method_, earlier.candidates_, seed, report)
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


def warn_largest_class(model: Any, reference: Reference) -> None:
    """Warn if the model is not better than predicting the largest class for every node.

    Ranking metrics do not depend on the predicted classes.
    """
    if METRICS[model.metric].ranks:
        return
    predicted = reference.valid_logits.argmax(dim=1).unique()
    largest = int(reference.train_label_counts.argmax())
    share = float((reference.valid_y == largest).double().mean())
    problem = ""
    if predicted.numel() == 1:
        problem = f"the model predicts '{model.classes_[int(predicted)]}' for all validation nodes"
    elif model.metric == "accuracy" and model.scores_["valid"] <= share:
        problem = (
            f"the validation accuracy, {100 * model.scores_['valid']:.1f} %, is not above "
            f"the share of the largest class '{model.classes_[largest]}', {100 * share:.1f} %"
        )
    if problem:
        metrics = "metric='roc_auc' or 'average_precision'"
        if len(model.classes_) > 2:
            metrics = "metric='macro_f1'"
        warn_user(
            f"{problem}: for rare classes, use {metrics} (--metric) and class_weight='balanced' "
            "(--balanced)"
        )


def describe_data(task: ShiftTask) -> dict[str, Any]:
    """Return the size of the training data and its digest."""
    sizes = {"train": task.train, "valid": task.valid, "test": task.test_id}
    counts = {name: nodes.numel() for name, nodes in sizes.items()}
    about = {"nodes": task.num_nodes, "edges": task.num_edges}
    return {**about, **counts, "digest": task.digest.short}
