"""Gradient-boosted trees on the columns of the nodes and of their neighbours."""

import math
import sys
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from functools import cached_property
from typing import Any, Self

import numpy as np
import torch
from torch import Tensor

from canet.data.task import MAX_SCORED, ShiftTask
from canet.errors import VersionError
from canet.methods import Settings, Traits
from canet.models.base import Fitted, Learner, State, entry
from canet.models.boosting import NO_CATEGORIES, boosting, learned, predictors
from canet.models.options import Options
from canet.models.replacing import Replacing, replacing_in
from canet.models.tabular import node_weights, training_graph, training_rows
from canet.nn import Features
from canet.nn.model import Prediction
from canet.reading.columns import Columns, TabularSettings, as_dense
from canet.reading.prepared import PreparedGraph
from canet.settings import override, setting
from canet.util.colour import Colour
from canet.util.sparse import to_matrix
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
PATIENCE = 10  # number of trees without a better validation loss after which no more are added
MAX_BINS, MAX_LEAVES = 63, 15
MAX_ROWS, MAX_LABELS = 2**20, 2**21
"""Most nodes of a graph on disk to train on: this number, and this one divided by the classes."""
MAX_COLUMNS = 32  # wider features are projected on this number of principal directions


@dataclass(frozen=True)
class TreeSettings(TabularSettings):
    """Settings of boosted trees."""

    learning_rate: float = setting(0.1, "weight of each tree", above=0, search=(0.03, 0.1, 0.3))
    max_trees: int = setting(100, "largest number of trees for each class", minimum=1)
    rounded: bool = setting(
        True, "round columns to 20 bits: predictions do not depend on the order of nodes and edges"
    )


