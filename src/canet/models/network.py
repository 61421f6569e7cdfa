"""A graph neural network with its training method."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from typing import Any, Self

import numpy as np
import torch
from torch import Tensor

from canet.data.digest import DataDigest
from canet.data.task import ShiftTask
from canet.errors import CanetError
from canet.methods import Backbone, Method, Settings, get_backbone, get_method
from canet.methods.base import ModelSettings
from canet.models.base import Fitted, Learner, Options, State, entry
from canet.models.replacing import Replacing, product, replacing_in
from canet.nn.model import Prediction
from canet.reading.predict import Part, read, read_parts
from canet.reading.prepared import PreparedGraph
from canet.settings import override
from canet.store.config import RunConfig
from canet.store.run_folder import RunFolder
from canet.training import Run, Trainer
from canet.training.fields import TaskFields
from canet.training.loop import Progress


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

    def read(
        self, graph: PreparedGraph, nodes: Tensor | None = None, x: Tensor | None = None
    ) -> Prediction:
        return read(self.method, graph, nodes, x)

    def parts(self, graph: PreparedGraph, nodes: Tensor | None = None) -> Iterator[Part]:
        return read_parts(self.method, graph, nodes)

    def replacing(self, graph: PreparedGraph, nodes: Tensor) -> Replacing:
        """As `Fitted.replacing`; the first map is linear, so it is applied once."""
        model = self.method.model.reading_products()
        weight = model.phi_in.weight.detach()
        blocks_of = graph.graph(model.operators).receptive_field

        @torch.no_grad()
        def read(products: np.ndarray) -> Tensor:
            field = blocks_of(nodes, model.num_layers)
            rows = torch.from_numpy(products[field.nodes.numpy()])
            return model(rows.to(weight.device), field.to(weight.device).blocks).logits.cpu()

        x = graph.features(self.method.settings.scaling)
        share = partial(product, x, weight.cpu().numpy().T)
        return replacing_in(share(), share, read)

    def logits(self, task: ShiftTask) -> dict[str, Tensor]:
        model, how = self.method.model, self.method.settings.scaling
        device = model.phi_out.weight.device
        fields = TaskFields(task, model.operators, model.num_layers, device, how)
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
        types = {name: tensor.dtype for name, tensor in method.state_dict().items()}
        if types != {name: tensor.dtype for name, tensor in tensors.items()}:
            raise mismatch
        try:
            method.load_state_dict(dict(tensors), assign=True)
        except RuntimeError as error:
            raise mismatch from error
        return cls(method, backbone.name)

    def learner(self, shared: Settings, options: Options) -> Learner:
        times = {"epochs": shared.epochs, "patience": shared.patience}
        return Network(
            type(self.method), self.backbone, replace(self.method.settings, **times), options
        )

    def to(self, device: torch.device) -> Self:
        self.method.to(device)
        return self


class Network(Learner):
    """Trains a network with a method.

    Args:
        method: Name of a method, or a subclass of :class:`canet.methods.Method`.
        backbone: Name of a backbone, or a :class:`canet.nn.Backbone`.
        settings: Settings of the method; None: its defaults.
        options: How to train.
    """

    settings: Settings

    def __init__(
        self,
        method: str | type[Method],
        backbone: str | Backbone = "gcn",
        settings: ModelSettings | None = None,
        options: Options | None = None,
    ) -> None:
        self.method_type, self.backbone = get_method(method), get_backbone(backbone)
        super().__init__(settings or self.method_type.settings_type(), options)
        self.name = f"{self.method_type.name}-{self.backbone.name}"
        self.traits = self.method_type.traits
        self._trainer: Trainer | None = None

    def trainer(self, task: ShiftTask, initial: Mapping[str, Tensor] | None = None) -> Trainer:
        """Return the trainer for a task; the last one is kept, with its batches."""
        last, options = self._trainer, self.options
        if last is None or last.given_task is not task or last.initial is not initial:
            self._trainer = None  # free its memory first
            self._trainer = Trainer(
                task,
                self.method_type,
                self.backbone,
                self.settings,
                options.device,
                class_weight=options.class_weight,
                threads=options.threads,
                callbacks=[*options.callbacks, options.check_time],
                check=options.check_time,
                initial=initial,
            )
        assert self._trainer is not None
        return self._trainer

    def fit(
        self,
        task: ShiftTask,
        seed: int = 0,
        *,
        initial: Fitted | None = None,
        work: Path | None = None,
        on_progress: Progress | None = None,
    ) -> Fitted:
        """As `Learner.fit`; `work` is the folder of a run, which has checkpoints."""
        return self.run(task, {seed: work}, initial=initial, on_progress=on_progress)[0]

    def run(
        self,
        task: ShiftTask,
        folders: Mapping[int, Path | None],
        *,
        initial: Fitted | None = None,
        ood_curves: bool = False,
        on_progress: Progress | None = None,
    ) -> list[Fitted]:
        weights = None if initial is None else initial.state()[1]
        trainer = self.trainer(task, weights)
        runs = trainer.run_together(folders, ood_curves, on_progress)
        return [self._fitted(run) for run in runs]

    def _fitted(self, run: Run) -> FittedNetwork:
        fitted = FittedNetwork(run.method, self.backbone.name)
        fitted.result, fitted.history, fitted.epochs = run.result, run.history, run.result.epochs
        fitted.predicted = run.predicted
        return fitted

    def load(self, task: ShiftTask, run_folder: RunFolder) -> Fitted:
        fitted = FittedNetwork(self.trainer(task).load(run_folder), self.backbone.name)
        fitted.result = run_folder.read_result()
        return fitted

    def scores(self, task: ShiftTask, fitted: Fitted) -> dict[str, float]:
        assert isinstance(fitted, FittedNetwork)
        return self.trainer(task).scores(fitted.method)

    def config(self, task: ShiftTask, seed: int = 0, ood_curves: bool = False) -> RunConfig:
        return self.trainer(task).config(seed, ood_curves)

    def digest(self, task: ShiftTask) -> DataDigest:
        return self.trainer(task).digest
