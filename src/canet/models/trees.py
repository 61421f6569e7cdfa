"""Gradient-boosted trees on the columns of the nodes and of their neighbours."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Self

import numpy as np
import torch
from torch import Tensor

from canet.data.task import ShiftTask
from canet.errors import VersionError
from canet.models.base import Fitted, Learner, State, entry
from canet.models.tabular import TabularSettings, node_weights, training_graph
from canet.nn.model import Prediction, linear_map
from canet.settings import override, setting
from canet.training.loop import Progress
from canet.training.prepared import PreparedGraph
from canet.util.colour import Colour
from canet.util.sparse import to_scipy
from canet.util.torch_state import limited_threads

FIELDS = {
    "feature_idx": np.int64,
    "num_threshold": np.float64,
    "missing_go_to_left": np.bool_,
    "left": np.int64,
    "right": np.int64,
    "value": np.float64,
    "is_leaf": np.bool_,
}
"""What a prediction needs of the nodes of a tree in scikit-learn, and its types."""
PATIENCE = 10
"""Number of trees without a better validation loss after which no more are added."""
MAX_COLUMNS = 64
"""Wider features are projected on this number of principal directions."""


@dataclass(frozen=True)
class TreeSettings(TabularSettings):
    """Settings of boosted trees."""

    learning_rate: float = setting(0.1, "weight of each tree", above=0, search=(0.03, 0.1, 0.3))
    max_trees: int = setting(200, "largest number of trees for each class", minimum=1)


class FittedTrees(Fitted):
    """Boosted trees. A logit is the sum of the leaves that a node reaches, one in each tree.

    Args:
        settings: The settings of the training.
        num_features: Number of features D.
        components: Directions $[k, D]$ on which wide features are projected first, or None.
        baseline: Logits $[K]$ before the first tree; for two classes, K is 1.
        trees: Arrays over the nodes of all trees, one for each of `FIELDS`.
        starts: Number of the first node of each tree $[T]$; tree t belongs to logit t mod K.
    """

    kind = "trees"
    sizes: tuple[int, int]

    def __init__(
        self,
        settings: TreeSettings,
        num_features: int,
        components: Tensor | None,
        baseline: Tensor,
        trees: Mapping[str, Tensor],
        starts: Tensor,
    ) -> None:
        self.settings, self.components = settings, components
        self.baseline, self.starts = baseline, starts
        self.trees = {name: trees[name] for name in FIELDS}
        self.sizes = num_features, max(2, len(baseline))

    def read(
        self, graph: PreparedGraph, nodes: Tensor | None = None, x: Tensor | None = None
    ) -> Prediction:
        columns = _dense(
            graph if x is None else graph.with_features(x), self.settings, self.components
        )
        logits = self._logits(columns if nodes is None else columns[nodes])
        if logits.shape[1] == 1:
            logits = torch.cat([torch.zeros_like(logits), logits], dim=1)
        return Prediction(logits.float())

    def _logits(self, x: Tensor) -> Tensor:
        """Return the sums of leaves $[n, K]$ for columns $[n, D]$; NaN is a missing value."""
        found, rows = self.baseline.repeat(len(x), 1), torch.arange(len(x))
        feature, limit, to_left, left, right, value, is_leaf = self.trees.values()
        for number, start in enumerate(self.starts.tolist()):
            place = torch.full((len(x),), start)
            while not (ended := is_leaf[place]).all():
                cell = x[rows, feature[place]].double()
                goes_left = torch.where(cell.isnan(), to_left[place], cell <= limit[place])
                below = start + torch.where(goes_left, left[place], right[place])
                place = torch.where(ended, place, below)
            found[:, number % found.shape[1]] += value[place]
        return found

    def state(self) -> State:
        tensors = {"baseline": self.baseline, "starts": self.starts, **self.trees}
        if self.components is not None:
            tensors["components"] = self.components
        about = {"kind": self.kind, "settings": asdict(self.settings)}
        return about | {"num_features": self.sizes[0]}, tensors

    @classmethod
    def restore(cls, about: Mapping[str, Any], tensors: Mapping[str, Tensor]) -> Self:
        settings = override(TreeSettings(), entry(about, "settings", dict))
        names = ("baseline", "starts", *FIELDS)
        parts = {name: entry(tensors, name, Tensor) for name in names}
        count, wide = entry(about, "num_features", int), tensors.get("components")
        if not _are_valid(parts, count, wide, settings):
            raise VersionError("the arrays of the trees do not fit together")
        return cls(settings, count, wide, parts["baseline"], parts, parts["starts"])


class Trees(Learner):
    """Gradient boosting of decision trees: `HistGradientBoostingClassifier` of scikit-learn.

    Trees are added until the loss of the validation nodes no longer falls.
    """

    name = "trees"
    label = "Trees"
    colour = Colour("#2f5d1e", "#8fce6f")
    summary = "boosted trees on the columns of a node and the means of its neighbours"
    paper = "Friedman, Greedy function approximation, Ann. Statist. '01"
    settings_type = TreeSettings
    settings: TreeSettings

    def fit(
        self,
        task: ShiftTask,
        seed: int = 0,
        *,
        initial: Fitted | None = None,
        work: Path | None = None,
        on_progress: Progress | None = None,
    ) -> Fitted:
        from sklearn.ensemble import HistGradientBoostingClassifier

        graph, y = training_graph(task), task.data.y.numpy()
        components = _components(graph.user_graph.x, task.observed(), seed)
        columns = _dense(graph, self.settings, components).numpy()
        model = HistGradientBoostingClassifier(
            learning_rate=self.settings.learning_rate,
            max_iter=self.settings.max_trees,
            n_iter_no_change=PATIENCE,
            early_stopping=True,
            random_state=seed,
        )
        with limited_threads(self.options.threads):
            model.fit(
                columns[task.train],
                y[task.train],
                sample_weight=node_weights(task, self.options.class_weight).numpy(),
                X_val=columns[task.valid],
                y_val=y[task.valid],
            )
        trees = [tree.nodes for step in model._predictors for tree in step]
        sizes = torch.tensor([len(nodes) for nodes in trees])
        joined = np.concatenate(trees)
        parts = {name: torch.from_numpy(joined[name].astype(kind)) for name, kind in FIELDS.items()}
        baseline = torch.from_numpy(np.asarray(model._baseline_prediction).reshape(-1))
        about = task.num_features, components, baseline
        return FittedTrees(self.settings, *about, parts, sizes.cumsum(0) - sizes)


def _are_valid(
    parts: Mapping[str, Tensor], count: int, components: Tensor | None, settings: TreeSettings
) -> bool:
    """Whether arrays are trees: children come after their node, and all columns exist."""
    if any(part.dim() != 1 or not part.numel() for part in parts.values()):
        return False
    if components is not None and (components.dim() != 2 or components.shape[1] != count):
        return False
    width = count if components is None else components.shape[0]
    width = 3 * width + 1 if settings.neighbours else width
    nodes, starts = len(parts["value"]), parts["starts"]
    types = {name: torch.from_numpy(np.empty(0, kind)).dtype for name, kind in FIELDS.items()}
    if any(len(parts[name]) != nodes or parts[name].dtype != types[name] for name in FIELDS):
        return False
    is_start = starts[0] == 0 and (starts.diff() > 0).all() and starts[-1] < nodes
    if starts.dtype != torch.long or not is_start:
        return False
    size = torch.cat([starts, starts.new_tensor([nodes])]).diff()
    own = torch.arange(nodes) - starts.repeat_interleave(size)
    last, inner = size.repeat_interleave(size), ~parts["is_leaf"]
    children = [parts[side][inner] for side in ("left", "right")]
    feature = parts["feature_idx"][inner]
    return all(bool(((c > own[inner]) & (c < last[inner])).all()) for c in children) and bool(
        ((feature >= 0) & (feature < width)).all()
    )


def _components(x: Tensor, nodes: Tensor, seed: int) -> Tensor | None:
    """Return the main directions $[k, D]$ of the features of some nodes, if there are many."""
    from sklearn.decomposition import TruncatedSVD

    if x.shape[1] <= MAX_COLUMNS:
        return None
    values = to_scipy(x) if x.layout == torch.sparse_csr else x.numpy()
    found = TruncatedSVD(MAX_COLUMNS, random_state=seed).fit(values[nodes.numpy()])
    return torch.from_numpy(np.ascontiguousarray(found.components_, dtype=np.float32))


def _dense(graph: PreparedGraph, settings: TreeSettings, components: Tensor | None) -> Tensor:
    """Return the columns of all nodes as a dense matrix."""
    if components is not None:
        graph = graph.with_features(graph.user_graph.x @ components.T)
    found = settings.columns(graph)
    return found if isinstance(found, Tensor) else linear_map(found, torch.eye(found.shape[1]))
