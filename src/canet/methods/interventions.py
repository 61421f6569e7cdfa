r"""Interventions on features: random offsets for groups of nodes, wider than the observed shifts.

Averaging over the observed environments gives at best the model of their mixture. Here the
environment is continuous: the features of node v become $x_v + \epsilon_{g(v)}$ with

.. math:: \epsilon_{gj} \sim N(0, (w\,s_j)^2), \qquad
          s_j^2 = \mathrm{E}_c\big[\mathrm{Var}_g\,\mathrm{E}(x_j \mid g, c)\big]

for every group g and column j, with new random numbers in each training step. This prior is w times
wider than the spread $s_j$ between the observed groups. The spread is computed within each class c,
so that differences between classes do not count. Only shifted columns get offsets. The groups are
the given environments, or are inferred from the features of the training nodes.
"""

import warnings
from dataclasses import dataclass, replace
from typing import Literal, NamedTuple

import numpy as np
import scipy.sparse as sp
import torch
from torch import Tensor

from canet.errors import CanetError, InputWarning
from canet.methods.base import Batch, Findings, Method, Settings, TrainingView
from canet.nn import Features, ShiftedFeatures, SparseMatrix
from canet.nn.model import rows_of
from canet.settings import setting
from canet.util.sparse import Matrix, to_scipy

NUM_COMPONENTS = 8
LARGE_EFFECT = 0.14
"""Smallest share η² of the variance within a class that lies between groups for a column to count
as shifted. Cohen calls η² ≥ 0.14 a large effect. Here all groups have equal weight."""
MAX_SHIFTED_SHARE = 0.25
"""Largest share of shifted columns without a warning. In our experiments, interventions helped with
up to one shifted column in thirty, and cost 3 to 7 points with half of the columns shifted
(docs/results/interventions.md)."""
MIN_CLASS_SIZE = 3  # smallest number of nodes of a class in a group whose mean is used
MAX_SCALED_VALUE = 1e15
"""Limit of features, relative to the largest training value, when nodes are assigned to groups."""
MAX_NODES = 20_000  # largest number of training nodes that groups are inferred from
COLUMNS_PER_CHUNK = 256  # number of columns that are converted to double precision at a time


@dataclass(frozen=True)
class InterventionSettings(Settings):
    interventions: Literal["none", "inferred", "given"] = setting(
        "none",
        "random offsets in training, for columns that shift: none, inferred (one offset per group "
        "of nodes with similar features) or given (one offset per environment)",
    )
    intervention_width: float = setting(
        6.0,
        "standard deviation of the offsets, as a multiple of the spread between groups",
        above=0,
    )
    num_groups: int = setting(
        6, "number of groups to infer with interventions=inferred", minimum=2, maximum=1000
    )

    @property
    def can_be_in_batches(self) -> bool:
        return self.interventions == "none"


class InterventionWarning(InputWarning):
    """Interventions change no columns, or too many."""


class GroupSpread(NamedTuple):
    """How much each column shifts between groups of nodes of the same class.

    `spread` $[D]$ is the standard deviation of the group means, corrected for sampling noise.
    `share` $[D]$ is η², the share of the variance within a class that lies between groups, with
    equal weight for all groups.
    """

    spread: Tensor
    share: Tensor

    @property
    def is_shifted(self) -> Tensor:
        """Mask $[D]$ of the shifted columns."""
        return self.share >= LARGE_EFFECT


class InterveningMethod(Method):
    settings_type = InterventionSettings
    interventions: "Interventions | None" = None

    def prepare(self, view: TrainingView) -> None:
        if self.settings.interventions != "none":
            device = self.model.phi_out.weight.device
            self.interventions = Interventions(self.settings, view, device)

    def intervene(self, batch: Batch) -> Batch:
        return batch if self.interventions is None else self.interventions(batch)

    def findings(self) -> Findings | None:
        """Return the shifted columns, sorted by decreasing shift."""
        if self.interventions is None:
            return None
        between = self.interventions.group_spread
        order = between.share.argsort(descending=True, stable=True)
        columns = order[between.is_shifted[order]]
        return Findings(
            num_columns=between.share.numel(),
            shifted_columns=columns.tolist(),
            share=[round(share, 4) for share in between.share[columns].tolist()],
        )


