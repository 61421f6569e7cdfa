"""The inputs of `NodeClassifier.fit`: the graph, its task and class weights."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from sklearn.utils.class_weight import compute_class_weight
from torch import Tensor

from canet.data.checks import check_columns
from canet.data.graph import Graph, checked_graph, is_graph, warn_edges
from canet.data.graph_files import ReadOptions, Roles
from canet.data.graph_files.read import READ_ARGUMENTS, read_columns
from canet.data.raw_graph import GraphLike, GraphObject
from canet.data.task import ShiftTask
from canet.data.user_task import UserTask, user_task
from canet.errors import InputError, check_integer, check_name
from canet.estimator.base import BaseClassifier
from canet.estimator.plan import Plan, plan_training
from canet.methods.base import ModelSettings
from canet.scoring.metrics import METRICS
from canet.util.devices import pick_device

TASK_ARGUMENTS = ("train", "valid", "environment", "time", "sample_weight")


def check_parameters(params: Mapping[str, Any]) -> None:
    """Reject parameters of a wrong type; settings and `random_state` are checked elsewhere."""
    check_name("metric", params["metric"], METRICS)
    pick_device(params["device"])
    if params["threads"] is not None:
        check_integer("threads", params["threads"], 1, 1024)
    functions = params["callbacks"] or []
    is_list = isinstance(functions, list | tuple)
    for name, is_valid, valid in (
        ("undirected", params["undirected"] in (None, True, False), "True, False or None"),
        ("keep_on_interrupt", params["keep_on_interrupt"] in (True, False), "True or False"),
        ("verbose", isinstance(params["verbose"], int | np.integer), "0 or 1"),
        ("ray", isinstance(params["ray"], str | None), "the address of a cluster, 'auto' or None"),
        ("checkpoints", isinstance(params["checkpoints"], str | Path | None), "a folder or None"),
        ("callbacks", is_list and all(map(callable, functions)), "a list of functions"),
    ):
        if not is_valid:
            raise InputError(f"{name} is {str(params[name])[:60]!r}: pass {valid}")


def planner(params: Mapping[str, Any], settings: ModelSettings) -> Callable[[Graph], Plan]:
    """Return the function that decides how a classifier with these attributes trains on a graph."""
    method, device, jobs = (params[name] for name in ("method", "device", "n_jobs"))
    named = {name for name, value in params.items() if value is not None}
    processes = jobs if isinstance(jobs, int) and not params["ray"] else 1
    return lambda graph: plan_training(graph, method, settings, named, device, processes)


def graph_to_fit(
    data: GraphLike,
    columns: dict[str, Any],
    arrays: dict[str, Any],
    decide: Callable[[Graph], Plan],
    undirected: bool | None = None,
    earlier: BaseClassifier | None = None,
) -> tuple[GraphObject, Plan | None]:
    """Return a PyG `Data` unchanged; read any other graph with the arguments of `read_graph`.

    The plan that `decide` returns for a graph store is the second result: whether it is loaded.
    The graph gets the feature columns of an `earlier` model whose training continues. `arrays` are
    other arguments of `fit` about the graph. If the model is `undirected`, a store must have edges
    in both directions.
    """
    for name in columns:
        check_name("argument", name, READ_ARGUMENTS)
    edges = arrays["edges"]
    opened: GraphObject
    if is_graph(data):
        if edges is not None or columns:
            given = "edges" if edges is not None else next(iter(columns))
            raise InputError(
                f"the argument {given} is for tables, files and networkx graphs: pass it to "
                "canet.read_graph, or set edge_index, y and the masks of the Data"
            )
        opened = data
    else:
        encoding = None if earlier is None else earlier.encoding_
        place = data if edges is None else (data, edges)
        opened = read_columns(place, ReadOptions.of(**columns), encoding, in_memory=False)
    plan = None
    if "csr" in opened:
        plan = decide(checked_graph(opened, undirected=bool(undirected)))
        if plan.loads:
            opened = opened.store.load()
        elif names := [name for name, value in arrays.items() if value is not None]:
            raise InputError(
                f"the argument {names[0]} is for graphs in memory; a graph store contains its "
                "splits and columns: leave the argument out, or write the store again"
            )
    if earlier is not None:
        opened = earlier.open_graph(opened, in_memory=False)
    return opened, plan


def training_data(
    model: BaseClassifier,
    data: GraphObject,
    arrays: dict[str, Any],
    seed: int,
    earlier: BaseClassifier | None = None,
) -> tuple[UserTask, list[int]]:
    """Return the task and `left_out_`; arguments as for `graph_to_fit`."""
    before = [] if earlier is None else earlier.left_out_
    without = [*before, *data.get("left_out", ()), *arrays.get("without", ())]
    known = None if earlier is None else earlier.classes_
    graph = checked_graph(data, arrays["batch"], bool(model.undirected), without)
    warn_edges(graph.edge_index, model.undirected)
    user = user_task(
        data,
        **{name: column for name, column in arrays.items() if name in TASK_ARGUMENTS},
        metric=model.metric,
        seed=seed,
        checked=graph,
        known_classes=known,
    )
    return user, check_columns(without, user.task.num_features)


def class_weights(class_weight: object, classes: np.ndarray, y: Tensor) -> Tensor | None:
    """Return the weight of each class $[C]$ for the class ids $[n]$ of the training nodes."""
    if class_weight is None:
        return None
    try:
        # A model that continues may know classes that these labels do not have.
        seen = y.unique().numpy() if isinstance(class_weight, str) else np.arange(len(classes))
        weights, labels = np.ones(len(classes)), classes[y.numpy()]
        weights[seen] = compute_class_weight(class_weight, classes=classes[seen], y=labels)
        tensor = torch.tensor(weights, dtype=torch.float32)
    except (ValueError, TypeError) as error:
        raise InputError(
            f"class_weight {str(class_weight)[:60]!r}: {error}; pass 'balanced' or a dict"
        ) from error
    if not (tensor.isfinite() & (tensor >= 0)).all() or not (tensor > 0).any():
        raise InputError("class_weight must be numbers ≥ 0, and at least one of them > 0")
    return tensor


def describe_data(task: ShiftTask, seed: int) -> dict[str, Any]:
    """Return the size of the training data, the id of its largest class, its digest and a seed."""
    sizes = {"train": task.train, "valid": task.valid, "test": task.test_id}
    counts = {name: nodes.numel() for name, nodes in sizes.items()}
    about = {"nodes": task.num_nodes, "edges": task.data.num_edges}
    about["largest_class"] = int(task.y[task.train].bincount().argmax())
    return {**about, **counts, "digest": task.digest.short, "seed": seed}


def how_to_read(graph: GraphObject, undirected: bool | None) -> tuple[bool, Roles]:
    """Return whether edges are used in both directions, and the names of the arrays of a file."""
    both_ways = graph.get("undirected", False) if undirected is None else undirected
    source, is_table = graph.get("source"), graph.get("encoding") is not None
    return bool(both_ways), Roles() if source is None or is_table else source.options.roles
