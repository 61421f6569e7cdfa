from functools import partial
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.autograd import gradcheck
from torch.nn import functional as F

from canet.errors import InputError
from canet.nn import BACKBONES, CaNet, GraphModel, NormalisedGraph
from canet.nn.backbones.transformer import TransformerBranches
from canet.nn.membership import Graphs
from canet.nn.operations import attend_globally
from canet.util.sparse import components
from tests.support.layers import ALL, convolved, directions, fields, layer, slow_layer
from tests.support.networks import (
    HIDDEN,
    NUM_CLASSES,
    NUM_FEATURES,
    NUM_NODES,
)

K = 3
COMPONENT = [0, 0, 0, 0, 0, 1, 1, 1, 2, 1]  # component of each node of the small graph
GIVEN = [2, 2, 0, 0, 2, 1, 1, 1, 0, 1]  # splits the first component and joins the last to a part
SIZES = (1, 1, 2, 2, 3, 4, 5, 7, 9, 40)  # sizes of components; 3 and 4, 5 and 7 are padded together
NUM_MANY = sum(SIZES)

ids_of_graphs = pytest.mark.parametrize("ids", [COMPONENT, GIVEN], ids=["components", "given"])
# Smaller and larger than most components, for both orders of products.
widths = pytest.mark.parametrize("hidden", [4, 64])


def plain(num_layers: int = 2, **options: Any) -> GraphModel:
    return BACKBONES["transformer"].plain(
        NUM_FEATURES, NUM_CLASSES, hidden=HIDDEN, num_layers=num_layers, **options
    )


def canet(num_layers: int = 2, **options: Any) -> CaNet:
    return CaNet(
        NUM_FEATURES,
        NUM_CLASSES,
        backbone="transformer",
        hidden=HIDDEN,
        num_layers=num_layers,
        estimator="graph",
        **options,
    )


models = pytest.mark.parametrize("make", [plain, canet])


