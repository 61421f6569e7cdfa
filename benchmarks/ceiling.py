"""Rates of the machine, and the minimum work of an epoch.

Counting rule. Each operation reads its inputs from memory once and writes its outputs once, as if
caches were perfect within an operation and empty between two. A sparse product over E entries from
n to m nodes moves 8 E (index and value) + 4 n H + 4 m H bytes and does 2 E H operations. Numbers
have 4 bytes. A multiplication and an addition are two operations. Dropout, activations and the
softmax of environments are assumed to be fused with other operations and cost nothing. The backward
pass costs as much as the forward pass for each gradient: two for linear maps and attention, one if
the input is data or the matrix is constant. Adam reads and writes seven numbers per parameter. An
epoch is a forward and a backward pass over the receptive field of the training nodes and a forward
pass over that of the validation nodes.

The minimum time of an operation is the larger of bytes ÷ bandwidth and operations ÷ matmul rate.
The minimum time of an epoch is their sum. The fraction of the ceiling is minimum ÷ measured time.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import NamedTuple

import torch

from canet.methods import Batch
from canet.nn import (
    Block,
    Branches,
    CaNet,
    EnvironmentEstimator,
    GraphModel,
    Operator,
    ShiftedFeatures,
    SparseMatrix,
)

REPEATS = 5
COPY_BYTES = {"cpu": 2**29, "cuda": 2**32}
MATMUL_SIZE = {"cpu": 2048, "cuda": 8192}
ADAM_TRAFFIC = 7
OPERATIONS_PER_SCORE = 10


class Ceiling(NamedTuple):
    """Measured rates of a machine."""

    bytes_per_second: float
    flops_per_second: float


class Operation(NamedTuple):
    """Floating-point operations and bytes of a forward pass, and its number of gradients."""

    flops: float
    bytes: float
    gradients: int = 2


def measure_ceiling(device: torch.device) -> Ceiling:
    """Measure the rate of a large copy (read and write) and of a large fp32 matrix product."""
    bandwidth = copy_bandwidth(device)
    size = MATMUL_SIZE[device.type]
    left, right = torch.randn(size, size, device=device), torch.randn(size, size, device=device)
    seconds = _shortest(lambda: left @ right, device)
    return Ceiling(bandwidth, 2 * size**3 / seconds)


def copy_bandwidth(device: torch.device) -> float:
    """Return the bytes per second, read and written, of a large copy."""
    source = torch.ones(COPY_BYTES[device.type] // 4, device=device)
    target = torch.empty_like(source)
    return 2 * 4 * source.numel() / _shortest(lambda: target.copy_(source), device)


def epoch_cost(model: GraphModel, train: Batch, valid: Batch) -> list[Operation]:
    """The operations of an epoch, including those for gradients."""
    step = [
        Operation(op.flops * (1 + op.gradients), op.bytes * (1 + op.gradients), 0)
        for op in forward_cost(model, train)
    ]
    parameters = sum(parameter.numel() for parameter in model.parameters())
    adam = Operation(10 * parameters, 4 * ADAM_TRAFFIC * parameters, 0)
    return [*step, adam, *forward_cost(model, valid)]


def forward_cost(model: GraphModel, batch: Batch) -> list[Operation]:
    """The operations of a forward pass of CaNet or a backbone over a batch."""
    hidden, features = model.phi_in.weight.shape
    layers = _canet_layers(model, batch) if isinstance(model, CaNet) else _layers(model, batch)
    output = _map(batch.y.numel(), hidden, model.phi_out.out_features)
    return [_input_map(batch, hidden, features), *layers, output]


def _layers(model: GraphModel, batch: Batch) -> list[Operation]:
    """A propagation in each layer, and a linear map in each layer except the first and the last."""
    hidden, (operator,) = model.phi_in.out_features, model.operators
    operations = []
    for layer, block in enumerate(batch.blocks):
        if 0 < layer < len(batch.blocks) - 1:
            operations.append(_map(block.num_src, hidden, hidden))
        operations.append(_propagation(block, operator, hidden, branches=1))
    return operations


def _canet_layers(model: CaNet, batch: Batch) -> list[Operation]:
    hidden, k = model.phi_in.out_features, model.num_environments
    operations = []
    for layer, block in enumerate(batch.blocks):
        n = block.num_dst
        branches = model.branches[layer]
        assert isinstance(branches, Branches)
        for operator in model.operators:
            # An estimator with its own propagation maps to k columns first.
            width = hidden if operator in branches.operators else k
            operations.append(_propagation(block, operator, width, k))
        if layer < len(model.estimators):
            estimator = model.estimators[layer]
            assert isinstance(estimator, EnvironmentEstimator)
            if estimator.operator is None:
                operations.append(_map(n, estimator.linear.in_features, k))
            else:
                operations.append(_map(block.num_src, hidden, 2 * k))
        weight = branches.get_parameter("weight")
        width = weight.numel() // hidden  # of the concatenated inputs of all branches
        read = n * (width if branches.gather_operator is None else width // k)
        moved = 4 * (read + n * k + weight.numel() + n * hidden)
        operations.append(Operation(2 * n * width * hidden, moved))
    return operations


def _propagation(block: Block, operator: Operator, width: int, branches: int) -> Operation:
    """Attention of all branches, or one sparse product that all branches share."""
    entries = block.matrices[operator].pattern.nnz
    if operator.kind == "attention":
        flops = entries * branches * (2 * width + OPERATIONS_PER_SCORE)
        moved = (
            entries + block.num_src * (width + branches) + block.num_dst * branches * (1 + width)
        )
        return Operation(flops, 4 * moved)
    moved = 2 * entries + (block.num_src + block.num_dst) * width
    return Operation(2 * entries * width, 4 * moved, gradients=1)


def floor_seconds(operations: Sequence[Operation], ceiling: Ceiling) -> float:
    """The minimum time of the operations, one after the other."""
    return sum(
        max(op.bytes / ceiling.bytes_per_second, op.flops / ceiling.flops_per_second)
        for op in operations
    )


def _input_map(batch: Batch, hidden: int, features: int) -> Operation:
    """The linear map of the features; only its weights have a gradient."""
    assert not isinstance(batch.x, ShiftedFeatures)
    if isinstance(batch.x, SparseMatrix):
        entries, size = batch.x.pattern.nnz, 8
    else:
        entries, size = batch.x.numel(), 4
    moved = size * entries + 4 * features * hidden + 4 * batch.x.shape[0] * hidden
    return Operation(2 * entries * hidden, moved, gradients=1)


def _map(rows: int, width: int, out: int) -> Operation:
    return Operation(2 * rows * width * out, 4 * (rows * width + width * out + rows * out))


def _shortest(work: Callable[[], object], device: torch.device) -> float:
    """Shortest time of a few repeats, after a warm-up."""
    times = []
    for _ in range(REPEATS + 1):
        begin = time.perf_counter()
        work()
        if device.type == "cuda":
            torch.cuda.synchronize(device)
        times.append(time.perf_counter() - begin)
    return min(times[1:])
