"""`NodeClassifier`: a model for your graph, in the style of scikit-learn."""

from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import asdict, fields
from pathlib import Path
from time import time as now
from typing import Any, Self

import numpy as np
import torch
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted
from torch import Tensor

from canet.data.graph import is_graph
from canet.data.graph_files.encoding import Encoding
from canet.data.raw_graph import Column, GraphLike, NodeSet
from canet.data.task import ShiftTask
from canet.data.user_task import warn_scales
from canet.defaults import changed
from canet.errors import InputError, printable, unknown_name, warn_user
from canet.estimator.base import BaseClassifier
from canet.estimator.inputs import (
    check_parameters,
    class_weights,
    describe_data,
    graph_to_fit,
    how_to_read,
    planner,
    training_data,
)
from canet.estimator.progress import FitDisplay, fit_display
from canet.estimator.reference import Reference, build_reference
from canet.estimator.saving import load_classifier, save_classifier
from canet.estimator.summary import compared, leaderboard_rows, summary_of
from canet.methods import Backbone
from canet.methods.base import ModelSettings
from canet.models import (
    Fitted,
    MethodClass,
    Options,
    all_methods,
    describe_method,
    get_backbone_name,
    get_learner,
    is_network,
)
from canet.models.auto import AVERAGE
from canet.models.base import Reader
from canet.reading.prepared import PreparedGraph
from canet.scoring.metrics import METRICS
from canet.training import Callback
from canet.util.devices import pick_device
from canet.util.files import as_path
from canet.util.jobs import open_pool
from canet.util.seeds import checked_seed

NODES_PER_THREAD = 1_000
PATIENCE = 100
"""Default number of epochs without a better validation score after which training stops."""