class Interventions:
    """Adds random offsets to the features of a training batch, one offset per group of nodes.

    Groups, spreads and shifted columns are computed from training nodes. Other nodes of the batch
    are assigned to the nearest group, or to the group of their environment.
    """

    def __init__(
        self, settings: InterventionSettings, view: TrainingView, device: torch.device
    ) -> None:
        group, count = groups_of(settings, view)
        between = spread_between(view.x, view.train, view.y, group[view.train], count)
        self.group_spread = between
        _warn_about_columns(between)
        scale = settings.intervention_width * torch.where(between.is_shifted, between.spread, 0.0)
        self.scale = scale.to(device)
        batch_group = group[view.field()]
        self.member = (batch_group[:, None] == torch.arange(count)).float().to(device)

    def __call__(self, batch: Batch) -> Batch:
        """Return the batch with features $x_v + \\epsilon_{g(v)}$."""
        return replace(batch, x=ShiftedFeatures(batch.x, self.draw(), self.member))

    def draw(self) -> Tensor:
        """Draw the offsets $[G, D]$ of the groups on the device."""
        shape = (self.member.shape[1], self.scale.numel())
        return self.scale * torch.randn(shape, device=self.scale.device)


def _warn_about_columns(between: GroupSpread) -> None:
    num_shifted, num_columns = int(between.is_shifted.sum()), between.is_shifted.numel()
    message = ""
    if not num_shifted:
        message = (
            "interventions have no effect: no feature column shifts between groups of nodes of "
            "the same class"
        )
    elif num_shifted > MAX_SHIFTED_SHARE * num_columns:
        message = (
            f"interventions change {num_shifted:,} of {num_columns:,} feature columns, which may "
            "lower the score: compare with interventions=none"
        )
    if message:
        warnings.warn(message, InterventionWarning, stacklevel=3)


def groups_of(settings: InterventionSettings, view: TrainingView) -> tuple[Tensor, int]:
    """Return the group $[N]$ of each node of the batch (-1: no group) and the number of groups."""
    if settings.interventions == "inferred":
        return infer_groups(view, settings.num_groups), settings.num_groups
    if view.environment is None or (view.environment[view.train] < 0).any():
        raise CanetError(
            "interventions=given requires an environment for every training node: provide them, "
            "or use interventions=inferred"
        )
    ids = view.environment[view.train].unique()
    group = torch.searchsorted(ids, view.environment.contiguous()).clamp(max=ids.numel() - 1)
    return torch.where(ids[group] == view.environment, group, -1), ids.numel()


def infer_groups(view: TrainingView, count: int) -> Tensor:
    """Infer the group $[N]$ of each node of the batch by k-means on principal components.

    Principal components and centres are computed from the features of training nodes, without
    scaling of columns. Every other node gets the group of the nearest centre.
    """
    random = np.random.default_rng(0)
    chosen = view.train
    if chosen.numel() > MAX_NODES:
        chosen = chosen[torch.from_numpy(np.sort(random.permutation(chosen.numel())[:MAX_NODES]))]
    nodes = torch.cat([view.train, view.field()]).unique()
    x = as_matrix(rows_of(view.x, chosen))
    new = x if nodes.equal(chosen) else as_matrix(rows_of(view.x, nodes))
    group = torch.full((view.x.shape[0],), -1)
    group[nodes] = cluster_rows(x, new, count)
    return group


def cluster_rows(x: Matrix, new: Matrix, count: int) -> Tensor:
    """Cluster the rows of x $[n, D]$ and return the groups $[m]$ of the rows of `new` $[m, D]$."""
    from scipy.sparse.linalg import ArpackError
    from sklearn.cluster import KMeans
    from sklearn.decomposition import PCA

    if x.shape[1] < 2:
        raise CanetError(
            "interventions=inferred requires at least two feature columns: use interventions=none"
        )
    if x.shape[0] <= count:
        raise CanetError(
            f"{x.shape[0]} training nodes are not enough for {count} groups: use a smaller "
            "num_groups or interventions=none"
        )
    size = min(NUM_COMPONENTS, min(x.shape) - 1)
    _, exponent = np.frexp(abs(x).max())
    scaled = _divided(x, exponent)
    scaled_new = scaled if new is x else _divided(new, exponent)
    try:
        components = PCA(size, svd_solver="arpack", random_state=0).fit(scaled)
        means = KMeans(count, n_init=4, random_state=0).fit(components.transform(scaled))
    except (ArpackError, ValueError) as error:
        raise CanetError(
            "interventions=inferred cannot find groups, because all training nodes have the same "
            "features: use interventions=none"
        ) from error
    return torch.from_numpy(means.predict(components.transform(scaled_new)).astype(np.int64))


