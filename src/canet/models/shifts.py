"""Simulated shifts: parts of the training data that are held out."""

import os
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import numpy as np
import torch
from torch import Tensor

from canet.data.task import ShiftTask, sample_nodes
from canet.errors import listed
from canet.scoring.metrics import METRICS
from canet.util.sparse import to_matrix
from canet.util.torch_state import limited_threads

NUM_GROUPS = 4
NUM_COMPONENTS = 16  # number of principal components from which groups are inferred
MAX_ROWS = 20_000  # largest number of labelled nodes from which components and groups are computed
ROWS_AT_ONCE, MAX_THREADS = 2**13, 16
MAX_SHIFTS = 5
MAX_TIMES = 2**23  # most times of which a quantile is computed
MIN_NODES = 10  # smallest number of labelled nodes in a held-out part, and in the rest
VALIDATION_SHARE = 0.2
LATEST = {"latest quarter": 0.75, "latest half": 0.5}
HELD_OUT = "held out"
Group = tuple[str, Tensor]  # name of a part and mask $[N]$ of its nodes


def simulate_shifts(task: ShiftTask) -> list[tuple[str, ShiftTask]]:
    """Simulate shifts with the training and validation nodes of a task; no other labels are used.

    Return names such as `without DE`, and the tasks of `hold_out`.

    The held-out parts are the environments, if there are any; otherwise the latest nodes, if there
    are times; otherwise the graphs, if there are several. In addition, each of four groups of nodes
    is held out. These groups are clusters of the features, relative to the mean of each class.
    """
    task = training_part(task)
    known = (list(_held_out(task, parts)) for parts in (_environments, _latest, _graphs))
    return next(filter(None, known), []) + list(_held_out(task, _groups))


def _held_out(
    task: ShiftTask, parts: Callable[[ShiftTask], Iterator[Group]]
) -> Iterator[tuple[str, ShiftTask]]:
    for name, mask in parts(task):
        if (shift := hold_out(task, mask)) is not None:
            yield f"without {name}", shift


def training_part(task: ShiftTask) -> ShiftTask:
    """Return the task with in-distribution nodes only, without its shifted test sets.

    A user graph, such as that of a store, has no others.
    """
    task = replace(task, test_ood={}, left_out={}, rarer=task.scorer.positive, checked=True)
    if task.in_distribution.all():
        return task
    inside = task.in_distribution.nonzero().squeeze(1)
    number = torch.full((task.num_nodes,), -1)
    number[inside] = torch.arange(inside.numel())
    return replace(
        task,
        data=task.data.subgraph(inside),
        train=number[task.train],
        valid=number[task.valid],
        test_id=number[task.test_id],
        in_distribution=torch.ones(inside.numel(), dtype=torch.bool),
        checked=True,
    )


def hold_out(task: ShiftTask, mask: Tensor) -> ShiftTask | None:
    """Return the task with the nodes in a mask $[N]$ as its shifted test set; the rest is to train.

    Edges between both are removed, so that the part is a separate graph, like a future one. None if
    too few nodes are inside or outside.
    """
    labelled = torch.cat([task.train, task.valid])
    held = labelled[mask[labelled]]
    train, valid = task.train[~mask[task.train]], task.valid[~mask[task.valid]]
    if valid.numel() < MIN_NODES:
        train = torch.cat([train, valid])
        cut = round(VALIDATION_SHARE * train.numel())
        order = torch.randperm(train.numel(), generator=torch.Generator().manual_seed(0))
        train, valid = train[order[cut:]].sort().values, train[order[:cut]].sort().values
    y = task.y
    one_class = [y[nodes].unique().numel() < 2 for nodes in (train, valid, held)]
    undefined = any(one_class) if METRICS[task.metric].ranks else one_class[0]
    if min(held.numel(), train.numel()) < MIN_NODES or not valid.numel() or undefined:
        return None
    return replace(
        task,
        data=task.data.separate(mask),
        train=train,
        valid=valid,
        test_id=held[:0],
        test_ood={HELD_OUT: held},
        in_distribution=~mask,
        checked=True,
    )


