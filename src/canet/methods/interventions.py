r"""Interventions beyond the environments that were seen: random offsets for groups of nodes.

Adjusting over environments that were *seen* gives at best the model of all of them together. Here
the environment is continuous: node v's features are $x_v + \epsilon_{g(v)}$ with

.. math:: \epsilon_{gj} \sim N(0, (w\,s_j)^2), \qquad
          s_j^2 = \mathrm{E}_c\big[\mathrm{Var}_g\,\mathrm{E}(x_j \mid g, c)\big]

drawn anew in each step for every group g and column j: a prior w times wider than the spread
$s_j$ between the groups that were observed. The spread is taken within classes c, so that a column
which tells classes apart does not count for that, and columns which groups hardly move are left
alone. Groups are given environments, or inferred from the features of the training nodes.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass, replace
from typing import Any, Literal, NamedTuple, TypeAlias

import numpy as np
import scipy.sparse as sp
import torch
from torch import Tensor

from canet.errors import CanetError, InputWarning
from canet.methods.base import Batch, Findings, Method, Settings, TrainingView
from canet.nn import Features, ShiftedFeatures, SparseMatrix
from canet.nn.model import rows_of
from canet.settings import setting
from canet.util.sparse import to_scipy

NUM_COMPONENTS = 8
LARGE_EFFECT = 0.14
"""Share of a column's variance between groups, given the class, from which on it is moved. The
number is that from which Cohen calls η² large; here each group counts the same, however small."""
MAX_SHIFTED_SHARE = 0.25
"""Share of the columns that may move without a remark: interventions held where one in thirty or
fewer moved, and cost 3 to 7 points where half did (docs/results/interventions.md)."""
MIN_OF_A_CLASS = 3
"""Nodes of a class that a group needs for a mean that counts."""
MAX_TIMES = 1e15
"""How much larger than training nodes others count when they are given their group."""
MAX_NODES = 20_000
"""Training nodes that groups are inferred from."""
COLUMNS_AT_ONCE = 256
"""Columns of an array that are in double precision at one time."""
Matrix: TypeAlias = Any
"""Features $[n, D]$: an array, or a scipy CSR matrix."""


@dataclass(frozen=True)
class InterventionSettings(Settings):
    """Settings of methods that may intervene beyond the environments that were seen."""

    interventions: Literal["none", "inferred", "given"] = setting(
        "none",
        "random offsets of features in training: none, for groups of nodes that are inferred from "
        "the features, or for given environments",
        choices=("none", "inferred", "given"),
    )
    intervention_width: float = setting(
        6.0,
        "offsets, as a multiple of the spread between the groups that were seen",
        above=0,
    )
    num_groups: int = setting(6, "groups to infer for interventions", minimum=2, maximum=1000)


class Moved(NamedTuple):
    """How much columns move between groups, given the class.

    `spread` $[D]$: standard deviation of the groups' means, less what sampling gives; `share`
    $[D]$: of the variance within a class that lies between groups, η², each group counting the
    same.
    """

    spread: Tensor
    share: Tensor

    @property
    def large(self) -> Tensor:
        """Mask $[D]$ of the columns that clearly move."""
        return self.share >= LARGE_EFFECT


class InterveningMethod(Method):
    """A method whose training steps see interventions where its settings ask for them."""

    settings_type = InterventionSettings
    interventions: Interventions | None = None

    def prepare(self, view: TrainingView) -> None:
        if self.settings.interventions != "none":
            device = self.model.phi_out.weight.device
            self.interventions = Interventions(self.settings, view, device)

    def intervene(self, batch: Batch) -> Batch:
        return batch if self.interventions is None else self.interventions(batch)

    def findings(self) -> Findings | None:
        """The columns that interventions move, the most moved first."""
        if self.interventions is None:
            return None
        moved = self.interventions.moved
        order = moved.share.argsort(descending=True, stable=True)
        columns = order[moved.large[order]]
        return Findings(
            num_columns=moved.share.numel(),
            shifted_columns=columns.tolist(),
            share=[round(share, 4) for share in moved.share[columns].tolist()],
        )


class Interventions:
    """Draws offsets for the groups of the nodes that a training batch reads.

    Args:
        settings: Which groups, how many, and how wide.
        view: The task. Training nodes alone decide on groups, spreads and columns; the group of
            another node that training reads is told by its own features, or its environment.
        device: Where the batch is.
    """

    def __init__(self, settings: Any, view: TrainingView, device: torch.device) -> None:
        group, count = groups_of(settings, view)
        self.moved = spread_between(view.x, view.train, view.y, group[view.train], count)
        _remark(self.moved)
        scale = settings.intervention_width * torch.where(self.moved.large, self.moved.spread, 0.0)
        self.scale = scale.to(device)
        known = group[view.field()]
        member = torch.zeros(known.numel(), count)
        inside = known >= 0
        member[inside, known[inside]] = 1.0
        self.member = member.to(device)

    def __call__(self, batch: Batch) -> Batch:
        """The batch with features $x_v + \\epsilon_{g(v)}$."""
        return replace(batch, x=ShiftedFeatures(batch.x, self.draw(), self.member))

    def draw(self) -> Tensor:
        """Offsets $[G, D]$ of the groups, drawn on the device."""
        shape = (self.member.shape[1], self.scale.numel())
        return self.scale * torch.randn(shape, device=self.scale.device)


def too_many_shift(count: int, every: int) -> bool:
    """Whether so many of all columns move that interventions leave little to learn from."""
    return count > MAX_SHIFTED_SHARE * every


def _remark(moved: Moved) -> None:
    """Say when interventions will do nothing, or too much."""
    count, every = int(moved.large.sum()), moved.large.numel()
    remark = ""
    if not count:
        remark = "no column, as none moves within a class between groups: training is as without"
    elif too_many_shift(count, every):
        remark = f"{count:,} of {every:,} columns: compare with interventions=none"
    if remark:
        warnings.warn(f"interventions move {remark}", InputWarning, stacklevel=3)


def groups_of(settings: Any, view: TrainingView) -> tuple[Tensor, int]:
    """Group $[N]$ of each node that training reads, -1: none; and how many groups there are."""
    if settings.interventions == "inferred":
        return infer_groups(view, settings.num_groups), settings.num_groups
    if view.environment is None or (view.environment[view.train] < 0).any():
        raise CanetError(
            "interventions=given needs an environment label for every training node; "
            "interventions=inferred needs none"
        )
    ids = view.environment[view.train].unique()
    group = torch.searchsorted(ids, view.environment.contiguous()).clamp(max=ids.numel() - 1)
    return torch.where(ids[group] == view.environment, group, -1), ids.numel()


def infer_groups(view: TrainingView, count: int) -> Tensor:
    """Groups $[N]$ of the nodes that training reads, by k-means on principal components.

    Components and centres are those of training nodes, of the features at their own scale; other
    nodes get the group of the nearest centre.
    """
    random = np.random.default_rng(0)
    chosen = view.train
    if chosen.numel() > MAX_NODES:
        chosen = chosen[torch.from_numpy(np.sort(random.permutation(chosen.numel())[:MAX_NODES]))]
    nodes = torch.cat([view.train, view.field()]).unique()
    x = as_matrix(rows_of(view.x, chosen))
    every = x if nodes.equal(chosen) else as_matrix(rows_of(view.x, nodes))
    group = torch.full((view.x.shape[0],), -1)
    group[nodes] = cluster_rows(x, every, count)
    return group


def cluster_rows(x: Matrix, every: Matrix, count: int) -> Tensor:
    """Groups $[m]$ of rows $[m, D]$ by components and centres of the rows x $[n, D]$."""
    from scipy.sparse.linalg import ArpackError
    from sklearn.cluster import KMeans
    from sklearn.decomposition import PCA

    if x.shape[1] < 2:
        raise CanetError("groups are inferred from two or more columns: pass interventions=none")
    if x.shape[0] <= count:
        raise CanetError(
            f"{x.shape[0]} training nodes are too few for {count} groups: lower num_groups, or "
            "pass interventions=none"
        )
    size = min(NUM_COMPONENTS, min(x.shape) - 1)
    _, exponent = np.frexp(abs(x).max())
    scaled = _divided(x, exponent)
    others = scaled if every is x else _divided(every, exponent)
    try:
        components = PCA(size, svd_solver="arpack", random_state=0).fit(scaled)
        means = KMeans(count, n_init=4, random_state=0).fit(components.transform(scaled))
    except (ArpackError, ValueError) as error:
        raise CanetError(
            "no groups can be inferred from the features of the training nodes, which are all the "
            "same: pass interventions=none"
        ) from error
    return torch.from_numpy(means.predict(components.transform(others)).astype(np.int64))


def _divided(rows: Matrix, exponent: np.int32) -> Matrix:
    """Rows over $2^e$: squares of float32 must neither overflow nor vanish."""
    values = rows.data if sp.issparse(rows) else rows
    with np.errstate(over="ignore"):
        values = np.ldexp(values, -exponent).clip(-MAX_TIMES, MAX_TIMES)
    if sp.issparse(rows):
        return sp.csr_matrix((values, rows.indices, rows.indptr), rows.shape)
    return values


def spread_between(x: Features, nodes: Tensor, y: Tensor, group: Tensor, num_groups: int) -> Moved:
    r"""How much columns move between groups of nodes $[n]$ with labels and groups $[n]$.

    For each class, with $m_g$ the mean of its $n_g$ nodes in each of G groups and $v_g$ their
    variance, $b = \max(0, \mathrm{Var}_g m_g - \frac{1}{G} \sum_g v_g / n_g)$, in which groups
    count the same, and $v = \sum_g n_g v_g / \sum_g n_g$. With means over classes, as often as
    they are frequent: $s^2 = \mathrm{E}_c\, b$, $\eta^2 = s^2 / (s^2 + \mathrm{E}_c\, v)$.
    """
    return spread_of_rows(as_matrix(rows_of(x, nodes)), y, group, num_groups)


def spread_of_rows(rows: Matrix, y: Tensor, group: Tensor, num_groups: int) -> Moved:
    """The same of the features $[n, D]$ of these nodes."""
    cell = (y * num_groups + group).numpy()
    counts = np.bincount(cell)
    counted = np.flatnonzero(counts >= MIN_OF_A_CLASS)
    sums, squares = _sums(rows, counted, cell)
    n = counts[counted, None]
    mean = sums / n
    variance = np.maximum((squares / n - mean**2) * n / (n - 1), 0)
    between, within, total = np.zeros(rows.shape[1]), np.zeros(rows.shape[1]), 0
    labels, sizes = np.unique(y.numpy(), return_counts=True)
    for label, size in zip(labels, sizes.tolist(), strict=True):
        own = counted // num_groups == label
        if own.sum() < 2:
            continue
        sampled = (variance[own] / n[own]).mean(axis=0)
        between += size * np.maximum(mean[own].var(axis=0, ddof=1) - sampled, 0)
        within += size * (variance[own] * n[own]).sum(axis=0) / n[own].sum()
        total += size
    if not total:
        return Moved(torch.zeros(rows.shape[1]), torch.zeros(rows.shape[1]))
    share = between / np.maximum(between + within, np.finfo(np.float64).tiny)
    spread = np.sqrt(between / total)
    return Moved(torch.from_numpy(spread).float(), torch.from_numpy(share).float())


def _sums(rows: Matrix, cells: np.ndarray, cell: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Sums $[k, D]$ of features $[n, D]$, and of their squares, over each of k cells of rows."""
    place = np.searchsorted(cells, cell)
    (inside,) = np.isin(cell, cells).nonzero()
    pick = sp.csr_matrix(
        (np.ones(inside.size), (place[inside], inside)), shape=(cells.size, cell.size)
    )
    if sp.issparse(rows):
        rows = rows.astype(np.float64)
        return (pick @ rows).toarray(), (pick @ rows.multiply(rows)).toarray()
    sums, squares = np.empty((2, cells.size, rows.shape[1]))
    for start in range(0, rows.shape[1], COLUMNS_AT_ONCE):
        columns = slice(start, start + COLUMNS_AT_ONCE)
        part = rows[:, columns].astype(np.float64)
        sums[:, columns], squares[:, columns] = pick @ part, pick @ part**2
    return sums, squares


def as_matrix(x: Features) -> Matrix:
    """Features $[n, D]$ as an array, or as a scipy matrix where most are zero."""
    if isinstance(x, Tensor) and 2 * np.count_nonzero(x.numpy()) > x.numel():
        return x.numpy()
    return as_scipy(x)


def as_scipy(x: Features) -> sp.csr_matrix:
    """Features $[n, D]$ as a scipy matrix; those with offsets are written out."""
    if isinstance(x, ShiftedFeatures):
        offset = as_scipy(x.member) @ x.offset.numpy()
        return sp.csr_matrix(as_scipy(x.x).toarray() + offset)
    return to_scipy(x.csr) if isinstance(x, SparseMatrix) else sp.csr_matrix(x.numpy())
