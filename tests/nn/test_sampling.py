"""Sampled receptive fields."""

from typing import Any

import pytest
import torch
from torch import Tensor

from canet.errors import InputError
from canet.methods import BACKBONES, get_method
from canet.nn import NormalisedGraph, Operator
from canet.nn import normalised as graph_module
from canet.nn.operations import fused
from canet.nn.sampling import parse_fanout

N = 40
DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
needs_triton = pytest.mark.skipif(not fused.HAS_TRITON, reason="no Triton")
OPERATORS = [Operator(kind) for kind in ("symmetric", "renormalised", "mean", "sum", "attention")]


def edges(seed: int = 0) -> Tensor:
    """Random edges with self-loops and repeated edges; the last node has none, the first many."""
    random = torch.Generator().manual_seed(seed)
    some = torch.randint(N - 1, (2, 300), generator=random)
    many = torch.stack([torch.randint(N - 1, (60,), generator=random), torch.zeros(60).long()])
    loops = torch.tensor([[3, 7], [3, 7]])
    return torch.cat([some, many, loops, some[:, :9]], dim=1)


@pytest.mark.parametrize("operator", OPERATORS, ids=str)
def test_all_neighbours_give_the_exact_matrix(operator: Operator) -> None:
    graph = NormalisedGraph(edges(), N, [operator])
    nodes = torch.tensor([5, 0, 39, 3])
    exact, drawn = graph.receptive_field(nodes, 2), graph.sampled_field(nodes, (-1, -1))
    x = torch.randn(N, 4)
    for block in range(2):
        for field in (exact, drawn):
            assert field.blocks[block].num_src >= field.blocks[block].num_dst
    products = []
    for field in (exact, drawn):
        z = x[field.nodes]
        for one in field.blocks:
            z = one.matrices[operator].as_torch @ z
        products.append(z)
    assert torch.allclose(*products, atol=1e-12)


@pytest.mark.parametrize("operator", OPERATORS[:4], ids=str)
def test_sums_over_drawn_neighbours_are_unbiased(operator: Operator) -> None:
    graph, nodes, x = NormalisedGraph(edges(), N, [operator]), torch.arange(N), torch.randn(N, 3)
    exact = graph.block.matrices[operator].as_torch @ x
    draws = []
    for seed in range(400):
        field = graph.sampled_field(nodes, (3,), seed)
        draws.append(field.blocks[0].matrices[operator].as_torch @ x[field.nodes])
    mean, error = torch.stack(draws).mean(0), torch.stack(draws).std(0) / 20
    assert ((mean - exact).abs() <= 4.5 * error + 1e-9).all()
    assert (error > 0).any()


def test_at_most_fanout_neighbours_are_read() -> None:
    operator = Operator("attention")
    graph = NormalisedGraph(edges(), N, [operator])
    field = graph.sampled_field(torch.tensor([0, 39, 4]), (5, 2))
    for block, count in zip(reversed(field.blocks), (5, 2), strict=True):
        entries = block.matrices[operator].pattern.rowptr.diff()
        assert int(entries.max()) <= count + 1  # and the node itself
        assert int(entries.min()) >= 1
    assert field.nodes[:3].tolist() == [0, 39, 4]
    assert len(field.nodes.unique()) == len(field.nodes)


def test_the_same_seed_draws_the_same_neighbours() -> None:
    graph = NormalisedGraph(edges(), N, OPERATORS)
    first, same, other = (
        graph.sampled_field(torch.arange(9), (4, 4), seed).nodes for seed in (1, 1, 2)
    )
    assert torch.equal(first, same)
    assert not torch.equal(first, other)


def test_operators_share_the_drawn_neighbours() -> None:
    graph = NormalisedGraph(edges(), N, [Operator("sum"), Operator("mean")])
    field = graph.sampled_field(torch.arange(9), (4,))
    patterns = [matrix.pattern.col for matrix in field.blocks[0].matrices.values()]
    assert torch.equal(*patterns)


@pytest.mark.parametrize("text", ["15", "15,10,5", "a,b", "0,3", "15,-2"])
def test_an_invalid_fanout_is_rejected(text: str) -> None:
    with pytest.raises(InputError, match="fanout"):
        parse_fanout(text, 2)
    assert parse_fanout("15,-1", 2) == (15, -1)
    assert parse_fanout("all", 3) == (-1, -1, -1)


