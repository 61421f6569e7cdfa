import copy
import math

import pytest
import torch
from torch import Tensor
from torch_geometric.nn.conv.gcn_conv import gcn_norm

from canet.methods import Batch, Method, get_method
from canet.nn import Environment, GraphModel, NormalisedGraph, Operator, ReceptiveField
from canet.nn import environment as environment_module
from canet.nn.operations import multiply
from tests.support.networks import (
    CITATIONS,
    EDGES,
    MODELS,
    NO_EDGES,
    NUM_CLASSES,
    NUM_FEATURES,
    NUM_NODES,
    NUM_PAPERS,
    operator_matrix,
)

KINDS = ("symmetric", "renormalised", "mean", "sum", "attention")
DIRECTIONS = ("along", "against")
OPERATORS = [Operator(kind, direction) for kind in KINDS for direction in DIRECTIONS]
SOME_PAPERS = torch.tensor([17, 3, 30])

operators = pytest.mark.parametrize("operator", OPERATORS, ids=str)


def by_hand(
    edges: Tensor, num_nodes: int, operator: Operator, weights: Tensor | None = None
) -> Tensor:
    """Matrix of an operator, computed edge by edge; rows are destinations."""
    given = [1.0] * edges.shape[1] if weights is None else weights.tolist()
    ends = edges if operator.direction == "along" else edges.flip(0)
    triples = [(*pair, weight) for pair, weight in zip(ends.T.tolist(), given, strict=True)]
    if operator.kind in ("renormalised", "attention"):
        triples = [(source, target, w) for source, target, w in triples if source != target]
        triples += [(node, node, 1.0) for node in range(num_nodes)]
    degree = [sum(w for _, target, w in triples if target == node) for node in range(num_nodes)]
    matrix = torch.zeros(num_nodes, num_nodes)
    for source, target, weight in triples:
        if operator.kind in ("symmetric", "renormalised"):
            product = degree[source] * degree[target]
            weight = weight / math.sqrt(product) if product else 0.0
        if operator.kind == "mean":
            weight = weight / degree[target] if weight else 0.0
        matrix[target, source] += weight
    return matrix


def dense(edges: Tensor, num_nodes: int, operator: Operator) -> Tensor:
    return multiply(operator_matrix(edges, num_nodes, operator), torch.eye(num_nodes))


@operators
@pytest.mark.parametrize(
    "weights", [None, torch.linspace(0, 3, EDGES.shape[1])], ids=["one", "any"]
)
def test_operator_is_its_definition(operator: Operator, weights: Tensor | None) -> None:
    weights = None if weights is None else weights.double()
    matrix = operator_matrix(EDGES, NUM_NODES, operator, weights)
    expected = by_hand(EDGES, NUM_NODES, operator, weights)
    torch.testing.assert_close(multiply(matrix, torch.eye(NUM_NODES)), expected)


@operators
def test_operator_without_edges_is_empty_or_the_identity(operator: Operator) -> None:
    loops = operator.kind in ("renormalised", "attention")
    expected = torch.eye(4) if loops else torch.zeros(4, 4)
    assert dense(NO_EDGES, 4, operator).equal(expected)


@pytest.mark.parametrize("direction", DIRECTIONS)
def test_renormalised_is_the_norm_of_gcn_conv(direction: str) -> None:
    edges = EDGES if direction == "along" else EDGES.flip(0)
    index, weight = gcn_norm(edges, num_nodes=NUM_NODES, dtype=torch.float64)
    expected = torch.zeros(NUM_NODES, NUM_NODES)
    expected.index_put_((index[1], index[0]), weight, accumulate=True)
    torch.testing.assert_close(
        dense(EDGES, NUM_NODES, Operator("renormalised", direction)), expected
    )


def test_whole_graph_is_one_block_for_every_layer() -> None:
    field = NormalisedGraph(EDGES, NUM_NODES, OPERATORS).whole(3)
    assert field.nodes.equal(torch.arange(NUM_NODES))
    assert len(field.blocks) == 3
    assert len({id(block) for block in field.blocks}) == 1
    assert len({id(block) for block in field.to("cpu", torch.float32).blocks}) == 1


