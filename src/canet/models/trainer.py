"""One method on one task: a short way to train networks with :class:`canet.models.Network`."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import SupportsIndex

import torch
from torch import Tensor

from canet.data.task import ShiftTask
from canet.methods import Backbone, Method
from canet.methods.base import ModelSettings
from canet.models.network import FittedNetwork, Network
from canet.models.options import Options
from canet.store.config import RunConfig
from canet.store.result import RunResult
from canet.training.fields import TaskFields
from canet.training.loop import Callback, Progress
from canet.util.seeds import checked_seed


@dataclass(frozen=True)
class Run:
    """A finished run."""

    config: RunConfig  # the configuration
    result: RunResult  # scores between 0 and 1, selection rule, timing and versions
    history: Mapping[str, list[float]]  # loss and scores of every epoch
    method: Method  # the trained method, with the weights of the selected epoch
    predicted: Mapping[str, Tensor] | None = None  # logits of every split; None: the run was read


class Trainer:
    """Trains one method with one set of settings on one task, for any number of seeds.

    Args:
        task: The task; it is not changed. A graph store stays on disk if the settings `batch_size`
            or `fanout` are set, and is read into memory if not.
        method, backbone, settings: As for :class:`canet.models.Network`.
        device, class_weight, threads, callbacks: As for :class:`canet.models.Options`.
        epochs: Number of epochs, instead of the one in `settings`.
        fields: Batches of another trainer, which are shared as by `Network.share`.
    """

    def __init__(
        self,
        task: ShiftTask,
        method: str | type[Method] = "canet",
        backbone: str | Backbone = "gcn",
        settings: ModelSettings | None = None,
        device: str | torch.device = "auto",
        epochs: int | None = None,
        fields: TaskFields | None = None,
        class_weight: Tensor | None = None,
        threads: int = 1,
        callbacks: Sequence[Callback] = (),
    ) -> None:
        options = Options(device, class_weight, threads, callbacks)
        self.learner = Network(method, backbone, settings, options)
        if epochs is not None:
            self.learner.settings = replace(self.learner.settings, epochs=epochs)
        self.learner.check(task)
        if fields is not None:
            self.learner.share(task, fields)
        self.task, self.fields = task, self.learner.fields(task)

    def config(self, seed: SupportsIndex = 0, ood_curves: bool = False) -> RunConfig:
        """Return the complete configuration of a run with this seed."""
        return self.learner.config(self.task, checked_seed(seed), ood_curves)

    def run(
        self,
        seed: SupportsIndex = 0,
        folder: str | Path | None = None,
        ood_curves: bool = False,
        on_progress: Progress | None = None,
    ) -> Run:
        """Train with one seed as `Learner.run`; the best epoch is that of the validation score."""
        own = {checked_seed(seed): folder}
        (found,) = self.learner.run(self.task, own, ood_curves=ood_curves, on_progress=on_progress)
        assert isinstance(found, FittedNetwork)
        assert found.result is not None
        config, history = self.config(seed, ood_curves), found.training.history
        return Run(config, found.result, history, found.method, found.predicted)
