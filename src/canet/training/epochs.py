"""One epoch of training in batches."""

from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor

from canet.methods import Batch, Method
from canet.nn import GraphModel
from canet.training.device_batches import DeviceBatches, epoch_seed
from canet.training.fields import TaskFields
from canet.training.loop import TrainEpoch
from canet.util import distributed


@dataclass
class BatchEpochs:
    """Trains on batches; several processes train on a part of each batch.

    Then each process draws its own dropout and pseudo-environments, which follow from the seed, the
    epoch and its number.
    """

    # Returns the batches of an epoch, counted from 0, for a model; None for a batch of which this
    # process has no node.
    batches: Callable[[int, GraphModel], Iterable[Batch | None]]
    seed: int  # of the run
    check: Callable[[], None] = lambda: None  # called before each step; an error ends the training
    _num_nodes: int = 0  # of the present batch in this process

    def __call__(self, method: Method, optimizer: torch.optim.Optimizer, epoch: int) -> Tensor:
        """Train one epoch, and return the mean loss."""
        total = torch.zeros(2, dtype=torch.double, device=method.model.phi_out.weight.device)
        if distributed.world_size() > 1:
            torch.manual_seed(epoch_seed(self.seed, epoch) + distributed.rank())
        with self._averaged_gradients(optimizer):
            for batch in self.batches(epoch, method.model):
                self.check()
                if batch is not None:
                    self._num_nodes = batch.y.numel()
                    loss = method.update(batch, optimizer).double()
                    count = torch.full_like(loss, self._num_nodes)
                    total += torch.stack([self._num_nodes * loss, count])
                else:
                    self._num_nodes = 0
                    optimizer.zero_grad(set_to_none=True)
                    optimizer.step()
        total = distributed.add_up(total)
        return total[0] / total[1]

    def _averaged_gradients(self, optimizer: torch.optim.Optimizer) -> AbstractContextManager[Any]:
        """Average the gradients of several processes before each step inside the block."""
        if distributed.world_size() == 1:
            return nullcontext()
        parameters = [p for group in optimizer.param_groups for p in group["params"]]
        return optimizer.register_step_pre_hook(
            lambda *_: average_gradients(parameters, self._num_nodes)
        )


def average_gradients(parameters: Sequence[Tensor], num_nodes: int) -> None:
    """Replace gradients by their mean over all processes, weighted by their numbers of nodes.

    A parameter that has no gradient in any process keeps none.
    """
    first = parameters[0]
    grads = [torch.zeros_like(p) if p.grad is None else p.grad for p in parameters]
    has_grad = first.new_tensor([p.grad is not None for p in parameters])
    flat = torch.cat([grad.flatten() for grad in grads]) * num_nodes
    total = distributed.add_up(torch.cat([flat, has_grad, first.new_tensor([num_nodes])]))
    summed, has_grad, count = total.split([flat.numel(), has_grad.numel(), 1])
    means = (summed / count).split([p.numel() for p in parameters])
    for parameter, mean, used in zip(parameters, means, has_grad.tolist(), strict=True):
        if used:
            parameter.grad = mean.view_as(parameter)


def epochs_of(
    fields: TaskFields,
    method: Method,
    size: int,
    fanout: Sequence[int],
    seed: int,
    check: Callable[[], None] = lambda: None,
) -> TrainEpoch:
    """Return the function that trains one epoch in batches.

    On a GPU that holds the graph and its features, it replays a captured step: pass the same method
    and its optimizer in every epoch. `size` and `fanout` as for `TaskFields.training_batches`.
    `check` is called before each step that is not captured.
    """
    nodes = fields.task.train
    has_fixed_shapes = 0 < size <= nodes.numel() and min(fanout) > 0
    if distributed.world_size() == 1 and method.traits.capturable and has_fixed_shapes:
        data = fields.device_data(fanout)
        if data is not None:
            steps = DeviceBatches(data, nodes.to(data.y.device), size, fanout)
            return lambda method, optimizer, epoch: steps.train(
                method, optimizer, epoch_seed(seed, epoch)
            )
    return BatchEpochs(partial(fields.training_batches, size, fanout, seed), seed, check)