def test_a_field_changes_type_with_its_matrices() -> None:
    field = NormalisedGraph(EDGES, NUM_NODES, OPERATORS).receptive_field(torch.tensor([2]), 2)
    for block in field.to("cpu", torch.float32).blocks:
        assert set(block.matrices) == set(OPERATORS)
        assert all(matrix.value.dtype == torch.float32 for matrix in block.matrices.values())


OPERATOR_SETS = [
    [Operator("symmetric")],
    [Operator("sum", "against")],
    [Operator("sum", "against"), Operator("symmetric", "along")],
    [Operator("attention", "along"), Operator("symmetric", "against")],
    [Operator("renormalised", "against")],
]


@pytest.mark.parametrize("needed", OPERATOR_SETS, ids=str)
@pytest.mark.parametrize("num_layers", [1, 2, 3])
def test_receptive_field_contains_exactly_the_nodes_within_reach(
    needed: list[Operator], num_layers: int
) -> None:
    whole = {operator: by_hand(CITATIONS, NUM_PAPERS, operator) for operator in needed}
    # An edge stays an entry if a degree of zero makes its weight zero.
    reads = sum(by_hand(CITATIONS, NUM_PAPERS, Operator("sum", op.direction)) for op in needed)
    field = NormalisedGraph(CITATIONS, NUM_PAPERS, needed).receptive_field(SOME_PAPERS, num_layers)
    nodes = field.nodes.tolist()
    assert nodes[:3] == SOME_PAPERS.tolist()
    assert len(field.blocks) == num_layers
    reached = set(SOME_PAPERS.tolist())
    for block in reversed(field.blocks):
        assert block.num_dst == len(reached)
        assert set(nodes[: block.num_dst]) == reached
        reached |= {v for u in reached for v in range(NUM_PAPERS) if reads[u, v]}
        assert block.num_src == len(reached)
        assert set(nodes[: block.num_src]) == reached
        for operator, matrix in block.matrices.items():
            assert matrix.shape == (block.num_dst, block.num_src)
            expected = whole[operator][nodes[: block.num_dst]][:, nodes[: block.num_src]]
            torch.testing.assert_close(multiply(matrix, torch.eye(block.num_src)), expected)
    assert len(nodes) == len(reached) < NUM_PAPERS


def test_a_repeated_node_is_predicted_twice_and_read_once() -> None:
    operator = Operator("symmetric")
    graph = NormalisedGraph(CITATIONS, NUM_PAPERS, [operator])
    field, once = (graph.receptive_field(torch.tensor(ids), 2) for ids in ([4, 4, 9], [4, 9]))
    assert set(field.nodes.tolist()) == set(once.nodes.tolist())
    rows = []
    for one in (field, once):
        last = one.blocks[1]
        rows.append(multiply(last.matrices[operator], one.nodes[: last.num_src, None].double()))
    assert rows[0][1:].equal(rows[1])
    assert rows[0][0] == rows[0][1]


def test_receptive_field_of_an_isolated_node_is_the_node() -> None:
    field = NormalisedGraph(EDGES, NUM_NODES, [Operator("symmetric")]).receptive_field(
        torch.tensor([8]), 2
    )
    assert field.nodes.tolist() == [8]


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("num_layers", [1, 2, 3])
def test_logits_on_the_field_are_those_on_the_whole_graph(name: str, num_layers: int) -> None:
    model: GraphModel = MODELS[name](num_layers=num_layers).eval()
    x = torch.randn(NUM_PAPERS, NUM_FEATURES)
    graph = NormalisedGraph(CITATIONS, NUM_PAPERS, model.operators)
    field = graph.receptive_field(SOME_PAPERS, num_layers)
    whole = model(x, graph.whole(num_layers).blocks)
    part = model(x[field.nodes], field.blocks)
    torch.testing.assert_close(part.logits, whole.logits[SOME_PAPERS])
    torch.testing.assert_close(part.embedding, whole.embedding[SOME_PAPERS])
    for ours, theirs in zip(part.environments, whole.environments, strict=True):
        torch.testing.assert_close(ours.sample[:3], theirs.sample[SOME_PAPERS])


