"""A model for your graph, in scikit-learn's shape: fit, predict, save, load."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import numpy as np
import torch
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted
from torch import Tensor

from canet.choice import Ensemble, EnsembleReader, Reader
from canet.data.checks import check_features, check_nodes
from canet.data.user_graph import match_classes, user_task, warn_one_way
from canet.errors import InputError, unknown_name
from canet.estimator.column_screen import ColumnScreen, screen_columns
from canet.estimator.fitting import class_weights, settings_of, train_model
from canet.estimator.reference import build_reference
from canet.estimator.saving import load_classifier, save_classifier
from canet.methods import METHODS, Auto
from canet.nn.model import Prediction
from canet.settings import describe_settings
from canet.training import METRICS
from canet.training.inference import GraphReader
from canet.training.prepared import PreparedGraph, prepare_graph
from canet.util.progress import fit_display
from canet.util.seeds import checked_seed

if TYPE_CHECKING:
    from canet.data.graph_files.encoding import Encoding


class NodeClassifier(ClassifierMixin, BaseEstimator):
    """Learns the classes of a graph's nodes, and predicts those of this graph or another.

    Args:
        method: `auto`, which tries several models and averages those that do best on parts of the
            training data that were held out; or the name of a method, see `canet methods`.
        backbone: Name of a backbone, see `canet backbones`; gcn where None. `auto` chooses it.
        epochs: Passes over the training nodes; the method's default where None.
        preset: How many models `auto` tries: `fast`, `robust` or `best`.
        time_limit: Seconds after which `auto` tries no further model; None: no limit.
        n_jobs: Trainings of `auto` at a time, in processes.
        ray: Address of a Ray cluster that trains for `auto`, or `auto` for the one that runs here.
        checkpoints: Folder where `auto` keeps what it has trained: a fit that was stopped continues
            there. Remove it when the model is saved. None: nothing is kept.
        metric: What the epoch is selected by, and `score` computes: `accuracy`, `macro_f1`, or
            `roc_auc` for two classes.
        class_weight: Weights of the classes in the supervised loss, {class: weight}; `balanced` is
            inversely as they are frequent; None: all the same.
        undirected: Whether each edge is read both ways (True) or as given (False); None is as
            given, with a warning if hardly any edge has its reverse.
        device: `auto` (a GPU where there is one), `cpu` or `cuda`.
        random_state: Seed of the validation set, where one is made, and of training.
        verbose: 1 shows progress, 0 nothing.
        **settings: The method's settings by the names that `canet methods` shows, such as
            `hidden=32` or `tau=2`.

    After fit:
        - `classes_` $[C]$, ascending: the labels of the training nodes
        - `n_features_in_`, D; `feature_names_in_` $[D]$ and `encoding_` for a graph from tables
        - `method_`: the trained method, whose `model` is the network; for `auto` an ensemble
        - `settings_`: all settings, by name
        - `candidates_`: what `auto` has tried, in the order of training; `leaderboard` shows it
        - `scores_`: `train`, `valid`, and `test` where there is a test set, between 0 and 1
        - `history_`: loss and validation score of every epoch; `selected_epoch_`, from 1. For
          `auto` they are empty and 0
        - `environments_seen_`: names of the environments that the method was given, or None
        - `findings_`: the columns that interventions shift, where there are any
        - `reference_`: the sample of the training graph that `novelty_score` compares with
    """

    def __init__(
        self,
        method: str = "auto",
        backbone: str | None = None,
        *,
        epochs: int | None = None,
        metric: str = "accuracy",
        class_weight: dict[Any, float] | str | None = None,
        undirected: bool | None = None,
        preset: str = "robust",
        time_limit: float | None = None,
        n_jobs: int = 1,
        ray: str | None = None,
        checkpoints: str | Path | None = None,
        device: str = "auto",
        random_state: int | np.random.RandomState | None = 0,
        verbose: int = 1,
        **settings: Any,
    ) -> None:
        self.method = method
        self.backbone = backbone
        self.epochs = epochs
        self.metric = metric
        self.class_weight = class_weight
        self.undirected = undirected
        self.preset = preset
        self.time_limit = time_limit
        self.n_jobs = n_jobs
        self.ray = ray
        self.checkpoints = checkpoints
        self.device = device
        self.random_state = random_state
        self.verbose = verbose
        for name, value in settings.items():
            self._check_setting(name)
            setattr(self, name, value)

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """The parameters, and the settings that were given."""
        return super().get_params(deep) | self._given_settings()

    def set_params(self, **params: Any) -> Self:
        """Change parameters and settings; an unknown name is an error that suggests the nearest."""
        own = self._get_param_names()
        for name in params:
            if name not in own:
                self._check_setting(name)
        for name, value in params.items():
            setattr(self, name, value)
        return self

    def __sklearn_tags__(self) -> Any:
        """What scikit-learn should know: the input is a graph, not a table."""
        tags = super().__sklearn_tags__()
        tags.input_tags.two_d_array = False
        tags.no_validation = True
        return tags

    def fit(
        self,
        data: Any,
        train: Any = None,
        valid: Any = None,
        environment: Any = None,
        time: Any = None,
        graph: Any = None,
    ) -> Self:
        """Train on a PyG `Data` with `x`, `edge_index` and `y`, which is left unchanged.

        What is not given is taken from the graph's own `train_mask`, `val_mask`, `environment`,
        `time` and `batch`; nodes of its `test_mask` are scored and not learned from. Nodes without
        label (-1, NaN, None) are part of the graph and of no set. Without a validation set, or with
        a `val_mask` of no node, one is made of a fifth of the training nodes: the latest where
        there are times, else at random, the same share of each class.

        Args:
            data: The graph. `x` $[N, D]$ is dense or sparse, `y` $[N]$ integers or strings.
            train, valid: Masks $[N]$ or node ids; all labelled nodes where there are none.
            environment: Integers or strings $[N]$, for methods that need them.
            time: Numbers or dates $[N]$.
            graph: Number or name $[N]$ of each node's graph, where several come in one.
        """
        settings = settings_of(self, self._given_settings())
        seed = self._seed()
        with fit_display("checking", quiet=not self.verbose) as display:
            prepared = prepare_graph(data, graph, bool(self.undirected))
            if self.undirected is None:
                warn_one_way(prepared.own.edge_index)
            given = (train, valid, environment, time)
            own = user_task(data, *given, metric=self.metric, seed=seed, checked=prepared.own)
            task = own.task
            weights = class_weights(self.class_weight, own.classes, task.data.y[task.train])
            display.stage("training")
            run = train_model(self, task, settings, weights, seed, display, prepared)
            display.stage("scoring")
            reader = self._reader(run.method.eval(), prepared)
            reference = build_reference(task, reader, seed, data.get("node_id"))
        self.classes_ = own.classes
        self.n_features_in_ = task.num_features
        self.method_ = run.method
        self.settings_ = asdict(settings)
        self.candidates_ = run.result.candidates
        names = {"train": "train", "valid": "valid", "test_id": "test"}
        self.scores_ = {names[k]: score for k, score in run.result.scores.items()}
        self.history_ = run.history
        self.selected_epoch_ = run.result.selected_epoch
        self.environments_seen_ = run.result.environments_seen
        self.findings_ = run.result.findings
        self._set_encoding(data.get("encoding"))
        self.reference_ = reference
        return self

    @property
    def backbone_name(self) -> str:
        """The backbone: `backbone`, or what None stands for."""
        return self.backbone or (Auto.name if self.method == Auto.name else "gcn")

    def leaderboard(self) -> list[dict[str, Any]]:
        """What `auto` has tried, the best first: a row for each model, such as for a pandas table.

        `rating` is what models are chosen by: the mean of `validation` and of the mean score on the
        parts that were held out, which come next. All scores are between 0 and 1. `weight` is a
        model's share in the average that predicts.
        """
        check_is_fitted(self)
        return [
            {
                "model": one.name,
                "rating": one.rating,
                "validation": one.validation,
                **one.shifts,
                "weight": one.weight,
                "seconds": one.seconds,
            }
            for one in sorted(self.candidates_, key=lambda one: -one.rating)
        ]

    def prepare(self, data: Any, graph: Any = None) -> Reader:
        """Check and normalise a graph once, to pass it in place of `data` to several calls."""
        check_is_fitted(self)
        if isinstance(data, GraphReader | EnsembleReader):
            if data.method is not self.method_:
                raise InputError("the graph was prepared by another model: prepare it with this")
            return data
        prepared = prepare_graph(data, graph, bool(self.undirected))
        own = prepared.own
        given = data.get("encoding")
        if given is not None and given != self.encoding_:
            fix = "read it with canet.read_graph(…, encoding=model.encoding_)"
            if self.encoding_ is None:
                fix = "the model was trained on arrays, so give it arrays with the same columns"
            raise InputError(f"columns were encoded differently in training: {fix}")
        if own.x.shape[1] != self.n_features_in_:
            raise InputError(
                f"X has {own.x.shape[1]} features, but {type(self).__name__} is expecting "
                f"{self.n_features_in_} features as input: give the same columns in the same order"
            )
        return self._reader(self.method_, prepared, data.get("y"))

    def forward(self, data: Any, nodes: Any = None, graph: Any = None) -> Prediction:
        """Logits $[n, C]$, embedding $[n, H]$ and environments of one pass; as `predict`."""
        reader = self.prepare(data, graph)
        ids = None if nodes is None else check_nodes(nodes, reader.own.num_nodes, "nodes")
        return reader.read(ids)

    def predict(self, data: Any, nodes: Any = None, graph: Any = None) -> np.ndarray:
        """The likeliest class $[n]$ of each node, or of some: of the training graph or another.

        Args:
            data: A PyG `Data` with `x` $[N, D]$ and `edge_index`, or what `prepare` returned.
            nodes: Mask $[N]$ or ids $[n]$ of the nodes to predict; all where None.
            graph: As in `fit`.
        """
        logits = self.forward(data, nodes, graph).logits
        return self.classes_[logits.argmax(dim=1).numpy()]

    def predict_proba(self, data: Any, nodes: Any = None, graph: Any = None) -> np.ndarray:
        """Probability $[n, C]$ of each of `classes_`; arguments as `predict`."""
        return probabilities_of(self.forward(data, nodes, graph).logits)

    def predictor(self, data: Any, graph: Any = None) -> Callable[[Any], np.ndarray]:
        """`predict_proba` as a function of the features alone, for one graph.

        What depends on the edges is computed once, so that many changes of `x` $[N, D]$ are quick.
        """
        reader = self.prepare(data, graph)
        return lambda x: probabilities_of(reader.read(x=check_features(x)).logits)

    def decision_function(self, data: Any, nodes: Any = None, graph: Any = None) -> np.ndarray:
        """Logits $[n, C]$; of two classes the second's less the first's $[n]$."""
        logits: np.ndarray = self.forward(data, nodes, graph).logits.double().numpy()
        return logits[:, 1] - logits[:, 0] if len(self.classes_) == 2 else logits

    def score(self, data: Any, nodes: Any = None, graph: Any = None) -> float:
        """The metric, between 0 and 1, on the labelled nodes of a graph, or on some of them.

        A label that was not in training counts as wrong.
        """
        reader = self.prepare(data, graph)
        if reader.y is None:
            raise InputError("y is missing: scoring needs labels")
        y, known = match_classes(reader.y, reader.own.num_nodes, self.classes_)
        chosen = torch.from_numpy(known)
        if nodes is not None:
            among = torch.zeros_like(chosen)
            among[check_nodes(nodes, reader.own.num_nodes, "nodes")] = True
            chosen &= among
        ids = chosen.nonzero().squeeze(1)
        if not ids.numel():
            raise InputError("no node has a label to score against: put the labels into data.y")
        logits, y = reader.read(ids).logits, y[ids]
        if (y < 0).any():
            if self.metric == "roc_auc":
                raise InputError("roc_auc is for the two classes of training: y has another one")
            logits = torch.nn.functional.pad(logits, (0, 1), value=-torch.inf)
            y = torch.where(y < 0, logits.shape[1] - 1, y)
        return float(METRICS[self.metric](logits, y))

    def environments(self, data: Any, nodes: Any = None, graph: Any = None) -> list[np.ndarray]:
        """Posterior $[n, K]$ of the pseudo environments at each layer; arguments as `predict`."""
        found = self.forward(data, nodes, graph)
        if not found.environments:
            raise InputError(f"method '{self.method}' infers no environments: method 'canet' does")
        n = found.logits.shape[0]
        return [e.log_posterior[:n].exp().cpu().double().numpy() for e in found.environments]

    def embed(self, data: Any, nodes: Any = None, graph: Any = None) -> np.ndarray:
        """Representation $[n, H]$ that the last linear map reads; arguments as `predict`."""
        return self.forward(data, nodes, graph).embedding.numpy()

    def novelty_score(self, data: Any, nodes: Any = None, graph: Any = None) -> np.ndarray:
        """How unlike the training nodes each node is $[n]$; arguments as `predict`.

        The share of validation nodes that are nearer to training nodes than it is, by their
        representations: 0.5 is the usual, 1 further than all.
        """
        embedding = self.forward(data, nodes, graph).embedding
        return self.reference_.novelty_score(embedding).numpy()

    def column_screen(self) -> ColumnScreen | None:
        """Which columns shift between groups of training nodes, computed from the sample of them.

        None where nodes or columns are too few.
        """
        check_is_fitted(self)
        there, encoding = self.reference_, self.encoding_
        source = None if encoding is None else encoding.sources
        settings = getattr(self.method_, "settings", None)
        return screen_columns(there.x, there.y, there.environment, settings, source)

    def save(self, path: str | Path) -> None:
        """Write the model to a folder, for `canet.load`: JSON and safetensors, no pickle."""
        check_is_fitted(self)
        save_classifier(self, Path(path))

    @staticmethod
    def _reader(method: Any, prepared: PreparedGraph, y: Any = None) -> Reader:
        several = isinstance(method, Ensemble)
        return (EnsembleReader if several else GraphReader)(method, prepared, y)

    def _set_encoding(self, encoding: Encoding | None) -> None:
        self.encoding_ = encoding
        if encoding is not None:
            self.feature_names_in_ = np.array(encoding.names, dtype=object)
        elif hasattr(self, "feature_names_in_"):
            del self.feature_names_in_

    def _seed(self) -> int:
        if self.random_state is None or isinstance(self.random_state, np.random.RandomState):
            return int(check_random_state(self.random_state).randint(2**31))
        return checked_seed(self.random_state, "random_state")

    def _given_settings(self) -> dict[str, Any]:
        names = sorted(_setting_names())
        return {name: getattr(self, name) for name in names if name in vars(self)}

    @staticmethod
    def _check_setting(name: str) -> None:
        if name not in _setting_names():
            known = [*NodeClassifier._get_param_names(), *sorted(_setting_names())]
            raise InputError(str(unknown_name("parameter", name, known)))


def probabilities_of(logits: Tensor) -> np.ndarray:
    """Probability $[n, C]$ of each class for logits $[n, C]$."""
    return logits.double().softmax(dim=1).numpy()


def load(path: str | Path, device: str | None = None) -> NodeClassifier:
    """The model that `NodeClassifier.save`, or `canet fit`, wrote to a folder.

    Args:
        path: The folder.
        device: Where to compute, `auto`, `cpu` or `cuda`; where None as when it was saved, or a
            CPU where its GPU is missing.

    Raises:
        ChecksumError: A file is not what was written.
        MissingFileError: There is no model, or one of its files is missing.
        VersionError: Another version wrote it, with names that this one does not know.
    """
    return load_classifier(NodeClassifier, Path(path), device)


def _setting_names() -> set[str]:
    """Names of all methods' settings, but for those that are parameters."""
    every = {name for m in METHODS.values() for name in describe_settings(m.settings_type)}
    return every - set(BaseEstimator._get_param_names.__func__(NodeClassifier))