class FittedTrees(Fitted):
    """Boosted trees. A logit is the sum of the leaves that a node reaches, one in each tree.

    Args:
        settings: The settings of the training.
        num_features: Number of features D.
        components: Directions $[k, D]$ on which wide features are projected first, or None.
        baseline: Logits $[C]$ before the first tree.
        trees: Arrays over the nodes of all trees, one for each of `FIELDS`.
        starts: Number of the first node of each tree $[T]$.
        classes: Classes $[K]$ whose logits have trees; tree t belongs to class t mod K of these.
        marks: Pairs $[m, 2]$ of features: one whose empty cells were filled, and one that is 1
            there. Trees read these cells as missing.
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
        classes: Tensor,
        marks: Tensor,
    ) -> None:
        self.settings, self.components = settings, components
        self.baseline, self.starts, self.classes = baseline, starts, classes
        self.marks = marks
        self.trees = {name: trees[name] for name in FIELDS}
        self.sizes = num_features, len(baseline)

    def read(self, graph: PreparedGraph, nodes: Tensor | None = None) -> Prediction:
        how: dict[str, Any] = {"components": self.components, "marks": self.marks}
        columns = Columns(graph, self.settings, **how, rounded=self.settings.rounded)
        return Prediction(columns.logits(nodes, len(self.baseline), self._logits))

    def replacing(self, graph: PreparedGraph, nodes: Tensor) -> Replacing:
        """As `Fitted.replacing`; wide features are projected only once."""
        if self.components is None:
            return super().replacing(graph, nodes)
        trees = self.trees, self.starts, self.classes, self.marks[:0]
        projected = FittedTrees(self.settings, MAX_COLUMNS, None, self.baseline, *trees)

        def read(x: np.ndarray) -> Tensor:
            return projected.read(graph.with_features(torch.from_numpy(x).float()), nodes).logits

        x, weight = to_matrix(graph.data.x), self.components.double().numpy().T
        return replacing_in(x, x @ weight, lambda own, columns: own @ weight[columns], read)

    @cached_property
    def _fast_trees(self) -> list[Any]:
        columns = {name: values.numpy() for name, values in self.trees.items()}
        return predictors(columns, self.starts.tolist())

    def _logits(self, x: Features) -> Tensor:
        """Return the sums of leaves $[n, C]$ for columns $[n, D]$; NaN is a missing value."""
        cells = np.ascontiguousarray(as_dense(x).numpy(), dtype=np.float64)
        found, classes = np.tile(self.baseline.numpy(), (len(cells), 1)), self.classes.tolist()
        for number, tree in enumerate(self._fast_trees):
            leaves = tree.predict(cells, *NO_CATEGORIES, torch.get_num_threads())
            found[:, classes[number % len(classes)]] += leaves
        return torch.from_numpy(found)

    def learner(self, shared: Settings, options: Options) -> Learner:
        return Trees(self.settings, options)

    def state(self) -> State:
        names = ("baseline", "starts", "classes", "marks")
        tensors = {name: getattr(self, name) for name in names} | self.trees
        if self.components is not None:
            tensors["components"] = self.components
        about = {"kind": self.kind, "settings": asdict(self.settings)}
        return about | {"num_features": self.sizes[0]}, tensors

    @classmethod
    def restore(cls, about: Mapping[str, Any], tensors: Mapping[str, Tensor]) -> Self:
        # The first models do not have the setting `rounded`.
        settings = override(TreeSettings(rounded=False), entry(about, "settings", dict))
        names = ("baseline", "starts", "classes", *FIELDS)
        parts = {name: entry(tensors, name, Tensor) for name in names}
        marks = entry(tensors, "marks", Tensor)
        count, wide = entry(about, "num_features", int), tensors.get("components")
        are_columns = marks.dtype == torch.long and marks.shape[1:] == (2,)
        are_columns = are_columns and ((marks >= 0) & (marks < count)).all()
        if not are_columns or not _are_valid(parts, count, wide, settings):
            raise VersionError("the arrays of the trees do not fit together")
        last = parts["baseline"], parts, parts["starts"], parts["classes"], marks
        return cls(settings, count, wide, *last)


class Trees(Learner):
    """Gradient boosting of decision trees: `HistGradientBoostingClassifier` of scikit-learn.

    Trees are added until the loss of the validation nodes no longer falls.
    """

    name = "trees"
    label = "Trees"
    colour = Colour("#2f5d1e", "#8fce6f")
    summary = "boosted trees on the columns of a node and the means of its neighbours"
    paper = "Friedman, Greedy function approximation, Ann. Statist. '01"
    traits = Traits(trains_in_batches=True, on_cpu=True)
    settings_type = TreeSettings
    settings: TreeSettings

    def fit(self, task: ShiftTask, seed: int = 0, **_: Any) -> Fitted:
        graph, y = training_graph(task), task.y
        marks = task.data.marks
        marks = torch.empty(0, 2, dtype=torch.long) if marks is None else marks
        most = min(MAX_ROWS, MAX_LABELS // task.num_classes)
        train = training_rows(task, self.name, 3 * task.num_features, most)
        known = y[train].unique()
        # A held-out part may have all nodes of a class.
        valid = task.valid[torch.isin(y[task.valid], known)]
        valid = valid if valid.numel() else train
        observed = task.sampled(task.observed(), MAX_SCORED)
        components = _components(graph.data.x, observed, seed)
        check_time = self.options.check_time
        how = check_time, components, marks, self.settings.rounded
        columns = Columns(graph, self.settings, self.device, *how)
        columns.prepare([train, valid, *task.scored().values()])
        x, valid_x = (as_dense(columns.rows(nodes)).cpu().numpy() for nodes in (train, valid))
        model = boosting(check_time)(
            learning_rate=self.settings.learning_rate,
            max_iter=self.settings.max_trees,
            n_iter_no_change=PATIENCE,
            early_stopping=True,
            max_bins=MAX_BINS,
            max_leaf_nodes=MAX_LEAVES,
            random_state=seed,
        )
        weight = node_weights(task, train, self.options.class_weight).numpy()
        # The bins of weighted nodes take long.
        weights = weight if (weight != weight[0]).any() else None
        train_y, valid_y = y[train].numpy(), y[valid].numpy()
        with limited_threads(1):  # more threads hardly help, and are much slower on a busy machine
            model.fit(x, train_y, sample_weight=weights, X_val=valid_x, y_val=valid_y)
        trees, first = learned(model)
        sizes = torch.tensor([len(nodes) for nodes in trees])
        joined = np.concatenate(trees)
        # Weights must be finite. A split of missing values from all others has the threshold inf.
        np.minimum(joined["num_threshold"], sys.float_info.max, out=joined["num_threshold"])
        parts = {name: torch.from_numpy(joined[name].astype(kind)) for name, kind in FIELDS.items()}
        classes = known[1:] if len(known) == 2 else known
        baseline = torch.full((task.num_classes,), -math.log(len(y) + 1), dtype=torch.double)
        baseline[known[0]] = 0.0
        if len(known) == 1:  # only if a model continues; there is nothing to learn
            parts["value"].zero_()
        else:
            baseline[classes] = torch.from_numpy(first)
        starts, width = sizes.cumsum(0) - sizes, task.num_features
        settings, marks = self.settings, marks.clone()
        return FittedTrees(settings, width, components, baseline, parts, starts, classes, marks)


def _are_valid(
    parts: Mapping[str, Tensor], count: int, components: Tensor | None, settings: TreeSettings
) -> bool:
    """Whether arrays are trees: children come after their node, and all columns exist."""
    if any(part.dim() != 1 or not part.numel() for part in parts.values()):
        return False
    if components is not None and components.shape[1:] != (count,):
        return False
    if not all(t.is_floating_point() for t in (parts["baseline"], components) if t is not None):
        return False
    width = count if components is None else components.shape[0]
    width = 3 * width + 1 if settings.neighbours else width
    nodes, starts, classes = len(parts["value"]), parts["starts"], parts["classes"]
    types = {name: torch.from_numpy(np.empty(0, kind)).dtype for name, kind in FIELDS.items()}
    if any(len(parts[name]) != nodes or parts[name].dtype != types[name] for name in FIELDS):
        return False
    if starts.dtype != torch.long or classes.dtype != torch.long:
        return False
    if starts[0] != 0 or (starts.diff() <= 0).any() or starts[-1] >= nodes:
        return False
    size = torch.cat([starts, starts.new_tensor([nodes])]).diff()
    own = torch.arange(nodes) - starts.repeat_interleave(size)
    last, inner = size.repeat_interleave(size), ~parts["is_leaf"]

    def are_between(values: Tensor, low: Tensor | int, high: Tensor | int) -> bool:
        return bool(((values >= low) & (values < high)).all())

    return (
        are_between(parts["left"][inner], own[inner] + 1, last[inner])
        and are_between(parts["right"][inner], own[inner] + 1, last[inner])
        and are_between(parts["feature_idx"][inner], 0, width)
        and are_between(classes, 0, len(parts["baseline"]))
    )


def _components(x: Tensor, nodes: Tensor, seed: int) -> Tensor | None:
    """Return the main directions $[k, D]$ of the features of some nodes, if there are many."""
    from sklearn.decomposition import TruncatedSVD

    if x.shape[1] <= MAX_COLUMNS:
        return None
    rows = to_matrix(x)[nodes.numpy()].astype(np.float32)
    with np.errstate(divide="ignore", invalid="ignore"):  # equal rows have no variance
        found = TruncatedSVD(MAX_COLUMNS, random_state=seed).fit(rows)
    return torch.from_numpy(np.ascontiguousarray(found.components_, dtype=np.float32))