def _divided(rows: Matrix, exponent: np.int32) -> Matrix:
    """Divide rows by $2^e$, so that squares of float32 values do not overflow or underflow."""
    values = rows.data if sp.issparse(rows) else rows
    with np.errstate(over="ignore"):
        values = np.ldexp(values, -exponent).clip(-MAX_SCALED_VALUE, MAX_SCALED_VALUE)
    if sp.issparse(rows):
        return sp.csr_matrix((values, rows.indices, rows.indptr), rows.shape)
    return values


def spread_between(
    x: Features, nodes: Tensor, y: Tensor, group: Tensor, num_groups: int
) -> GroupSpread:
    r"""Compute how much columns shift between groups, for nodes $[n]$ with labels and groups $[n]$.

    For each class, let $m_g$ and $v_g$ be the mean and the variance of its $n_g$ nodes in each of G
    groups. The variance between groups, with equal weight for all groups, is
    $b = \max(0, \mathrm{Var}_g m_g - \frac{1}{G} \sum_g v_g / n_g)$, and that within groups is
    $v = \sum_g n_g v_g / \sum_g n_g$. With means over classes, weighted by their frequency,
    $s^2 = \mathrm{E}_c\, b$ and $\eta^2 = s^2 / (s^2 + \mathrm{E}_c\, v)$.
    """
    rows = as_matrix(rows_of(x, nodes))
    cell = (y * num_groups + group).numpy()
    counts = np.bincount(cell)
    counted = np.flatnonzero(counts >= MIN_CLASS_SIZE)
    sums, squares = _sums(rows, counted, cell)
    n = counts[counted, None]
    mean = sums / n
    variance = np.maximum((squares / n - mean**2) * n / (n - 1), 0)
    between, within, total = np.zeros(rows.shape[1]), np.zeros(rows.shape[1]), 0
    labels, sizes = np.unique(y.numpy(), return_counts=True)
    for label, size in zip(labels, sizes.tolist(), strict=True):
        of_class = counted // num_groups == label
        if of_class.sum() < 2:
            continue
        noise = (variance[of_class] / n[of_class]).mean(axis=0)
        between += size * np.maximum(mean[of_class].var(axis=0, ddof=1) - noise, 0)
        within += size * (variance[of_class] * n[of_class]).sum(axis=0) / n[of_class].sum()
        total += size
    if not total:
        return GroupSpread(torch.zeros(rows.shape[1]), torch.zeros(rows.shape[1]))
    share = between / np.maximum(between + within, np.finfo(np.float64).tiny)
    spread = np.sqrt(between / total)
    return GroupSpread(torch.from_numpy(spread).float(), torch.from_numpy(share).float())


def _sums(rows: Matrix, cells: np.ndarray, cell: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the sums $[k, D]$ of features $[n, D]$ and of their squares over each of k cells."""
    index = np.searchsorted(cells, cell)
    (inside,) = np.isin(cell, cells).nonzero()
    pick = sp.csr_matrix(
        (np.ones(inside.size), (index[inside], inside)), shape=(cells.size, cell.size)
    )
    if sp.issparse(rows):
        rows = rows.astype(np.float64)
        return (pick @ rows).toarray(), (pick @ rows.multiply(rows)).toarray()
    sums, squares = np.empty((2, cells.size, rows.shape[1]))
    for start in range(0, rows.shape[1], COLUMNS_PER_CHUNK):
        columns = slice(start, start + COLUMNS_PER_CHUNK)
        part = rows[:, columns].astype(np.float64)
        sums[:, columns], squares[:, columns] = pick @ part, pick @ part**2
    return sums, squares


def as_matrix(x: Features) -> Matrix:
    """Convert features $[n, D]$ to an array, or to a scipy matrix if at least half are zero."""
    if isinstance(x, Tensor) and 2 * np.count_nonzero(x.numpy()) > x.numel():
        return x.numpy()
    return as_scipy(x)


def as_scipy(x: Features) -> sp.csr_matrix:
    """Convert features $[n, D]$ to a scipy matrix; offsets are added."""
    if isinstance(x, ShiftedFeatures):
        offset = as_scipy(x.member) @ x.offset.numpy()
        return sp.csr_matrix(as_scipy(x.x).toarray() + offset)
    return to_scipy(x.as_torch) if isinstance(x, SparseMatrix) else sp.csr_matrix(x.numpy())