@needs_triton
@pytest.mark.parametrize("backbone", ["sage", "gcn", "gat"])
def test_a_padded_field_gives_the_predictions_of_the_exact_one(
    backbone: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    kind = get_method("erm")
    torch.manual_seed(0)
    made = kind(kind.settings_type(hidden=8), BACKBONES[backbone], 4, 3, 0).to(DEVICE).double()
    model, x = made.model.eval(), torch.randn(N, 4, device=DEVICE)
    lazy = NormalisedGraph(edges().to(DEVICE), N, model.operators)
    nodes = torch.tensor([5, 0, 39, 3], device=DEVICE)
    monkeypatch.setattr(fused, "on_gpu", lambda tensor: True)
    exact = lazy.sampled_field(nodes, (4, 3), 7)
    seed = torch.full((1,), 7, device=DEVICE)
    padded, sizes = lazy.padded_field(nodes, (4, 3), seed, (21, N))
    assert sizes[:, 0].tolist() == [4, exact.blocks[1].num_src, len(exact.nodes)]
    assert [block.num_src for block in padded.blocks] == [N, 21]
    results = []
    for field in (exact, padded):
        for parameter in model.parameters():
            parameter.grad = None
        logits = model(x[field.nodes], field.blocks).logits
        logits.square().sum().backward()
        grads = [p.grad for p in model.parameters() if p.grad is not None]
        results.append([logits, *grads])
    for mine, theirs in zip(*results, strict=True):
        assert torch.allclose(mine, theirs, atol=1e-12)


@needs_triton
def test_beyond_the_capacity_a_node_reads_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fused, "on_gpu", lambda tensor: True)
    lazy = NormalisedGraph(edges().to(DEVICE), N, [Operator("sum")])
    nodes, seed = torch.tensor([5, 0], device=DEVICE), torch.zeros(1, device=DEVICE).long()
    field, sizes = lazy.padded_field(nodes, (4, 3), seed, (6, 9))
    assert int(sizes[1, 0]) > 6
    assert int(sizes[2, 0]) > 9
    for block in field.blocks:
        pattern = block.matrices[Operator("sum")].pattern
        used = int(pattern.rowptr[-1])
        assert int(pattern.col[:used].max()) < block.num_src
    again, _ = lazy.padded_field(nodes, (4, 3), seed, (21, N))
    assert len(again.nodes[:4].unique()) == 4  # no position was left behind
    assert torch.equal(again.nodes[:2], nodes)


@needs_triton
@pytest.mark.parametrize("kind", ["mean", "renormalised", "sum"])
def test_the_kernel_draws_the_same_neighbours_as_plain_code(
    kind: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without a GPU, Triton's interpreter runs the kernel."""
    operator, nodes = Operator(kind), torch.tensor([5, 0, 39, 3])
    weight = torch.rand(edges().shape[1])
    plain = NormalisedGraph(edges(), N, [operator], edge_weight=weight)
    expected = [plain.sampled_field(nodes, (30, 4), seed) for seed in range(3)]
    monkeypatch.setattr(fused, "on_gpu", lambda tensor: True)
    kernel = NormalisedGraph(edges().to(DEVICE), N, [operator], edge_weight=weight.to(DEVICE))
    for seed, theirs in enumerate(expected):
        mine = kernel.sampled_field(nodes.to(DEVICE), (30, 4), seed)
        assert mine.nodes[:4].tolist() == nodes.tolist()
        assert len(mine.nodes.unique()) == len(mine.nodes)
        for block in range(2):
            matrices = []
            for field in (mine, theirs):
                matrix, ids = field.blocks[block].matrices[operator], field.nodes.cpu()
                places = ids[matrix.pattern.row.cpu()], ids[matrix.pattern.col.cpu()]
                dense = torch.zeros(N, N)
                matrices.append(dense.index_put(places, matrix.value.cpu(), accumulate=True))
            torch.testing.assert_close(*matrices)


def test_neighbours_do_not_depend_on_the_other_nodes() -> None:
    lazy = NormalisedGraph(edges(), N, [Operator("sum")])
    both, one = (lazy.sampled_field(torch.tensor(ids), (5,), 3) for ids in ([4, 0], [0]))
    read = []
    for field, row in ((both, 1), (one, 0)):
        pattern = field.blocks[0].matrices[Operator("sum")].pattern
        read.append(
            field.nodes[pattern.col[pattern.rowptr[row] : pattern.rowptr[row + 1]]].tolist()
        )
    assert read[0] == read[1]
    assert len(read[0]) == 6  # five neighbours, and the place of a self-loop


def test_readers_of_a_node_are_the_targets_of_its_edges(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(graph_module, "ENTRIES_AT_ONCE", 7)
    source, target = edges()
    is_edge = source != target  # no self-loop
    expected = torch.bincount(source[is_edge], minlength=N)
    found = NormalisedGraph(edges(), N, [Operator("mean")]).num_readers()
    assert torch.equal(found.long(), expected)
    both = [Operator("mean"), Operator("mean", "against")]
    around = NormalisedGraph(edges(), N, both).num_readers()
    assert torch.equal(
        around.long(), expected + torch.bincount(target[source != target], minlength=N)
    )


def test_only_a_graph_on_a_gpu_has_a_kernel(monkeypatch: pytest.MonkeyPatch) -> None:
    lazy = NormalisedGraph(edges(), N, [Operator("mean")])
    for on_gpu in (False, True):
        monkeypatch.setattr(fused, "on_gpu", lambda tensor, found=on_gpu: found)
        assert lazy.has_kernel((3, 2)) == lazy.can_be_padded((3, 2)) == on_gpu
        assert not lazy.has_kernel((3, -1))
