"""A graph neural network with its training method."""

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import nullcontext
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any, Self

import numpy as np
import torch
from torch import Tensor

from canet.data.task import ShiftTask
from canet.errors import CanetError, InputError
from canet.methods import Backbone, Method, Settings, get_backbone, get_method
from canet.methods.base import ModelSettings
from canet.models.base import Fitted, Learner, State, Training, entry
from canet.models.options import Options
from canet.models.replacing import Replacing, product, replacing_in
from canet.nn.model import Prediction
from canet.reading.pieces import Piece
from canet.reading.predict import GraphFields
from canet.reading.prepared import PreparedGraph
from canet.settings import override
from canet.store.run_folder import RunFolder
from canet.training.environments import inferred_environments
from canet.training.epochs import epochs_of
from canet.training.fields import TaskFields
from canet.training.loop import EpochReport, Loop, Progress, set_up_kernels, train_loops
from canet.training.start import fanout_of, load_initial, resume, share_state
from canet.util import distributed
from canet.util.sparse import Matrix, from_matrix, to_matrix
from canet.util.torch_state import fast_products, seeded

SECONDS_TO_MEASURE = 5.0  # of a training before it is estimated when it ends
SELECTION = "best validation"
"""The rule of the paper: the first epoch with the best validation score."""


class FittedNetwork(Fitted):
    """A trained method on any graph.

    Args:
        method: The trained method, whose `model` is the network.
        backbone: Name of its backbone.
    """

    kind = "network"
    in_parts = True
    sizes: tuple[int, int]

    def __init__(self, method: Method, backbone: str) -> None:
        self.method, self.backbone = method.eval(), backbone
        self.sizes = method.model.phi_in.in_features, method.model.phi_out.out_features
        self.num_hops = method.model.num_layers

    def read(self, graph: PreparedGraph, nodes: Tensor | None = None) -> Prediction:
        """As `Fitted.read`; for some nodes, only their receptive field is computed.

        A graph on disk is predicted in pieces, without environments.
        """
        parts = self.parts(graph, nodes)
        if not graph.in_pieces:
            return next(parts)[1]
        count = graph.data.num_nodes if nodes is None else nodes.numel()
        classes, width = self.method.model.phi_out.weight.shape
        logits, embedding = (torch.empty(count, m, dtype=torch.float) for m in (classes, width))
        for rows, found in parts:
            logits[rows], embedding[rows] = found.logits, found.representation
        return Prediction(logits, embedding)

    def parts(self, graph: PreparedGraph, nodes: Tensor | None = None) -> Iterator[Piece]:
        model, device = self.method.model, self.method.model.phi_out.weight.device
        sizes, scaling = (model.operators, model.num_layers), self.method.settings.scaling
        fields = GraphFields(graph, *sizes, device, scaling, is_kept=False)
        for rows, found in fields.predict(model, nodes):
            logits, embedding = found.logits.cpu(), found.representation.cpu()
            yield rows, Prediction(logits, embedding, found.environments)

    def replacing(self, graph: PreparedGraph, nodes: Tensor) -> Replacing:
        """As `Fitted.replacing`; the first map is linear, so only changed columns are mapped."""
        scaling = self.method.settings.scaling
        if scaling == "rows":  # each number depends on all columns
            return super().replacing(graph, nodes)
        model = self.method.model.reading_products()
        weight = model.phi_in.weight.detach()
        blocks_of = graph.normalised(model.operators).receptive_field

        @torch.no_grad()
        def read(products: np.ndarray) -> Tensor:
            field = blocks_of(nodes, model.num_layers)
            rows = torch.from_numpy(products[field.nodes.numpy()])
            return model(rows.to(weight.device), field.to(weight.device).blocks).logits.cpu()

        def share(values: Matrix, columns: np.ndarray) -> np.ndarray:
            scaled = graph.with_features(from_matrix(values)).features(scaling)
            return product(scaled, first[columns])

        first = weight.cpu().numpy().T
        whole = product(graph.features(scaling), first)
        return replacing_in(to_matrix(graph.data.x), whole, share, read)

    def logits(self, task: ShiftTask) -> dict[str, Tensor]:
        """As `Fitted.logits`; a network that was trained in batches is scored as in training."""
        fields = fields_of(self.method, task, self.method.model.phi_out.weight.device)
        return {split: found.cpu() for split, (found, _) in fields.logits(self.method).items()}

    def state(self) -> State:
        about = {
            "kind": self.kind,
            "method": self.method.name,
            "backbone": self.backbone,
            "settings": asdict(self.method.settings),
            "num_features": self.sizes[0],
            "num_classes": self.sizes[1],
            "num_environment_labels": self.method.num_environment_labels,
        }
        return about, self.method.state_dict()

    @classmethod
    def restore(cls, about: Mapping[str, Any], tensors: Mapping[str, Tensor]) -> Self:
        method_type = get_method(entry(about, "method", str | type))
        settings = override(method_type.settings_type(), entry(about, "settings", dict))
        backbone = get_backbone(entry(about, "backbone", str))
        names = ("num_features", "num_classes", "num_environment_labels")
        sizes = [entry(about, name, int) for name in names]
        mismatch = CanetError(
            f"the weights do not match the settings of {method_type.name}-{backbone.name}"
        )
        weights = sum(tensor.numel() for tensor in tensors.values())
        if not (0 < min(sizes[:2]) <= max(sizes) <= weights and sizes[2] >= 0):
            raise mismatch
        with torch.device("meta"):
            method = method_type(settings, backbone, *sizes)
        own, saved = (
            {name: (tensor.dtype, tensor.shape) for name, tensor in state.items()}
            for state in (method.state_dict(), tensors)
        )
        if own != saved:
            raise mismatch
        method.load_state_dict(dict(tensors), assign=True)
        return cls(method, backbone.name)

    def learner(self, shared: Settings, options: Options) -> Learner:
        times = {"epochs": shared.epochs, "patience": shared.patience}
        return Network(
            type(self.method), self.backbone, replace(self.method.settings, **times), options
        )

    def to(self, device: torch.device) -> Self:
        self.method.to(device)
        return self