class DrawsOfNodes:
    """Exponential random numbers that depend only on step, layer and node."""

    def __init__(self, nodes: Tensor) -> None:
        self.nodes = nodes
        self.calls = 0

    def __call__(self, like: Tensor) -> Tensor:
        generator = torch.Generator().manual_seed(self.calls)
        self.calls += 1
        uniform = torch.rand(NUM_PAPERS, like.shape[1], generator=generator)
        return -torch.log(uniform)[self.nodes[: like.shape[0]]]


TRAINED = {
    "canet gcn node": ("canet", "gcn", {"estimator": "node"}),
    "canet gcn graph": ("canet", "gcn", {"estimator": "graph"}),
    "canet gcn sum against": (
        "canet",
        "gcn",
        {"estimator": "graph", "propagation": "sum", "direction": "against"},
    ),
    "canet gcn shared": ("canet", "gcn", {"shared_environment": True}),
    "canet gcn mixture": ("canet", "gcn", {"prior": "mixture"}),
    "canet gat node": ("canet", "gat", {"estimator": "node"}),
    "canet gat graph": ("canet", "gat", {"estimator": "graph", "direction": "against"}),
    "canet gat shared": ("canet", "gat", {"shared_environment": True}),
    "gcn": ("erm", "gcn", {}),
    "gat": ("erm", "gat", {"direction": "against"}),
}


def whole_graph_loss(
    method: Method, x: Tensor, field: ReceptiveField, nodes: Tensor, y: Tensor
) -> Tensor:
    """The objective of a method, from a pass over all nodes followed by a selection of `nodes`."""
    prediction = method.model(x, field.blocks)
    loss = method.node_losses(prediction.logits[nodes], y).mean()
    if prediction.environments:
        picked = [
            Environment(environment.log_posterior[nodes], environment.sample[nodes])
            for environment in prediction.environments
        ]
        loss = loss + method.settings.reg_weight * method.divergence(picked, len(nodes))
    return loss


@pytest.mark.parametrize("name", TRAINED)
def test_training_on_the_field_is_training_on_the_whole_graph(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    method_name, backbone, options = TRAINED[name]
    cls = get_method(method_name)
    settings = cls.settings_type(hidden=6, dropout=0.0, learning_rate=0.05, **options)
    on_field = cls(settings, backbone, NUM_FEATURES, NUM_CLASSES)
    on_whole = copy.deepcopy(on_field)
    start = [parameter.detach().clone() for parameter in on_field.parameters()]

    x, nodes = torch.randn(NUM_PAPERS, NUM_FEATURES), torch.tensor([17, 3, 30, 12, 5])
    y = torch.tensor([0, 1, 2, 1, 0])
    graph = NormalisedGraph(CITATIONS, NUM_PAPERS, on_field.model.operators)
    field, whole = graph.receptive_field(nodes, 2), graph.whole(2)
    assert field.nodes.numel() < NUM_PAPERS

    for method, part in ((on_field, field), (on_whole, whole)):
        monkeypatch.setattr(environment_module, "draw", DrawsOfNodes(part.nodes))
        optimizer = torch.optim.Adam(method.parameter_groups(), weight_decay=1e-3)
        for _ in range(8):
            optimizer.zero_grad()
            if part is field:
                loss = method.loss(Batch(x[part.nodes], part.blocks, y))
            else:
                loss = whole_graph_loss(method, x, part, nodes, y)
            loss.backward()
            optimizer.step()

    trained = zip(on_field.parameters(), on_whole.parameters(), start, strict=True)
    for ours, theirs, before in trained:
        assert not torch.allclose(ours, before)
        torch.testing.assert_close(ours, theirs, rtol=1e-8, atol=1e-9)