def links(num_nodes: int) -> Tensor:
    """Edges of a connected graph, i → i // 2 and i → i - 1."""
    pairs = [[i, j] for i in range(1, num_nodes) for j in (i // 2, i - 1)]
    return torch.tensor(pairs, dtype=torch.long).view(-1, 2).T


def many_components() -> tuple[Tensor, tuple[Tensor, ...]]:
    """Edges of a graph with components of different sizes, and their nodes, in random order."""
    parts = torch.randperm(NUM_MANY).split(SIZES)
    return torch.cat([nodes[links(len(nodes))] for nodes in parts], dim=1), parts


# The equations, one node, neighbour and branch at a time ----------------------------------------


def slow_attention(query: Tensor, keys: Tensor, z: Tensor, own: Tensor) -> Tensor:
    """G of a node with state `own` over the states z of its graph."""
    total, denominator = len(z) * own, torch.tensor(float(len(z)))
    for key, state in zip(keys, z, strict=True):
        total = total + (query @ key) * state
        denominator = denominator + query @ key
    return total / denominator


def unit(linear: torch.nn.Linear, state: Tensor) -> Tensor:
    row = linear.weight @ state + linear.bias
    return row / row.square().sum().sqrt()


def slow_branch(branches: TransformerBranches, k: int, u: int, z: Tensor, ids: list[int]) -> Tensor:
    graph = torch.stack([z[v] for v in ALL if ids[v] == ids[u]])
    keys = torch.stack([unit(branches.key, state) for state in graph])
    attended = slow_attention(unit(branches.query, z[u]), keys, graph, z[u])
    return torch.cat([(convolved(branches, u, z) + attended) / 2, z[u]]) @ branches.weight[k]


def numbers(ids: list[int]) -> Tensor | None:
    return None if ids is COMPONENT else torch.tensor(ids)


@directions
@fields
@ids_of_graphs
def test_layer_follows_its_equation(direction: str, nodes: list[int], ids: list[int]) -> None:
    branches = TransformerBranches(HIDDEN, K, direction)
    z, e = torch.randn(NUM_NODES, HIDDEN), torch.rand(len(nodes), K)
    ours = layer(branches, z, e, nodes, numbers(ids))
    theirs = slow_layer(partial(slow_branch, ids=ids), branches, z, e, nodes)
    torch.testing.assert_close(ours, theirs)


@fields
@ids_of_graphs
@pytest.mark.parametrize("hidden", [3, 5])
def test_layer_passes_gradcheck(hidden: int, nodes: list[int], ids: list[int]) -> None:
    branches, z = TransformerBranches(hidden, 2), torch.randn(NUM_NODES, hidden).requires_grad_()
    e, number = torch.rand(len(nodes), 2).requires_grad_(), numbers(ids)
    # gradcheck perturbs its inputs in place, so pass the parameters themselves.
    assert gradcheck(
        lambda *_: layer(branches, z, e, nodes, number),
        (z, e, *branches.parameters()),
        fast_mode=True,
    )


@widths
def test_attention_follows_its_formula_in_graphs_of_all_sizes(hidden: int) -> None:
    graph = torch.repeat_interleave(torch.arange(len(SIZES)), torch.tensor(SIZES))
    graph = graph[torch.randperm(NUM_MANY)]
    readers = torch.randperm(NUM_MANY)[:40]
    z, own = torch.randn(NUM_MANY, hidden), torch.randn(40, hidden)
    # A single node attends to itself.
    alone = torch.tensor(SIZES)[graph[readers]] == 1
    own[alone] = z[readers[alone]]
    query = F.normalize(torch.randn(40, hidden))
    key = F.normalize(torch.randn(NUM_MANY, hidden))
    ours = attend_globally(Graphs(graph[readers], graph), query, key, z, own)
    for row, u in enumerate(readers):
        inside = graph == graph[u]
        expected = slow_attention(query[row], key[inside], z[inside], own[row])
        torch.testing.assert_close(ours[row], expected)


# Several graphs -----------------------------------------------------------------------------------


def test_a_single_node_attends_to_itself() -> None:
    z, key = torch.randn(4, HIDDEN), F.normalize(torch.randn(4, HIDDEN))
    each, one = Graphs(torch.arange(4), torch.arange(4)), torch.tensor([0])
    # If a query is opposite to its key, the formula is 0 / 0.
    assert attend_globally(each, -key, key, z, z).equal(z)
    assert attend_globally(Graphs(one, one), -key[:1], key[:1], z[:1], z[:1]).equal(z[:1])


@pytest.mark.parametrize("num_layers", [1, 2, 3])
def test_field_is_the_graphs_of_its_nodes_in_every_layer(num_layers: int) -> None:
    edges, parts = many_components()
    chosen = [parts[0], parts[4], parts[7]]
    nodes = torch.cat([part[:2] for part in chosen])
    operators = TransformerBranches(HIDDEN, K).operators
    field = NormalisedGraph(edges, NUM_MANY, operators).receptive_field(nodes, num_layers)
    assert field.nodes[: len(nodes)].equal(nodes)
    assert field.nodes.sort().values.equal(torch.cat(chosen).sort().values)
    assert [block.num_src for block in field.blocks] == [len(field.nodes)] * num_layers
    read = [block.num_dst for block in field.blocks]
    assert read == [len(field.nodes)] * (num_layers - 1) + [len(nodes)]


@models
def test_an_edge_of_weight_zero_joins_no_graphs(make: Any) -> None:
    (edges, parts), model = many_components(), make(2).eval()
    x, weight = torch.randn(NUM_MANY, NUM_FEATURES), torch.rand(edges.shape[1]) + 0.5
    joined = torch.cat([edges, torch.stack([parts[6][:1], parts[7][:1]])], dim=1)
    both = torch.cat([weight, torch.zeros(1)])
    torch.testing.assert_close(model(x, joined, both), model(x, edges, weight))
    assert components(joined, NUM_MANY, both).equal(components(edges, NUM_MANY))


@models
@pytest.mark.parametrize("num_layers", [1, 2])
def test_a_repeated_node_is_predicted_twice_and_read_once(make: Any, num_layers: int) -> None:
    (edges, parts), model = many_components(), make(num_layers).eval()
    x, nodes = torch.randn(NUM_MANY, NUM_FEATURES), torch.cat([parts[6], parts[6][:2], parts[6]])
    graph = NormalisedGraph(edges, NUM_MANY, model.operators)
    field = graph.receptive_field(nodes, num_layers)
    whole = model(x, graph.whole(num_layers).blocks).logits
    torch.testing.assert_close(model(x[field.nodes], field.blocks).logits, whole[nodes])


def test_a_width_of_one_is_rejected_with_the_reason() -> None:
    with pytest.raises(InputError, match="hidden=1"):
        TransformerBranches(1, K)