def _environments(task: ShiftTask) -> Iterator[Group]:
    if task.data.environment is not None:
        ids, names = task.training_environments(), task.environments
        ids = ids[ids >= 0]  # others are unknown
        labels = [names[i] if i < len(names) else str(i) for i in ids.tolist()]
        yield from _each(task.data.environment, ids, labels)


def _latest(task: ShiftTask) -> Iterator[Group]:
    time = task.data.time
    if time is not None:
        known = time[sample_nodes(torch.cat([task.train, task.valid]), MAX_TIMES)]
        for name, share in LATEST.items():
            yield name, time > known.quantile(share)


def _graphs(task: ShiftTask) -> Iterator[Group]:
    graph = task.data.batch
    if graph is not None:
        ids = graph[task.train].unique()
        yield from _each(graph, ids, [f"graph {i}" for i in ids.tolist()])


def _groups(task: ShiftTask) -> Iterator[Group]:
    """Groups by k-means on the features minus the mean of each node's class.

    Without this subtraction, most groups would be classes. A node without a label gets the class
    with the nearest mean.
    """
    from sklearn.cluster import KMeans
    from sklearn.metrics.pairwise import euclidean_distances

    labelled = torch.cat([task.train, task.valid])
    if labelled.numel() < NUM_GROUPS * MIN_NODES:
        return
    known = sample_nodes(labelled, MAX_ROWS).sort().values.numpy()
    project, y = _components(task.data.x, known), task.y.numpy()
    if project is None:
        return
    classes, z = np.unique(y[known]), project(known)
    means = np.stack([z[y[known] == c].mean(axis=0) for c in classes])
    label = np.full(task.num_nodes, -1, dtype=np.int32)
    label[known] = np.searchsorted(classes, y[known])
    groups = KMeans(NUM_GROUPS, n_init=4, random_state=0).fit(z - means[label[known]])
    number = np.empty(task.num_nodes, dtype=np.uint8)

    def assign(rows: np.ndarray) -> None:
        z = project(rows)
        nearest = euclidean_distances(z, means).argmin(axis=1)
        nearest = np.where(label[rows] < 0, nearest, label[rows])
        centres = groups.cluster_centers_
        number[rows] = euclidean_distances(z - means[nearest], centres).argmin(axis=1)

    with limited_threads(1), ThreadPoolExecutor(min(MAX_THREADS, os.cpu_count() or 1)) as pool:
        parts = np.array_split(np.arange(task.num_nodes), -(-task.num_nodes // ROWS_AT_ONCE))
        list(pool.map(assign, parts))
    for i in range(NUM_GROUPS):
        yield f"group {i + 1}", torch.from_numpy(number == i)


def _components(x: Tensor, rows: np.ndarray) -> Callable[[np.ndarray], np.ndarray] | None:
    """Return the projection of rows of features $[N, D]$ on the principal components of some rows.

    Features with few columns or rows are not projected. None if all rows are equal.
    """
    from sklearn.decomposition import PCA

    is_sparse, values = x.layout == torch.sparse_csr, to_matrix(x)
    known = values[rows].astype(np.float64)
    if not (known.max(axis=0) - known.min(axis=0)).sum():
        return None
    if min(known.shape) <= NUM_COMPONENTS:
        return lambda rows: (values[rows].toarray() if is_sparse else values[rows]).astype(float)
    pca = PCA(NUM_COMPONENTS, svd_solver="arpack", random_state=0).fit(known)
    return lambda rows: np.asarray(pca.transform(values[rows].astype(np.float64)))


def _each(group: Tensor, ids: Tensor, names: list[str]) -> Iterator[Group]:
    """Each group, or several groups together if there are more than `MAX_SHIFTS`."""
    if ids.numel() > 1:
        for i in range(min(MAX_SHIFTS, ids.numel())):
            yield listed(names[i::MAX_SHIFTS]), torch.isin(group, ids[i::MAX_SHIFTS])
