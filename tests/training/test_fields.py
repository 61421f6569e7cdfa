from dataclasses import replace

import pytest
import torch
from torch import Tensor

from canet.data.task import ShiftTask
from canet.methods import BACKBONES, METHODS, Batch
from canet.nn import NormalisedGraph, SparseMatrix
from canet.training.fields import TaskFields
from canet.util.sparse import components
from tests.support.small_task import with_columns
from tests.support.tiny import NUM_ID, NUM_NODES, tiny_task

CPU = torch.device("cpu")
LAYERS = 2


def method_for(task: ShiftTask, name: str = "erm", backbone: str = "gcn"):
    torch.manual_seed(0)
    kind = METHODS[name]
    settings = kind.settings_type(hidden=8, num_layers=LAYERS)
    return kind(settings, backbone, task.num_features, task.num_classes).eval()


def fields_of(task: ShiftTask) -> TaskFields:
    return TaskFields(task, method_for(task).model.operators, LAYERS, CPU)


def numbered(task: ShiftTask) -> ShiftTask:
    """The task with the node's number as its only feature."""
    return with_columns(task, x=torch.arange(float(NUM_NODES))[:, None])


def nodes_in(batch: Batch) -> list[int]:
    """Node ids in a batch of a numbered task, in its order."""
    assert isinstance(batch.x, Tensor)
    return batch.x[:, 0].int().tolist()


def reach(edges: Tensor, nodes: Tensor, hops: int) -> set[int]:
    """Nodes from which a path of at most `hops` edges leads to `nodes`."""
    reached = set(nodes.tolist())
    for _ in range(hops):
        reached |= {source for source, target in edges.T.tolist() if target in reached}
    return reached


@pytest.mark.parametrize("inductive", [False, True])
def test_batch_reads_exactly_the_nodes_that_reach_its_split(inductive: bool) -> None:
    task = numbered(tiny_task(inductive=inductive))
    fields = fields_of(task)
    for split, nodes in task.splits().items():
        shifted = split.startswith("ood/")
        edges = task.data.edge_index if shifted else task.training_graph().edge_index
        read = nodes_in(fields.batch(split))
        assert len(read) == len(set(read))
        assert set(read) == reach(edges, nodes, LAYERS)
        assert read[: nodes.numel()] == nodes.tolist()


def test_in_distribution_nodes_without_a_split_are_observed() -> None:
    task = numbered(tiny_task(inductive=True))
    read = nodes_in(fields_of(replace(task, test_id=task.test_id[:1])).batch("train"))
    assert set(read) & set(task.test_id[1:].tolist())


@pytest.mark.parametrize("backbone", BACKBONES)
@pytest.mark.parametrize("name", ["erm", "canet"])
@pytest.mark.parametrize("sparse", [False, True], ids=["dense", "sparse"])
def test_prediction_from_a_batch_is_that_from_the_whole_graph(
    name: str, backbone: str, sparse: bool
) -> None:
    task = tiny_task(sparse=sparse)
    method = method_for(task, name, backbone)
    fields = TaskFields(task, method.model.operators, LAYERS, CPU)
    whole = NormalisedGraph(task.data.edge_index, NUM_NODES, method.model.operators).whole(LAYERS)
    x = task.data.x.to_dense() if sparse else task.data.x
    expected = method.predict(Batch(x, whole.blocks, task.data.y))
    for split, nodes in task.splits().items():
        batch = fields.batch(split)
        assert isinstance(batch.x, SparseMatrix if sparse else Tensor)
        assert batch is fields.batch(split)
        assert batch.y.equal(task.data.y[nodes])
        torch.testing.assert_close(method.predict(batch), expected[nodes])


def test_only_training_nodes_carry_environments_and_they_count_from_zero() -> None:
    task = tiny_task()
    task = with_columns(task, environment=3 + 2 * task.data.environment)
    fields = fields_of(task)
    environment = fields.batch("train").environment
    ids = task.training_environments()
    assert environment is not None
    assert ids[environment].equal(task.data.environment[task.train])
    assert fields.batch("valid").environment is None


def test_view_shows_only_what_exists_at_training_time() -> None:
    task = replace(tiny_task(), inductive=True)
    view = fields_of(task).view()
    assert view.observed.equal(task.in_distribution.nonzero().squeeze(1))
    assert task.in_distribution[view.edge_index].all()
    assert view.train.equal(task.train)
    x, blocks = view.read(task.valid)
    batch = fields_of(task).batch("valid")
    assert blocks[-1].num_dst == task.valid.numel()
    assert x.shape == batch.x.shape


def in_graphs(task: ShiftTask) -> ShiftTask:
    """The task with graphs of twenty nodes each, and no edges between them."""
    batch, edges = torch.arange(NUM_NODES) // 20, task.data.edge_index
    inside = batch[edges]
    return with_columns(task, batch=batch, edge_index=edges[:, inside[0] == inside[1]][:, ::4])


@pytest.mark.parametrize("given", [False, True], ids=["components", "given"])
def test_whole_graphs_are_components_or_given_by_the_task(given: bool) -> None:
    task = numbered(in_graphs(tiny_task()))
    if not given:
        task = with_columns(task, batch=None)
    operators = method_for(task, backbone="transformer").model.operators
    read = set(nodes_in(TaskFields(task, operators, LAYERS, CPU).batch("train")))
    graph = task.data.batch if given else components(task.data.edge_index, NUM_NODES)
    assert read == set(torch.isin(graph, graph[task.train]).nonzero().flatten().tolist())
    assert (len(read) == 20) == given


def test_hidden_nodes_are_alone_in_their_graphs_at_training_time() -> None:
    task = numbered(in_graphs(tiny_task(inductive=True)))
    task = with_columns(task, batch=torch.zeros(NUM_NODES, dtype=torch.long))
    operators = method_for(task, backbone="transformer").model.operators
    fields = TaskFields(task, operators, LAYERS, CPU)
    assert sorted(nodes_in(fields.batch("train"))) == list(range(NUM_ID))
    assert sorted(nodes_in(fields.batch("ood/near"))) == list(range(NUM_NODES))
    graph = fields.view().graph
    assert graph is not None
    assert graph[:NUM_ID].unique().tolist() == [0]
    assert graph[NUM_ID:].unique().numel() == NUM_NODES - NUM_ID
