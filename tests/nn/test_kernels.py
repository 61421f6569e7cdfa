"""Fused kernels compared with plain PyTorch code, which other tests check.

On a machine without a GPU, Triton's interpreter runs the kernels; see tests/conftest.py.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from copy import deepcopy
from typing import Any

import pytest
import torch
from torch import Tensor

from canet.nn import (
    BACKBONES,
    CaNet,
    EnvironmentEstimator,
    NormalisedGraph,
    Operator,
    sparse_matrix,
)
from canet.nn import environment as environment_module
from canet.nn.backbones.gat import NEGATIVE_SLOPE
from canet.nn.environment import Environment, EstimatorKind
from canet.nn.operations import Gathered, fused, mix_each, mix_joined, multiply, select_rows
from canet.nn.operations.attention import fused_attend
from canet.nn.operations.products import product
from canet.nn.sparse_matrix import Pattern
from tests.support.networks import attend_each, operator_matrix
from tests.support.sparse import from_entries

pytestmark = pytest.mark.skipif(not fused.HAS_TRITON, reason="no Triton")
INTERPRETED = not torch.cuda.is_available()
DEVICE = "cpu" if INTERPRETED else "cuda"
NUM_NODES, NUM_DST = (24, 20) if INTERPRETED else (300, 240)
ROWS = 70 if INTERPRETED else 1000
MANY_ROWS, LONG = (72, 50) if INTERPRETED else (20_000, 500)
gpu_only = pytest.mark.skipif(INTERPRETED, reason="the interpreter is slow, and has no limits")


@pytest.fixture(autouse=True)
def on_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a GPU, use the interpreter of Triton, with few rows because it is slow."""
    if INTERPRETED:
        monkeypatch.setattr(sparse_matrix, "SEGMENT", 16)
        monkeypatch.setattr(fused, "on_gpu", lambda tensor: fused.HAS_TRITON)


def pattern_with_a_hub() -> Pattern:
    """Random edges; node 0 has edges from all nodes, node 1 to all nodes, and 2 is isolated.

    Both hubs have more entries than a segment.
    """
    random = torch.Generator().manual_seed(0)
    src, dst = torch.randint(3, NUM_NODES, (2, 3 * NUM_NODES), generator=random)
    nodes = torch.arange(3, NUM_NODES)
    src = torch.cat([src, nodes, torch.ones_like(nodes)])
    dst = torch.cat([dst, torch.zeros_like(nodes), nodes])
    matrix = operator_matrix(torch.stack([src, dst]), NUM_NODES, Operator("attention"))
    return matrix.select_rows(torch.arange(NUM_DST)).to(DEVICE).pattern


def inputs(branches: int, hidden: int, dtype: torch.dtype) -> list[Tensor]:
    random = torch.Generator().manual_seed(1)
    shapes = (NUM_NODES, hidden), (NUM_DST, branches), (NUM_NODES, branches)
    return [
        torch.randn(shape, generator=random, dtype=torch.double).to(DEVICE, dtype).requires_grad_()
        for shape in shapes
    ]


def value_and_gradients(
    pattern: Pattern, tensors: list[Tensor], with_own: bool = True
) -> list[Tensor]:
    if fused.can_fuse_attention(tensors[0]):
        out, own = fused_attend(pattern, *tensors, slope=NEGATIVE_SLOPE)
    else:
        out, own = attend_each(pattern, *tensors), tensors[0][:NUM_DST]
    direction = torch.linspace(-1, 1, out.numel(), dtype=out.dtype, device=out.device)
    total = (out * direction.view_as(out)).sum()
    if with_own:
        total += own.square().sum()
    return [out, own, *torch.autograd.grad(total, tensors)]