class NodeClassifier(BaseClassifier):
    """Learns the classes of the nodes of a graph, and predicts them on the same or another graph.

    Args:
        method: `auto`, which compares linear models, trees and networks, and predicts with a
            weighted average of them; the name of a method, one of `canet.METHODS`; or a subclass
            of :class:`canet.methods.Method` or :class:`canet.models.Learner`.
        backbone: Name of a backbone, one of `canet.BACKBONES`, or a :class:`canet.nn.Backbone`.
            None: gcn. `auto` chooses the backbone itself.
        epochs: Number of training epochs. None: the default of the method.
        patience: Stop training after this number of epochs without a better validation score.
            0: train for all epochs.
        metric: The metric that selects the best epoch and that `score` returns: `accuracy`,
            `macro_f1`, or for two classes `roc_auc` or `average_precision` (of the rarer class).
        class_weight: Weights of the classes in the supervised loss, {class: weight}. `balanced`:
            inversely proportional to the class frequencies. None: equal weights.
        undirected: If True, each edge is used in both directions. If False, only in its own
            direction. None is like False, but warns if few edges have a reverse edge.
        preset: Models that `auto` compares: `robust` (linear models, trees and networks, the
            default), `fast` (without networks), or a list of presets and models, such as
            `["linear", "erm-sage"]`.
        time_limit: Seconds after which `auto` compares no more models. The first is always
            trained, and the chosen models are then scored, of a graph store that was too large for
            the limit on at most 10,000 nodes of each set. None: no limit.
        keep_on_interrupt: If True, Ctrl-C ends the comparison of `auto`, and `fit` continues with
            the models that are finished. If False, Ctrl-C raises `KeyboardInterrupt`.
        n_jobs: Number of processes in which `auto` trains; -1: one for each core.
        ray: Address of a Ray cluster on which `auto` trains, or `auto` for a running one.
        checkpoints: Folder for checkpoints. If `fit` is interrupted, the next call with the same
            folder continues. Delete it after saving the model.
        threads: CPU threads, on which the last bits of a model depend. None: one per 1,000 nodes,
            at most torch's default; one with `n_jobs`; on a GPU a quarter of it, in batches all.
        device: `auto` (a GPU if there is one), or a device of torch, such as `cpu` or `cuda:1`.
        random_state: Seed of training and of a random validation set.
        verbose: 1 shows a progress bar with the time left, 0 shows nothing.
        callbacks: Functions that are called after each epoch with a dict of `model` (its name),
            `seed`, `epoch`, `epochs`, `loss` and `valid` (the validation score). They need
            `n_jobs=1` and no Ray.
        **settings: Settings of the method, such as `hidden=32`; the command `canet methods NAME`
            lists them.

    Attributes:
        classes_: The labels of the training nodes $[C]$, in ascending order.
        n_features_in_: Number of feature columns D.
        feature_names_in_: Their names $[D]$, if the graph was read from tables.
        encoding_: How table columns become features; None for a graph of arrays.
        left_out_: Numbers of the columns of a PyG `Data` that were left out by `without`.
        fitted_: The trained model; of a network, `fitted_.method.model` is the torch module.
        settings_: All settings by name; for `auto` those that its models share.
        candidates_: The models that `auto` tried; see `leaderboard`.
        scores_: The metric, between 0 and 1, on `train`, `valid` and, if there is a test set,
            `test`.
        baselines_: The same scores, if every node got the largest class of the training nodes.
        history_: Loss and validation score of every epoch; empty for `auto`.
        selected_epoch_: The epoch with the best validation score, from 1; 0 for `auto`.
        environments_seen_: Names of the environments that the method used, or None.
        findings_: The columns that training shifted at random (setting `interventions`), or None.
        data_: Size and digest of the training data.
        both_ways_, array_names_: Directions of edges, and own names of arrays, in training.
        reference_: A sample of the training graph, for `novelty_score` and `canet.diagnose`; None
            if the model was saved with `keep_reference=False`.
        calibration_: Temperature, biases and threshold, fitted on the validation nodes,
            for `predict_proba(calibrated=True)` and `predict(threshold="best")`.
        diagnosis_: The text of the last `canet.diagnose` of this model, or None.
    """

    def __init__(
        self,
        method: str | MethodClass = "auto",
        backbone: str | Backbone | None = None,
        *,
        epochs: int | None = None,
        patience: int = PATIENCE,
        metric: str = "accuracy",
        class_weight: dict[Any, float] | str | None = None,
        undirected: bool | None = None,
        preset: str | Sequence[str] | None = None,
        time_limit: float | None = None,
        keep_on_interrupt: bool = False,
        n_jobs: int = 1,
        ray: str | None = None,
        checkpoints: str | Path | None = None,
        threads: int | None = None,
        device: str | torch.device = "auto",
        random_state: int | np.random.RandomState | None = 0,
        verbose: int = 0,
        callbacks: Sequence[Callback] | None = None,
        **settings: object,
    ) -> None:
        self.method = method
        self.backbone = backbone
        self.epochs = epochs
        self.patience = patience
        self.metric = metric
        self.class_weight = class_weight
        self.undirected = undirected
        self.preset = preset
        self.time_limit = time_limit
        self.keep_on_interrupt = keep_on_interrupt
        self.n_jobs = n_jobs
        self.ray = ray
        self.checkpoints = checkpoints
        self.threads = threads
        self.device = device
        self.random_state = random_state
        self.verbose = verbose
        self.callbacks = callbacks
        for name, value in settings.items():
            self._check_setting(name)
            setattr(self, name, value)

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """Return the parameters, with the settings that were passed."""
        return super().get_params(deep) | self._given_settings()

    def set_params(self, **params: Any) -> Self:
        """Set parameters and settings; an unknown name is an error."""
        self.method = params.get("method", self.method)
        for name in sorted(params.keys() - self._get_param_names()):
            self._check_setting(name)
        for name, value in params.items():
            setattr(self, name, value)
        return self

    def __sklearn_tags__(self) -> Any:
        """Return the tags of scikit-learn: the input is a graph, not a table."""
        tags = super().__sklearn_tags__()
        tags.input_tags.two_d_array = False
        tags.no_validation = True
        return tags

    def fit(
        self,
        data: GraphLike,
        edges: object = None,
        *,
        label: str | None = None,
        train: NodeSet | None = None,
        valid: NodeSet | None = None,
        environment: Column | str | None = None,
        time: Column | str | None = None,
        sample_weight: Column | str | None = None,
        batch: Column | None = None,
        warm_start: "NodeClassifier | None" = None,
        **columns: Any,
    ) -> Self:
        """Train on a graph, which is not changed.

        Arguments that are not passed are read from `train_mask`, `val_mask`, `environment`, `time`
        and `batch` of the graph. Nodes in `test_mask` are scored, but not used in training. Nodes
        without a label (-1, NaN, None) stay in the graph, but are neither trained on nor scored.
        Without a validation set, a fifth of the training nodes is held out: the latest nodes if
        there are times, otherwise a random sample of each class.

        Args:
            data: A PyG `Data` with `x` $[N, D]$, `edge_index`, `y` $[N]$ (integers or strings) and
                possibly `edge_weight` $[E]$; a folder, file, table of nodes or networkx graph, as
                for `canet.read_graph`; or a `canet.GraphStore` or its path. A graph store stays on
                disk if it does not fit into memory, or if `batch_size` or `fanout` is set.
            edges: The table of edges, if `data` is a table of nodes.
            label: Column with the classes, if `data` is not a PyG `Data`.
            train, valid: Masks $[N]$, row numbers, or names (strings). By default all labelled
                nodes are for training.
            environment: Environment of each node $[N]$, integers or strings, or its column.
            time: Time of each node $[N]$, numbers or dates, or its column.
            sample_weight: Weight of each node $[N]$ in the supervised loss, or its column. Only the
                ratios matter.
            batch: Number or name of the graph of each node $[N]$, if `data` has several graphs.
            warm_start: A fitted model, possibly this object, whose training continues on this
                graph. It must have the same method, backbone, sizes and classes. `auto` does not
                compare models again: the weights of its average stay the same, networks continue,
                and linear models and trees are trained again.
            **columns: Further arguments of `canet.read_graph`, such as `id` and `without`. For a
                PyG `Data`, only `without`: the numbers of columns to leave out, in every graph.
        """
        begin, columns = now(), columns | ({"label": label} if label is not None else {})
        arrays = dict[str, Any](environment=environment, time=time, sample_weight=sample_weight)
        for role, given in arrays.items():
            if isinstance(given, str):
                columns[role], arrays[role] = given, None
        arrays |= {"edges": edges, "train": train, "valid": valid, "batch": batch}
        if "without" in columns and is_graph(data) and data.get("encoding") is None:
            arrays["without"] = np.atleast_1d(columns.pop("without"))
        settings = self._settings()
        if warm_start is not None:
            self._check_earlier(warm_start)
        decide = planner(vars(self), settings)
        opened, plan = graph_to_fit(data, columns, arrays, decide, self.undirected, warm_start)
        seed = self._seed()
        with fit_display("checking", quiet=not self.verbose) as display:
            user, left_out = training_data(self, opened, arrays, seed, warm_start)
            task, plan = user.task, plan or decide(user.task.data)
            settings = plan.settings_for(task.train.numel())
            display.say(plan.reason)
            weights = class_weights(self.class_weight, user.classes, task.y[task.train])
            if settings.reads_raw and "encoding" not in opened:
                warn_scales(task)
            display.stage("training")
            fitted = self._train(task, settings, weights, seed, display, warm_start, begin)
            result = fitted.result
            assert result is not None
            display.stage("scoring")
            reader = Reader(fitted, PreparedGraph.of(task.data))
            reference = build_reference(task, reader, seed, opened.get("node_id"))
        self.classes_ = user.classes
        self.n_features_in_, self.left_out_ = task.num_features, left_out
        self.fitted_ = fitted
        self.settings_ = asdict(settings)
        self.candidates_ = result.candidates
        names = {"train": "train", "valid": "valid", "test_id": "test"}
        self.scores_ = {names[split]: score for split, score in result.scores.items()}
        self.history_, self.selected_epoch_ = dict(fitted.training.history), result.selected_epoch
        self.environments_seen_, self.findings_ = result.environments_seen, result.findings
        self._set_encoding(opened.get("encoding"))
        source = opened.get("source")
        self._reported = source.options.reported if source else set()
        self.data_ = describe_data(task, seed)
        self.both_ways_, self.array_names_ = how_to_read(opened, self.undirected)
        self.calibration_ = reference.calibrate(self.metric, weights is not None)
        y, sets = task.y, task.splits().items()
        self.baselines_ = {names[split]: self.baseline(y[nodes]) for split, nodes in sets}
        self.reference_: Reference | None = reference
        self.diagnosis_: str | None = None
        self._warn_scores(reference)
        return self

    def leaderboard(self) -> Any:
        """Return the models that `auto` compared, the best first.

        The result is a pandas DataFrame with one row per model or, if pandas is not installed, a
        list with one dict per model. `weight` is the weight of a model in the average, 0 if it is
        not used. It depends on the `likelihood`: the mean logarithm of the probability of the
        right class, over the validation nodes and each held-out part. `validation` and `held_out`
        are scores between 0 and 1, and so is one column for each held-out part. `seconds` is the
        time of all trainings. A `note` is a remark, such as why a model has no scores. The last
        rows: the average, the model with the largest weight, always answering the largest class.
        """
        rows = self.leaderboard_rows()
        try:
            import pandas
        except ModuleNotFoundError:
            return rows
        return pandas.DataFrame(rows)

    def leaderboard_rows(self) -> list[dict[str, Any]]:
        """Return the leaderboard as a list with one dict per model."""
        check_is_fitted(self)
        return leaderboard_rows(self.candidates_)

    def summary(self) -> str:
        """Return in a few sentences what was chosen, why, and how sure that is."""
        check_is_fitted(self)
        return printable(summary_of(self))

    def save(self, path: str | Path, keep_reference: bool = True, overwrite: bool = False) -> None:
        """Write the model to a folder, for `NodeClassifier.load`. The files are not pickles.

        The folder contains `model.json` (parameters, settings, classes, names and encoding of the
        columns, scores), `weights-*.safetensors`, `reference-*.safetensors` and `MODEL_CARD.md`, a
        summary for people. The encoding includes the categories of text columns.

        Args:
            path: The folder.
            keep_reference: Whether to store up to 5,000 training nodes (features, labels,
                representations) that `novelty_score` and `canet.diagnose` need. Pass False if
                training rows must not leave your machine.
            overwrite: Whether to replace a model that is already in the folder.
        """
        check_is_fitted(self)
        save_classifier(self, as_path(path), keep_reference, overwrite)

    @classmethod
    def load(
        cls,
        path: str | Path,
        device: str | torch.device | None = None,
        method: MethodClass | None = None,
    ) -> Self:
        """Load a model from a folder; see `canet.load`."""
        return load_classifier(cls, as_path(path), device, method)

    def _check_earlier(self, earlier: object) -> None:
        """Reject an earlier model that the training of this one cannot continue."""
        if not isinstance(earlier, NodeClassifier) or not hasattr(earlier, "classes_"):
            raise InputError(
                "warm_start must be a fitted NodeClassifier, such as canet.load(folder)"
            )
        names = [(one.method_name, one.backbone_name) for one in (earlier, self)]
        if names[0] != names[1]:
            was, now = ("-".join(dict.fromkeys(pair)) for pair in names)
            raise InputError(
                f"warm_start is a model of {was}, but this one is {now}: use the same method and "
                "backbone, for example model = canet.load(folder); model.fit(data, "
                "warm_start=model)"
            )

    def _settings(self) -> ModelSettings:
        """Return the checked settings: defaults of the method with some changes."""
        changes = self._given_settings()
        declared = {one.name for one in fields(describe_method(self.method).settings_type)}
        if "patience" in declared or self.patience != PATIENCE:
            changes["patience"] = self.patience
        changes |= {} if self.epochs is None else {"epochs": self.epochs}
        check_parameters(vars(self))
        get_backbone_name(self.method, self.backbone)
        choice = {n: v for n in ("preset", "time_limit") if (v := getattr(self, n)) is not None}
        if self.compares_models and self.callbacks and (self.n_jobs != 1 or self.ray):
            raise InputError("callbacks need n_jobs=1 and no Ray: they are called in this process")
        return changed(self.method, changes | choice)

    def _train(
        self,
        task: ShiftTask,
        settings: ModelSettings,
        weights: Tensor | None,
        seed: int,
        display: FitDisplay,
        earlier: "NodeClassifier | None",
        begin: float,
    ) -> Fitted:
        """Train, or continue the training of an `earlier` model; time limits count from `begin`."""
        pool = open_pool(self.n_jobs, self.ray, str(self.device)) if self.compares_models else None
        threads = torch.get_num_threads()
        if pick_device(self.device).type != "cuda":
            threads = max(1, min(threads, task.num_nodes // NODES_PER_THREAD))
        elif not settings.in_batches:  # other processes use the other cores
            threads = max(1, threads // 4)
        with pool or nullcontext():
            options = Options(
                self.device,
                class_weight=weights,
                threads=self.threads or (1 if pool else threads),
                callbacks=self.callbacks or (),
                pool=pool,
                begin=begin,
                keep_on_interrupt=self.keep_on_interrupt,
            )
            learner = get_learner(self.method, self.backbone, settings, options)
            unit = "epoch" if is_network(self.method) else "step"
            report = display.training_callback(learner.name, unit=unit)
            initial, folder = None if earlier is None else earlier.fitted_, None
            if self.checkpoints is not None and initial is None:
                folder = Path(self.checkpoints) / learner.config(task, seed).name / f"seed-{seed}"
            (fitted,) = learner.run(task, {seed: folder}, initial=initial, on_progress=report)
            fitted.predicted = None  # only the scores needed them
            return fitted

    def _warn_scores(self, reference: Reference) -> None:
        """Warn if the model is not better than the largest class, or too good to be true."""
        predicted = reference.valid_logits.argmax(dim=1).unique()
        score, share, problem = self.scores_["valid"], self.baselines_["valid"], ""
        if predicted.numel() == 1:
            only = self.classes_[int(predicted)]
            problem = f"the model predicts '{only}' for all validation nodes"
        elif self.metric == "accuracy" and score <= share:
            problem = f"the validation accuracy is {compared(score, share, self.baseline_name)}"
        other = "'macro_f1'" if len(self.classes_) > 2 else "'roc_auc' or 'average_precision'"
        fix = f"use metric={other} (--metric) and class_weight='balanced' (--balanced)"
        if METRICS[self.metric].ranks:  # does not depend on the predicted classes
            fix = "use predict(threshold='best') (--threshold best), or predict_proba"
        if problem:
            warn_user(f"{problem}: to find nodes of rare classes, {fix}")
        shifts = {one.name: one.shifts for one in self.candidates_}.get(AVERAGE)
        if shifts and min(score, *shifts.values()) == 1:
            warn_user(
                "the score is 100 % on the validation nodes and on all held-out parts: check that "
                "no column is known only after the label, and leave such columns out"
            )

    def _set_encoding(self, encoding: Encoding | None) -> None:
        self.encoding_ = encoding
        self.__dict__.pop("feature_names_in_", None)
        if encoding is not None:
            self.feature_names_in_ = np.array(encoding.names, dtype=object)

    def _seed(self) -> int:
        if self.random_state is None or isinstance(self.random_state, np.random.RandomState):
            return int(check_random_state(self.random_state).randint(2**31))
        return checked_seed(self.random_state, "random_state")

    def _setting_names(self) -> list[str]:
        """Return the names of all settings that are not parameters."""
        given = [self.method] if hasattr(self.method, "settings_type") else []
        methods = [*all_methods().values(), *given]
        names = {one.name for method in methods for one in fields(method.settings_type)}
        return sorted(names - set(NodeClassifier._get_param_names()))

    def _given_settings(self) -> dict[str, Any]:
        return {name: vars(self)[name] for name in self._setting_names() if name in vars(self)}

    def _check_setting(self, name: str) -> None:
        names = self._setting_names()
        if name not in names:
            raise unknown_name("parameter", name, [*self._get_param_names(), *names])


def load(
    path: str | Path, device: str | torch.device | None = None, method: MethodClass | None = None
) -> NodeClassifier:
    """Load a model from the folder that `NodeClassifier.save` or `canet fit` wrote.

    Args:
        path: The folder.
        device: `auto`, or a device of torch. None: the device of training, or the CPU if this
            machine does not have it.
        method: The class of the method, if it is your own and not registered.

    Raises:
        ChecksumError: The content of a file has changed.
        MissingFileError: The folder has no model, or a file is missing.
        VersionError: The model needs another version of canet.
    """
    return NodeClassifier.load(path, device, method)
