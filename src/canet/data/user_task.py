"""The task of learning the labels of a user graph."""

from collections.abc import Mapping
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from canet.data.benchmarks.dataset import USER_GRAPH
from canet.data.checks import check_disjoint, check_metric, check_sample_weights, check_times
from canet.data.graph import Graph, check_graph, split_sets
from canet.data.graph_files.leaks import leak_notes
from canet.data.labels import Labels, check_labels, label_notes
from canet.data.raw_graph import Column, GraphObject, NodeSet
from canet.data.task import ShiftTask
from canet.errors import InputError, listed, warn_user
from canet.util.sparse import select_rows

VALIDATION_SHARE = 0.2
FIRST_SPLITS = ("train", "valid")
MAX_SCALE = 100
"""Ratio of the largest numbers of two columns above which one of them hides the other."""
MANY_GROUPS, NODES_PER_GROUP = 30, 5
"""More classes or environments than this, with fewer nodes each, give a warning."""


class UserTask(NamedTuple):
    """The task of a user graph, the classes $[C]$ of its class ids, and its test sets by name."""

    task: ShiftTask
    classes: np.ndarray
    tests: dict[str, Tensor]


def user_task(
    data: GraphObject,
    train: NodeSet | None = None,
    valid: NodeSet | None = None,
    environment: Column | None = None,
    time: Column | None = None,
    *,
    sample_weight: Column | None = None,
    metric: str = "accuracy",
    seed: int = 0,
    checked: Graph | None = None,
    known_classes: np.ndarray | None = None,
    needs_test: bool = False,
) -> UserTask:
    """Return the task of learning the labels of a user graph.

    Arguments that are None are taken from the graph: `train_mask`, `val_mask`, `test_mask`,
    `environment`, `time`, `sample_weight`, `batch`. Nodes without a label are in no split. If there
    are no validation nodes, some training nodes become the validation set: the latest nodes if
    `time` is known, else a random sample stratified by class, drawn with the seed.

    Args:
        data: Graph with `x`, `edge_index` and `y`, or the result of `GraphStore.open`.
        train, valid, environment, time, sample_weight: As for `NodeClassifier.fit`.
        checked: The result of `check_graph`, if it was called before.
        known_classes: The classes of a model whose training continues; None: those of `train`.
        needs_test: Whether to hold out a test set, like a validation set, if there is none.
    """
    checked = checked or check_graph(data)
    n = checked.num_nodes
    if data.get("edge_attr") is not None:
        warn_user(
            "edge_attr of the graph is ignored: only edge_weight, a number ≥ 0 per edge, is used"
        )
    if data.get("y") is None:
        raise InputError(
            "fit requires y to be passed, but the target y is None: name the column of the labels, "
            "label='COLUMN' (--label COLUMN, also of canet convert), or set data.y"
        )
    column = data.encoding.roles.label if data.get("encoding") is not None else None
    labels = check_labels(data.y, n, "y" if column is None else f"column '{column}'")
    for note in label_notes(labels, metric):
        warn_user(note)
    splits = _node_sets(data, labels, {"train": train, "valid": valid}, checked)
    needs_test = needs_test and not splits.keys() - {*FIRST_SPLITS}
    times = data.get("time") if time is None else time
    if time is None and "valid" in splits and not needs_test and np.shape(times)[:1] != (n,):
        times = None  # times of the edges, as in temporal graphs of PyG
    stamps = None if times is None else check_times(times, n)
    if needs_test:
        parts = hold_out(splits["train"], labels.codes, stamps, seed)
        splits |= {"train": parts["train"], "test": parts["valid"]}
    if "valid" not in splits:
        splits |= hold_out(splits["train"], labels.codes, stamps, seed)
    check_disjoint(splits, n)
    found = {name: np.unique(labels.codes[nodes.numpy()]) for name, nodes in splits.items()}
    named = {name: labels.names[codes] for name, codes in found.items()}
    classes = _classes(named, known_classes, bool((labels.codes < 0).any()))
    _warn_if_many("classes", len(classes), splits["train"].numel())
    names: tuple[str, ...] = ()
    y = labels.codes_in(classes)
    columns: dict[str, Tensor] = {"y": y}
    groups = data.get("environment") if environment is None else environment
    if groups is not None:
        environments = check_labels(groups, n, "environment")
        names = tuple(map(str, environments.names))
        columns["environment"] = torch.from_numpy(environments.codes.astype(np.int64))
        own = columns["environment"][splits["train"]]
        _warn_if_many("environments", own.unique().numel(), own.numel())
    if stamps is not None:
        columns["time"] = torch.from_numpy(stamps)
    weights = data.get("sample_weight") if sample_weight is None else sample_weight
    if weights is not None:
        columns["sample_weight"] = check_sample_weights(weights, n, splits["train"])
    if data.get("encoding") is not None and data.encoding.marks:
        columns["marks"] = torch.tensor(data.encoding.marks)
    check_metric(metric, len(classes), y[splits["valid"]])
    x, rows = checked.x, splits["train"].numpy()
    for note in leak_notes(labels, rows, partial(select_rows, x), x.shape[1], data.get("encoding")):
        warn_user(note)
    tests = {name: nodes for name, nodes in splits.items() if name not in FIRST_SPLITS}
    tested = torch.cat([torch.empty(0, dtype=torch.long), *tests.values()])
    task = ShiftTask(
        name=USER_GRAPH,
        data=checked.with_columns(**columns),
        train=splits["train"],
        valid=splits["valid"],
        test_id=tested if len(tests) == 1 else tested.sort().values,
        test_ood={},
        metric=metric,
        in_distribution=torch.ones(n, dtype=torch.bool),
        shift=USER_GRAPH,
        environments=names,
        min_classes=len(classes),
        same_bits=True,
        checked=True,
    )
    return UserTask(task, classes, tests)