def fields_of(method: Method, task: ShiftTask, device: torch.device) -> TaskFields:
    """Return the batches of a task for a method, which may be on the device `meta`."""
    model, settings = method.model, method.settings
    sizes, in_batches = (model.operators, model.num_layers), fanout_of(settings, task) is not None
    return TaskFields(task, *sizes, device, settings.scaling, in_batches)


class Network(Learner):
    """Trains a network with a method.

    Args:
        method: Name of a method, or a subclass of :class:`canet.methods.Method`.
        backbone: Name of a backbone, or a :class:`canet.nn.Backbone`.
        settings: Settings of the method; None: its defaults.
        options: How to train.
    """

    settings: Settings
    has_epochs = True

    def __init__(
        self,
        method: str | type[Method],
        backbone: str | Backbone = "gcn",
        settings: ModelSettings | None = None,
        options: Options | None = None,
    ) -> None:
        self.method_type, self.backbone = get_method(method), get_backbone(backbone)
        self.name, self.traits = "-".join(self.names), self.method_type.traits
        self.settings_type = self.method_type.settings_type
        super().__init__(settings, options)
        self._fields: tuple[ShiftTask, TaskFields] | None = None

    @property
    def names(self) -> tuple[str, str]:
        return self.method_type.name, self.backbone.name

    @property
    def together(self) -> bool:
        is_alone = distributed.world_size() == 1
        return is_alone and self.device.type == "cuda" and self.traits.capturable

    def check(self, task: ShiftTask) -> None:
        super().check(task)
        if fanout_of(self.settings, task) is None:
            return
        if not self.traits.trains_in_batches:
            how = "leave out batch_size and fanout"
            if distributed.world_size() > 1:
                how = "start a single process without batch_size and fanout"
            raise InputError(
                f"method '{self.method_type.name}' needs all training nodes at once: {how}, or "
                "choose another method"
            )
        if not self.settings.can_be_in_batches:
            raise InputError(
                "interventions need all training nodes at once: leave out batch_size and fanout"
            )
        self.fields(task)  # a graph on disk rejects operators that need all edges

    def fields(self, task: ShiftTask) -> TaskFields:
        """Return the batches of a task; those of the last one are kept."""
        if self._fields is None or self._fields[0] is not task:
            self._fields = None  # free their memory first
            distributed.join(self.device)
            set_up_kernels(self.device)
            own = task if self.settings.in_batches else task.in_memory()
            with torch.device("meta"):
                method = self.new_method(own)
            self.share(task, fields_of(method, own, self.device))
        assert self._fields is not None
        return self._fields[1]

    def share(self, task: ShiftTask, fields: TaskFields) -> None:
        """Use the batches of another network on the same task and device.

        That network must prepare features in the same way and have at least the same operators and
        layers.
        """
        self._fields = task, fields

    def new_method(self, task: ShiftTask) -> Method:
        """Return the method for a task, with weights that are not trained."""
        sizes = task.num_features, task.num_classes, task.training_environments().numel()
        class_weight = self.options.class_weight
        return self.method_type(self.settings, self.backbone, *sizes, class_weight)

    def fit(
        self,
        task: ShiftTask,
        seed: int = 0,
        *,
        initial: Fitted | None = None,
        work: Path | None = None,
        on_progress: Progress | None = None,
    ) -> Fitted:
        """As `Learner.fit`; checkpoints are in the folder `work`."""
        place = None if work is None else RunFolder(work)
        if place:
            place.begin(self.config(task, seed), self.digest(task))
        return self.fit_together(task, {seed: place}, initial=initial, on_progress=on_progress)[0]

    def fit_together(
        self,
        task: ShiftTask,
        folders: Mapping[int, RunFolder | None],
        *,
        initial: Fitted | None = None,
        ood_curves: bool = False,
        on_progress: Progress | None = None,
    ) -> list[Fitted]:
        """Train side by side; the results are the same as one by one.

        Two or more trainings share the random generator of the CPU, so none of them may draw from
        it.
        """
        fields = self.fields(task)
        in_batches = fanout_of(self.settings, fields.task) is not None
        with seeded(0, self.device, self.options.threads):
            loops = []
            for lane, (seed, place) in enumerate(folders.items()):
                loop = self._loop(task, seed, ood_curves, lane, initial)
                if place:
                    resume(loop, place)
                share_state(loop)
                loops.append(loop)
            # Drawing neighbours changes a step far more than rounding does.
            with fast_products(self.device) if in_batches else nullcontext():
                train_loops(loops, list(folders.values()), on_progress)
            return [self._fitted(task, loop, len(loops)) for loop in loops]

    def _loop(
        self, task: ShiftTask, seed: int, ood_curves: bool, lane: int, initial: Fitted | None
    ) -> Loop:
        """Return the loop of a training before its first epoch."""
        fields, settings = self.fields(task), self.settings
        torch.manual_seed(seed)
        method = self.new_method(fields.task).to(self.device)
        if initial is not None:
            load_initial(method, initial.state()[1])
        view = fields.view(settings.batch_size)
        method.prepare(view)
        check = self._pace(view.steps_per_epoch)
        curves = list(fields.nodes) if ood_curves else ["valid"]
        fanout, batch, train_epoch = fanout_of(settings, fields.task), None, None
        if fanout is None:
            batch = fields.batch("train")
        else:
            train_epoch = epochs_of(fields, method, settings.batch_size, fanout, seed, check)
        report = self._epoch_report(task, seed, check)
        return Loop(method, settings, batch, fields.score, curves, lane, report, train_epoch)

    def _pace(self, steps: int) -> Callable[[], None]:
        """Return a check, called at each of some steps of an epoch, that it can end in time."""
        begin, done, settings = time.time(), 0, self.settings
        least = steps * min(settings.epochs, settings.patience or settings.epochs)

        def check() -> None:
            nonlocal done
            spent, done = time.time() - begin, done + 1
            # A GPU reports several epochs at once.
            is_measured = spent > SECONDS_TO_MEASURE and self.device.type == "cpu"
            self.options.check_time(spent / done * (least - done) if is_measured else 0.0)

        return check

    def _epoch_report(self, task: ShiftTask, seed: int, check: Callable[[], None]) -> EpochReport:
        facts = {"model": self.options.name or self.config(task, seed).model, "seed": seed}

        def report(epoch: int, loss: float, valid: float) -> None:
            numbers = {"epoch": epoch, "epochs": self.settings.epochs, "loss": loss, "valid": valid}
            for callback in self.options.callbacks:
                callback(facts | numbers)
            check()

        return report

    def _fitted(self, task: ShiftTask, loop: Loop, at_once: int) -> Fitted:
        """Return the model of the selected epoch."""
        fitted = FittedNetwork(loop.method, self.backbone.name)
        last, fitted.predicted, inferred = self.scores(task, fitted), None, None
        loop.method.load_state_dict(loop.best.tensors)
        if distributed.rank() == 0:
            inferred = inferred_environments(loop.method, self.fields(task))
        history = {name: curve[: loop.epoch].tolist() for name, curve in loop.history.items()}
        fitted.training = Training(
            epochs=loop.epoch,
            seconds_per_epoch=loop.seconds / max(1, loop.epochs_here),
            history=history,
            selection=SELECTION,
            selected_epoch=int(np.nanargmax(history["valid"])) + 1,
            last_scores=last,
            inferred_environments=inferred,
            findings=loop.method.findings(),
            runs_at_once=at_once,
        )
        return fitted

    def content(self, fitted: Fitted) -> State:
        """As `Learner.content`; the config of a run describes the rest of a network."""
        return {}, fitted.state()[1]

    def restored(self, task: ShiftTask, place: RunFolder, about: Mapping[str, Any]) -> Fitted:
        with seeded(0, self.device):
            method = self.new_method(task).to(self.device)
        place.load_weights(method)
        return FittedNetwork(method, self.backbone.name)

    def logits(self, task: ShiftTask, fitted: Fitted) -> dict[str, tuple[Tensor, Tensor]]:
        assert isinstance(fitted, FittedNetwork)
        return self.fields(task).logits(fitted.method.eval())
