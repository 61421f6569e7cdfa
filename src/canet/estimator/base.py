"""`BaseClassifier`: what a fitted `NodeClassifier` has, and its methods that read a graph."""

from collections.abc import Callable
from copy import copy
from typing import Any

import numpy as np
import torch
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils.validation import check_is_fitted

from canet.data.graph import Graph, check_both_ways, checked_graph, is_graph, match_classes
from canet.data.graph_files import ReadOptions, read_columns
from canet.data.graph_files.encoding import Encoding, Roles
from canet.data.raw_graph import Column, GraphLike, GraphObject, NodeSet
from canet.errors import InputError, listed, warn_user
from canet.estimator.reference import Reference
from canet.methods import Backbone
from canet.models import Fitted, MethodClass, describe_method, get_backbone_name
from canet.models.base import Reader
from canet.nn.model import Prediction
from canet.reading.prepared import PreparedGraph
from canet.scoring.calibration import Calibration, Threshold
from canet.scoring.metrics import METRICS, Outcome, check_scorable
from canet.store.result import Candidate
from canet.util.sparse import to_matrix

MIN_FLAGGED = 10
"""Number of nodes above a threshold from which their share is compared with validation nodes."""


class BaseClassifier(ClassifierMixin, BaseEstimator):
    """Predictions of a fitted classifier, for its training graph or another one."""

    method: str | MethodClass
    backbone: str | Backbone | None
    metric: str
    both_ways_: bool
    array_names_: Roles
    classes_: np.ndarray
    n_features_in_: int
    fitted_: Fitted
    encoding_: Encoding | None
    left_out_: list[int]
    reference_: Reference | None
    calibration_: Calibration
    data_: dict[str, Any]
    scores_: dict[str, float]
    baselines_: dict[str, float]
    candidates_: list[Candidate]

    @property
    def method_name(self) -> str:
        return describe_method(self.method).name

    @property
    def compares_models(self) -> bool:
        """Whether the method compares several models, as `auto` does."""
        return describe_method(self.method).traits.compares_models

    @property
    def backbone_name(self) -> str:
        return get_backbone_name(self.method, self.backbone)

    def open_graph(self, data: GraphLike, in_memory: bool = True) -> GraphObject:
        """Return a graph with the feature columns that the model was trained on.

        A path, a pair of tables, a networkx graph and a graph store are read. Unless `in_memory`,
        features and edges of a store stay on disk. A graph from `canet.read_graph` whose columns
        were encoded differently is read again from its source. A PyG `Data` of arrays is returned
        unchanged, unless the model was trained on tables, whose encoding it lacks.
        """
        check_is_fitted(self)
        if is_graph(data) and in_memory and "csr" in data:
            if self.both_ways_:
                check_both_ways(data)
            data = data.store
        given: GraphObject
        if is_graph(data):
            given = data
        else:
            given = read_columns(data, self.read_options(), self.encoding_, in_memory)
        encoding = given.get("encoding")
        if encoding == self.encoding_:
            return given
        if encoding is None:
            raise InputError(
                "the model was trained on tables, but this graph has no encoding: pass a folder or "
                "tables, or the result of canet.read_graph(..., encoding=model.encoding_)"
            )
        if self.encoding_ is None:
            raise InputError(
                "the model was trained on arrays, but this graph was read from tables: pass a Data "
                "with the feature columns of training"
            )
        source = given.get("source")
        if source is None or source.x is not given.x:
            raise InputError(
                "the feature columns of this graph differ from those of training, and x was "
                "changed: read it with canet.read_graph(..., encoding=model.encoding_)"
            )
        again = read_columns(source.place, source.options, self.encoding_)
        if again.x.shape[0] != given.x.shape[0]:
            raise InputError(f"{source} has changed since it was read: read it again")
        opened = copy(given)
        opened.x, opened.encoding = again.x, again.encoding
        opened.edge_weight = again.get("edge_weight")
        return opened

    def read_options(self) -> ReadOptions:
        """Return how this model reads graphs: it warns of the same ignored columns once."""
        self._reported = getattr(self, "_reported", set[tuple[str, ...]]())
        return ReadOptions(earlier=self.array_names_, reported=self._reported)

    def prepare(self, data: GraphLike | Reader, batch: Column | None = None) -> Reader:
        """Check and normalise a graph once; pass the result instead of `data` to several calls."""
        check_is_fitted(self)
        if isinstance(data, Reader):
            if data.model is not self.fitted_:
                raise InputError(
                    "the graph was prepared by another model: call prepare of this one"
                )
            return data
        opened = self.open_graph(data, in_memory=False)
        graph = checked_graph(opened, batch, self.both_ways_, self.left_out_)
        width = graph.x.shape[1]
        if width != self.n_features_in_:
            raise InputError(
                f"X has {width} features, but {type(self).__name__} is expecting "
                f"{self.n_features_in_} features as input: pass the columns of training, in the "
                "same order"
            )
        if None not in graph.kept:  # it was not prepared before, by this model or another one
            self._warn_constant(graph)
        columns = () if self.encoding_ is None else self.encoding_.names
        return Reader(self.fitted_, PreparedGraph.of(graph), opened.get("y"), columns)

    def _warn_constant(self, graph: Graph) -> None:
        """Warn once of columns that are empty or constant in a graph, but not in training."""
        if self.reference_ is None or graph.is_on_disk:
            return
        x = to_matrix(graph.x)
        found = self.reference_.constant_columns(x, self.encoding_)
        if found and self.read_options().reports([repr(graph), str(x.mean(dtype=float)), *found]):
            warn_user(
                f"columns that are empty or constant in this graph, but not in training: "
                f"{listed(found)} (canet.diagnose shows how much the model relies on them)"
            )

    def forward(
        self, data: GraphLike | Reader, nodes: NodeSet | None = None, batch: Column | None = None
    ) -> Prediction:
        """Return logits $[n, C]$, embedding $[n, H]$ and environments; arguments as `predict`."""
        reader = self.prepare(data, batch)
        return reader.read(None if nodes is None else reader.data.rows(nodes))

    def _collect(
        self,
        data: GraphLike | Reader,
        nodes: NodeSet | None,
        batch: Column | None,
        value: Callable[[Prediction], np.ndarray],
    ) -> np.ndarray:
        """Return the values $[n, ...]$ of nodes; a graph store is predicted in parts."""
        reader = self.prepare(data, batch)
        rows = None if nodes is None else reader.data.rows(nodes)
        count = reader.data.num_nodes if rows is None else rows.numel()
        if not count:
            return value(reader.read(rows))
        found: np.ndarray | None = None
        for where, part in reader.parts(rows):
            values = value(part)
            if found is None:
                found = np.empty((count, *values.shape[1:]), values.dtype)
            found[where.numpy()] = values
        assert found is not None
        return found

    def predict(
        self,
        data: GraphLike | Reader,
        nodes: NodeSet | None = None,
        batch: Column | None = None,
        threshold: Threshold | None = None,
        calibrated: bool = False,
        as_frame: bool = False,
    ) -> Any:
        """Return the most likely class $[n]$ of each node.

        Args:
            data: The training graph or another one: a PyG `Data` with `x` $[N, D]$ and
                `edge_index`, the path of a graph, two tables `(nodes, edges)`, a networkx graph,
                the result of `canet.read_graph` or `prepare`, or a `GraphStore` or its path, which
                is predicted in parts and need not fit into memory.
            nodes: Mask $[N]$, row numbers $[n]$ from 0, or names $[n]$, which are strings. None:
                all nodes.
            batch: As in `fit`.
            threshold: For two classes: the probability of the class that is rarer in training from
                which a node is assigned to it. None: 0.5. `best`: the threshold with the best F1 of
                this class on the validation nodes.
            calibrated: Whether to use the calibrated probabilities of `predict_proba`.
            as_frame: Whether to return a pandas DataFrame: the ids of the nodes as index, and the
                columns `prediction` and `probability_CLASS` for each class.
        """

        def classes(probabilities: np.ndarray) -> np.ndarray:
            return self.calibration_.choose_classes(probabilities, threshold, calibrated)

        reader = self.prepare(data, batch)
        if not as_frame:
            chosen = self._collect(
                reader, nodes, None, lambda one: classes(self.probabilities(one.logits, calibrated))
            )
            self.warn_many(chosen, threshold, calibrated)
            return self.classes_[chosen]
        from pandas import DataFrame, Index

        probabilities = self.predict_proba(reader, nodes, calibrated=calibrated)
        chosen = classes(probabilities)
        self.warn_many(chosen, threshold, calibrated)
        rows = np.arange(reader.data.num_nodes) if nodes is None else reader.data.rows(nodes)
        ids = Index(reader.data.names(np.asarray(rows)), name="id")
        return DataFrame(self.columns_of(probabilities, chosen), index=ids)

    def columns_of(self, probabilities: np.ndarray, chosen: np.ndarray) -> dict[str, np.ndarray]:
        """Return predictions as columns, for probabilities $[n, C]$ and chosen class ids $[n]$."""
        shares = {f"probability_{c}": probabilities[:, i] for i, c in enumerate(self.classes_)}
        return {"prediction": self.classes_[chosen]} | shares

    def warn_many(self, chosen: np.ndarray, threshold: Threshold | None, calibrated: bool) -> None:
        """Warn if the rarer class is chosen $[n]$ for twice the share of the validation nodes."""
        if threshold is None or self.reference_ is None:
            return
        known = self.probabilities(self.reference_.valid_logits, calibrated)
        valid = self.calibration_.choose_classes(known, threshold, calibrated)
        rarer = self.calibration_.rarer()
        share, before = ((ids == rarer).sum() / max(1, len(ids)) for ids in (chosen, valid))
        if share * len(chosen) >= MIN_FLAGGED and share >= 2 * before:
            warn_user(
                f"with this threshold, {share:.1%} of the nodes get class "
                f"'{self.classes_[rarer]}', compared with {before:.1%} of the validation nodes: "
                "check the true class of some of these nodes before you use the threshold"
            )

    def predict_proba(
        self,
        data: GraphLike | Reader,
        nodes: NodeSet | None = None,
        batch: Column | None = None,
        calibrated: bool = False,
    ) -> np.ndarray:
        """Return the probability of each class $[n, C]$; arguments as `predict`.

        With `calibrated`, the logits are corrected first, so that on the validation nodes the
        probabilities agree with the frequencies: by a temperature and, if the model was trained
        with class weights or for another metric than accuracy, by a bias for each class.
        """

        return self._collect(
            data, nodes, batch, lambda found: self.probabilities(found.logits, calibrated)
        )

    def predict_log_proba(
        self,
        data: GraphLike | Reader,
        nodes: NodeSet | None = None,
        batch: Column | None = None,
        calibrated: bool = False,
    ) -> np.ndarray:
        """Return the logarithms of the probabilities $[n, C]$; arguments as `predict_proba`."""

        def values(found: Prediction) -> np.ndarray:
            return self._calibrated(found.logits, calibrated).log_softmax(dim=1).numpy()

        return self._collect(data, nodes, batch, values)

    def probabilities(self, logits: torch.Tensor, calibrated: bool = False) -> np.ndarray:
        """Return the probability of each class $[n, C]$ for logits $[n, C]$ of the model."""
        return self._calibrated(logits, calibrated).softmax(dim=1).numpy()

    def _calibrated(self, logits: torch.Tensor, calibrated: bool) -> torch.Tensor:
        logits = logits.double()
        return torch.from_numpy(self.calibration_.apply(logits.numpy())) if calibrated else logits

    def decision_function(
        self, data: GraphLike | Reader, nodes: NodeSet | None = None, batch: Column | None = None
    ) -> np.ndarray:
        """Return the logits $[n, C]$, or for two classes the difference of the logits $[n]$."""
        logits = self._collect(data, nodes, batch, lambda found: found.logits.double().numpy())
        return logits[:, 1] - logits[:, 0] if len(self.classes_) == 2 else logits

    def score(
        self, data: GraphLike | Reader, nodes: NodeSet | None = None, batch: Column | None = None
    ) -> float:
        """Return the metric, between 0 and 1, on the labelled nodes; arguments as `predict`.

        A label that did not occur in training counts as wrong. As in scikit-learn, each of these
        classes also counts in the mean of `macro_f1`.
        """
        reader = self.prepare(data, batch)
        return self._outcome(reader, nodes, self.metric).score(self.metric)

    def baseline(self, y: torch.Tensor) -> float:
        """Return the score of always answering the largest class, for class ids $[n]$ as labels."""
        same, margin = torch.full_like(y, self.data_["largest_class"]), torch.zeros(len(y))
        constant = Outcome(same, margin, y, len(self.classes_), self.calibration_.positive)
        return constant.score(self.metric)

    @property
    def baseline_name(self) -> str:
        """What `baseline` is the score of."""
        largest = self.classes_[self.data_["largest_class"]]
        return "a random order" if METRICS[self.metric].ranks else f"always answering '{largest}'"

    def labels(self, reader: Reader) -> torch.Tensor:
        """Return the class ids $[N]$ of the labels; -1 without a label, C and more if unseen."""
        return match_classes(reader.y, reader.data.num_nodes, self.classes_)

    def _outcome(self, reader: Reader, nodes: NodeSet | None, metric: str = "") -> Outcome:
        """Predict the labelled nodes, and check their labels for a metric."""
        y = self.labels(reader)
        rows = (y >= 0).nonzero().squeeze(1)
        if nodes is not None:
            rows = rows[torch.isin(rows, reader.data.rows(nodes))]
        if not rows.numel():
            raise InputError("none of the nodes has a label: a score needs labels, in data.y")
        if metric:
            check_scorable(metric, y[rows], len(self.classes_))
        logits = torch.from_numpy(self._collect(reader, rows, None, lambda f: f.logits.numpy()))
        margin = logits[:, -1] - logits[:, 0]
        rarer = self.calibration_.positive
        return Outcome(logits.argmax(dim=1), margin, y[rows], len(self.classes_), rarer)

    def recall_at_k(
        self,
        data: GraphLike | Reader,
        k: int,
        nodes: NodeSet | None = None,
        batch: Column | None = None,
    ) -> float:
        """Return the recall among the k nodes that most likely have the rarer of two classes.

        It is the share of the labelled nodes of this class that are among them. Nodes without a
        label are not ranked. Other arguments as `predict`.
        """
        reader, positive = self.prepare(data, batch), self.calibration_.rarer()
        outcome = self._outcome(reader, nodes)
        if not (outcome.y == positive).any():
            raise InputError("no labelled node has the rarer class: recall needs one")
        return outcome.recall_at_k(k)

    def environments(
        self, data: GraphLike | Reader, nodes: NodeSet | None = None, batch: Column | None = None
    ) -> list[np.ndarray]:
        """Return the posterior $[n, K]$ of the pseudo-environments of each layer of `canet`."""
        reader = self.prepare(data, batch)
        found = self.forward(reader, nodes)
        if not found.environments:
            raise InputError(
                f"method '{self.method_name}' infers no environments of this graph: use method "
                "'canet', and load a graph store with GraphStore(path).load()"
            )
        n = found.logits.shape[0]
        return [e.log_posterior[:n].exp().cpu().double().numpy() for e in found.environments]

    def embed(
        self, data: GraphLike | Reader, nodes: NodeSet | None = None, batch: Column | None = None
    ) -> np.ndarray:
        """Return the representation $[n, H]$ before the last layer; arguments as `predict`."""
        return self._collect(data, nodes, batch, lambda found: found.representation.numpy())

    def novelty_score(
        self, data: GraphLike | Reader, nodes: NodeSet | None = None, batch: Column | None = None
    ) -> np.ndarray:
        """Return how far each node $[n]$ is from the training nodes; arguments as `predict`.

        The score is the share of validation nodes that are closer to the training nodes, measured
        on the representations: about 0.5 on average without shift, 1 if a node is farther away than
        all validation nodes.
        """
        score = self.reference().novelty_score
        return self._collect(data, nodes, batch, lambda f: score(f.representation).numpy())

    def reference(self) -> Reference:
        """Return the sample of the training graph, or raise an error if it was not saved."""
        check_is_fitted(self)
        if self.reference_ is None:
            raise InputError(
                "the model was saved with keep_reference=False, without the sample of training "
                "nodes that novelty_score and diagnose compare with: save it with that sample"
            )
        return self.reference_