def _warn_if_many(name: str, count: int, num_train: int) -> None:
    """Warn if there are so many classes or environments that the column is probably wrong."""
    if count > max(MANY_GROUPS, num_train / NODES_PER_GROUP):
        warn_user(f"{num_train:,} training nodes have {count:,} different {name}: check the column")


def _node_sets(
    data: GraphObject, labels: Labels, given: dict[str, Any], checked: Graph
) -> dict[str, Tensor]:
    """Return the labelled nodes of each split; without `train`, it has those in no other split."""
    labelled = torch.from_numpy(labels.codes >= 0)
    stored = split_sets(data)
    chosen = {name: nodes for name, nodes in given.items() if nodes is not None}
    sets: dict[str, Tensor] = {}
    for name in dict.fromkeys((*FIRST_SPLITS, *stored)):
        if name not in chosen and name not in stored:
            continue
        rows = checked.rows(chosen[name] if name in chosen else stored[name], name)
        if rows.unique().numel() != rows.numel():
            raise InputError(f"{name} contains a node more than once: remove the duplicates")
        if name == "valid" and name not in chosen and not rows.numel():
            continue  # a split column with train and test only
        rows = rows[labelled[rows]]
        if rows.numel() or name in FIRST_SPLITS:
            sets[name] = rows
    if "train" not in sets:
        rest = labelled.clone()
        for rows in sets.values():
            rest[rows] = False
        sets = {"train": rest.nonzero().squeeze(1), **sets}
    for name in FIRST_SPLITS:
        if name in sets and not sets[name].numel():
            raise InputError(f"{name} contains no node with a known label in y: add such nodes")
    return sets


def _classes(
    labels: Mapping[str, np.ndarray], known: np.ndarray | None, has_unknown: bool
) -> np.ndarray:
    """Return the `known` classes of an earlier model, or those of `train`; check all splits."""
    if known is not None:
        found = np.unique(np.concatenate(list(labels.values())))
        same_type = (known.dtype.kind == "U") == (found.dtype.kind == "U")
        if not same_type or np.setdiff1d(found, known).size:
            raise InputError(
                f"the labels have classes that the earlier model does not know ({listed(found)} "
                f"instead of {listed(known)}): fit without warm_start"
            )
        return known
    classes = labels["train"]
    if len(classes) < 2:
        is_number = has_unknown and classes.dtype.kind == "i"
        hint = " (-1 marks an unknown label, it is not a class)" if is_number else ""
        raise InputError(
            f"train contains only class {classes[0]}{hint}: training needs at least two classes"
        )
    for name, found in labels.items():
        unseen = np.setdiff1d(found, classes)
        if unseen.size:
            raise InputError(
                f"{name} contains classes that train does not contain ({listed(unseen)}): add "
                f"nodes of these classes to train, or remove them from {name}"
            )
    return classes


def hold_out(
    nodes: Tensor, labels: np.ndarray, times: np.ndarray | None, seed: int
) -> dict[str, Tensor]:
    """Split training nodes $[m]$ with labels $[N]$; each class keeps at least one training node."""
    ids = nodes.numpy()
    held = np.zeros(len(ids), dtype=bool)
    if times is not None:
        when = times[ids]
        moments = np.unique(when)[1:]
        if moments.size:
            # The time that splits nearest to the wanted share; nodes of one time stay together.
            later = len(when) - np.searchsorted(np.sort(when), moments)
            best = np.argmin(np.abs(later - VALIDATION_SHARE * len(ids)))
            held = when >= moments[best]
            held &= np.isin(labels[ids], labels[ids][~held])  # keep classes that only appear late
            held &= held.mean() <= 0.5  # most nodes have the last time
    if times is None or not held.any():
        generator = np.random.default_rng(seed)
        for label in np.unique(labels[ids]):
            of_class = generator.permutation(np.flatnonzero(labels[ids] == label))
            held[of_class[: max(1, round(VALIDATION_SHARE * len(of_class)))]] = len(of_class) > 1
    if not held.any():
        raise InputError(
            f"{len(ids)} labelled training nodes of {len(np.unique(labels[ids]))} classes are too "
            "few to hold out a validation set: choose another label column, or label more nodes"
        )
    return {"train": nodes[torch.from_numpy(~held)], "valid": nodes[torch.from_numpy(held)]}


def warn_scales(task: ShiftTask) -> None:
    """Warn if some columns have so large numbers that they hide the others."""
    x = task.data.x
    if task.data.is_on_disk:
        return  # it may not fit into memory
    if x.layout == torch.sparse_csr:
        found = x.values().new_zeros(x.shape[1])
        largest = found.scatter_reduce_(0, x.col_indices().long(), x.values().abs(), "amax")
    else:
        largest = torch.maximum(x.amax(dim=0), -x.amin(dim=0))
    used = largest.nonzero().squeeze(1)
    if used.numel() and largest.max() > MAX_SCALE * largest[used].min():
        low, high = int(used[largest[used].argmin()]), int(largest.argmax())
        warn_user(
            f"columns of x differ in scale (column {low}: up to {largest[low]:.3g}, column {high}: "
            f"up to {largest[high]:.3g}), and large ones hide small ones: set "
            "scaling='standardised' (--set scaling=standardised)"
        )