@pytest.mark.parametrize("hidden", [5, pytest.param(64, marks=gpu_only)])
@pytest.mark.parametrize(
    ("branches", "with_own", "dtype"),
    [
        (1, False, torch.float64),
        (3, True, torch.float32),
        *(pytest.param(branches, True, torch.float64, marks=gpu_only) for branches in (1, 3)),
        *(pytest.param(branches, True, torch.float32, marks=gpu_only) for branches in (1, 4, 10)),
    ],
)
def test_fused_attention_and_its_gradients_are_those_of_the_composed_one(
    branches: int, hidden: int, dtype: torch.dtype, with_own: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    pattern, tensors = pattern_with_a_hub(), inputs(branches, hidden, dtype)
    by_kernel = value_and_gradients(pattern, tensors, with_own)
    monkeypatch.setattr(fused, "HAS_TRITON", False)
    composed = value_and_gradients(pattern, tensors, with_own)
    bound = 1e-7 if dtype == torch.float64 else 2e-4
    for ours, oracle in zip(by_kernel, composed, strict=True):
        torch.testing.assert_close(ours, oracle, rtol=bound, atol=bound)


def test_fused_attention_survives_scores_that_overflow_an_exponential() -> None:
    z, score_dst, score_src = inputs(3, 8, torch.float32)
    tensors = [z, (1e6 * score_dst).detach().requires_grad_(), score_src]
    for tensor in value_and_gradients(pattern_with_a_hub(), tensors):
        assert tensor.isfinite().all()


@pytest.mark.slow
def test_fused_attention_gives_the_same_bits_twice() -> None:
    pattern, tensors = pattern_with_a_hub(), inputs(3, 64, torch.float32)
    first, second = (value_and_gradients(pattern, tensors) for _ in range(2))
    assert all(a.equal(b) for a, b in zip(first, second, strict=True))


@pytest.mark.parametrize(
    ("width", "dtype"),
    [
        (1, torch.float64),
        (10, torch.float32),
        pytest.param(10, torch.float64, marks=gpu_only),
        *(pytest.param(width, torch.float32, marks=gpu_only) for width in (1, 3, 64, 130)),
    ],
)
@pytest.mark.parametrize("num_rows", [40, MANY_ROWS], ids=["few rows", "many rows"])
def test_ordered_product_and_its_gradient_are_those_of_a_dense_one(
    num_rows: int, width: int, dtype: torch.dtype
) -> None:
    """A matrix with empty rows and columns, duplicate entries, and long rows and columns."""
    random = torch.Generator().manual_seed(2)
    row = torch.randint(0, num_rows - 1, (3 * num_rows,), generator=random)
    col = torch.randint(0, 29, (3 * num_rows,), generator=random)
    row[: num_rows + LONG], col[num_rows + LONG :: 2] = 7, 3
    value = torch.rand(len(row), generator=random, dtype=torch.double)
    exact = from_entries(row, col, value, (num_rows, 30)).to(DEVICE)
    matrix = exact.to(DEVICE, dtype)
    z, direction = random_doubles((30, width), (num_rows, width))
    ours = z.to(dtype).requires_grad_()
    assert fused.on_gpu(ours)
    result, again = multiply(matrix, ours), multiply(matrix, ours)
    (grad,) = torch.autograd.grad(result, ours, direction.to(dtype))
    assert result.equal(again)
    assert grad.equal(torch.autograd.grad(again, ours, direction.to(dtype))[0])
    dense = exact.as_torch.to_dense()
    bound = 1e-12 if dtype == torch.float64 else 2e-6
    for mine, oracle in ((result, dense @ z), (grad, dense.t() @ direction)):
        scale = oracle.abs().max()
        torch.testing.assert_close(mine.double() / scale, oracle / scale, rtol=0, atol=bound)


@pytest.mark.parametrize("base_rows", [0, 7, 8, NUM_NODES])
def test_a_base_is_added_to_the_first_rows_of_an_ordered_product(base_rows: int) -> None:
    """The last of eight rows is long."""
    random = torch.Generator().manual_seed(2)
    row, col = torch.randint(0, NUM_NODES, (2, 4 * LONG), generator=random)
    row[: 2 * LONG] = 7
    value = torch.rand(len(row), generator=random, dtype=torch.double)
    matrix = from_entries(row, col, value, (NUM_NODES, NUM_NODES)).to(DEVICE)
    assert matrix.pattern.segments.num_slots > 0
    z, base = random_doubles((NUM_NODES, 5), (base_rows, 5))
    ours = product(matrix, z, base)
    oracle = matrix.as_torch.to_dense() @ z
    oracle[:base_rows] += base
    torch.testing.assert_close(ours, oracle)


def test_ordered_product_of_a_matrix_without_entries_is_zero() -> None:
    nothing = torch.empty(0, dtype=torch.long)
    matrix = from_entries(nothing, nothing, torch.empty(0), (5, 4)).to(DEVICE)
    assert multiply(matrix, torch.ones(4, 3, device=DEVICE)).eq(0).all()


Gradients = Callable[[list[Tensor]], list[Tensor]]


def random_doubles(*shapes: tuple[int, ...]) -> list[Tensor]:
    random = torch.Generator().manual_seed(1)
    return [torch.randn(shape, generator=random, dtype=torch.double).to(DEVICE) for shape in shapes]


def check_beside_double_precision(with_gradients: Gradients, exact: list[Tensor]) -> None:
    """Check that a fused operation equals double precision up to rounding, and is reproducible."""
    exact = [tensor.requires_grad_() for tensor in exact]
    rounded = [tensor.detach().float().requires_grad_() for tensor in exact]
    for mine, twice, oracle in zip(
        with_gradients(rounded), with_gradients(rounded), with_gradients(exact), strict=True
    ):
        assert mine.equal(twice)
        scale = oracle.abs().max()
        torch.testing.assert_close(mine.double() / scale, oracle / scale, rtol=0, atol=2e-6)


LARGER = (3, 64, 64), (10, 64, 64), (3, 128, 128), (2, 100, 20)


def mix(x: Tensor, weight: Tensor, e: Tensor, z: Tensor) -> Tensor:
    """A layer of mixed branches, with an input per branch or with gathered states."""
    return mix_each(x, weight, e, z) if x.dim() == 3 else mix_joined(Gathered(x, z), weight, e)


@pytest.mark.parametrize("shared", [True, False], ids=["neighbours and own", "an input each"])
@pytest.mark.parametrize(
    ("branches", "width", "out"),
    [(1, 8, 4), (2, 40, 48), *(pytest.param(*size, marks=gpu_only) for size in LARGER)],
)
def test_fused_layer_and_its_gradients_are_those_of_double_precision(
    branches: int, width: int, out: int, shared: bool
) -> None:
    x = (ROWS, width) if shared else (ROWS, branches, width)
    weight = branches, width + out if shared else width, out
    *exact, direction = random_doubles(x, weight, (ROWS, branches), (ROWS, out), (ROWS, out))
    assert fused.can_fuse_mixture(exact[0].float(), out)
    assert not fused.can_fuse_mixture(exact[0], out)

    def with_gradients(tensors: list[Tensor]) -> list[Tensor]:
        states = mix(*tensors)
        total = (states * direction.to(states)).sum()
        return [states, *torch.autograd.grad(total, tensors)]

    check_beside_double_precision(with_gradients, exact)


@pytest.mark.parametrize("magnitude", [1e-15, 1e15])
def test_fused_layer_is_exact_at_every_magnitude(magnitude: float) -> None:
    x, weight, e, z, direction = random_doubles((20, 32), (3, 64, 32), (20, 3), *[(20, 32)] * 2)
    direction = direction / magnitude

    def with_gradients(tensors: list[Tensor]) -> list[Tensor]:
        states = mix(*tensors)
        return [states, *torch.autograd.grad(states, tensors, direction.to(states))]

    check_beside_double_precision(with_gradients, [magnitude * x, weight, e, magnitude * z])


def test_huge_values_of_a_node_do_not_change_others_in_a_fused_layer() -> None:
    x, weight, e, z, direction = (
        tensor.float() for tensor in random_doubles((100, 8), (2, 16, 8), (100, 2), *[(100, 8)] * 2)
    )

    def with_gradients(x: Tensor, direction: Tensor) -> list[Tensor]:
        x = x.clone().requires_grad_()
        states = mix(x, weight, e, z)
        return [states, *torch.autograd.grad(states, x, direction)]

    before = with_gradients(x, direction)
    x[7], direction[7] = 1e15, 1e15
    for was, now in zip(before, with_gradients(x, direction), strict=True):
        assert now[7].abs().max() > 1e12
        now[7] = was[7]
        assert now.equal(was)


def fields_and_gradients(
    environment: Environment, directions: list[Tensor], leaves: list[Tensor]
) -> list[Tensor]:
    """Gradients of each output alone, of all outputs, and of a plain sum."""
    log_posterior, sample, expected_log = environment
    if log_posterior.dtype == torch.float64:
        assert expected_log is None
        expected_log = (sample * log_posterior).sum(dim=1)
    fields = [log_posterior, sample, expected_log]
    totals = [(f * d).sum() for f, d in zip(fields, directions, strict=True)]
    totals += [sum(totals[1:], totals[0]), environment.total_expected_log()]
    return fields + [
        gradient
        for total in totals
        for gradient in torch.autograd.grad(total, leaves, retain_graph=True)
    ]


@pytest.mark.parametrize(
    ("rows", "branches", "hidden", "kind", "training"),
    [
        (ROWS, 3, 64, "node", True),
        pytest.param(300, 16, 128, "node", False, marks=gpu_only),
        (ROWS, 3, 64, "graph", False),
        (50, 2, 5, "graph", True),
        *(pytest.param(40_000, 10, 64, "graph", mode, marks=gpu_only) for mode in (True, False)),
    ],
)
def test_fused_estimator_and_its_gradients_are_those_of_double_precision(
    rows: int,
    branches: int,
    hidden: int,
    kind: EstimatorKind,
    training: bool,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    draws = torch.empty(rows, branches, dtype=torch.double).exponential_().to(DEVICE)
    monkeypatch.setattr(environment_module, "draw", lambda like: draws.to(like))
    estimator = EnvironmentEstimator(hidden, branches, kind, tau=0.7).to(DEVICE).double()
    estimator.train(training)
    z = random_doubles(*[(rows, hidden)] * (1 if kind == "node" else 2))
    directions = random_doubles(*[(rows, branches)] * 2, (rows,))

    def with_gradients(tensors: list[Tensor]) -> list[Tensor]:
        module = deepcopy(estimator).to(tensors[0].dtype)
        environment = module(tensors[0] if kind == "node" else Gathered(*tensors))
        return fields_and_gradients(environment, directions, [*tensors, *module.parameters()])

    weight = estimator.linear.weight
    assert fused.can_fuse_posterior(z[0].float(), weight)
    assert not fused.can_fuse_posterior(z[0], weight)
    check_beside_double_precision(with_gradients, z)


@pytest.mark.parametrize(
    ("hidden", "branches"), [(32, 3), (48, 3), (64, 40), (96, 3), (128, 3), (256, 3)]
)
@gpu_only
@pytest.mark.parametrize("backbone", BACKBONES)
def test_layers_of_every_size_fit_the_gpu(backbone: str, hidden: int, branches: int) -> None:
    model = CaNet(
        5, 2, hidden=hidden, num_environments=branches, backbone=backbone, estimator="graph"
    )
    edges = torch.randint(0, 100, (2, 400), generator=torch.Generator().manual_seed(1))
    field = NormalisedGraph(edges, 100, model.operators).whole(model.num_layers).to(DEVICE)
    logits = model.to(DEVICE)(torch.ones(100, 5, device=DEVICE), field.blocks).logits
    logits.square().sum().backward()
    assert all(parameter.grad.isfinite().all() for parameter in model.parameters())


def test_fused_layer_lets_nan_through() -> None:
    x, weight, e, z = (
        torch.ones(shape, device=DEVICE) for shape in ((4, 1, 2), (1, 2, 3), (4, 1), (4, 3))
    )
    z[1, 2] = torch.nan
    assert mix(x, weight, e, z).isnan().sum() == 1


@pytest.mark.parametrize("dtype", [torch.float16, torch.float32])
def test_selected_rows_are_in_single_precision(dtype: torch.dtype) -> None:
    x = torch.randn(ROWS, 37).to(DEVICE, dtype)
    rows = torch.tensor([5, 0, 5, ROWS - 1], device=DEVICE)
    assert torch.equal(select_rows(x, rows), x[rows].float())


@pytest.mark.parametrize("place", ["device", pytest.param("pinned", marks=gpu_only)])
@pytest.mark.parametrize("dtype", [torch.float16, torch.float32])
def test_rows_with_a_copy_are_read_from_it(dtype: torch.dtype, place: str) -> None:
    x = torch.randn(ROWS, 300, dtype=dtype)
    kept, slot = x[[3, 5]] + 1, torch.full((ROWS,), -1, dtype=torch.int32)
    slot[[3, 5]] = torch.tensor([0, 1], dtype=torch.int32)
    rows = torch.tensor([5, 0, 5, ROWS - 1, 3] * 5)
    expected = torch.where((slot[rows] >= 0).unsqueeze(1), kept[slot[rows]], x[rows]).float()
    matrix = x.pin_memory() if place == "pinned" else x.to(DEVICE)
    found = select_rows(matrix, rows.to(DEVICE), kept.to(DEVICE), slot.to(DEVICE))
    assert torch.equal(found.cpu(), expected)


class OnGpu(Tensor):
    """A tensor that claims to be on the second GPU."""

    is_cuda = True

    def get_device(self) -> int:
        return 1


@pytest.mark.parametrize("current", [0, 1])
def test_a_kernel_runs_on_the_gpu_of_its_arguments(
    current: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    from canet.nn.kernels.launch import launch

    events: list[Any] = []

    @contextmanager
    def device(index: int) -> Iterator[None]:
        events.append(index)
        yield
        events.append("back")

    monkeypatch.setattr(torch.cuda, "current_device", lambda: current)
    monkeypatch.setattr(torch.cuda, "device", device)
    kernel = {(3,): lambda *args, **options: events.append((len(args), options))}
    launch(kernel, (3,))(torch.ones(2), 7, torch.ones(2).as_subclass(OnGpu), BLOCK=4)
    call = (3, {"BLOCK": 4})
    assert events == ([1, call, "back"] if current == 0 else [call])
