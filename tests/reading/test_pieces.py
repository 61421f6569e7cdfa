"""Exact predictions in pieces."""

import errno
import os
import tempfile
from typing import Any

import pytest
import torch
from torch import Tensor

from canet.errors import InputError
from canet.methods import BACKBONES, get_method
from canet.nn import NormalisedGraph
from canet.reading import pieces
from canet.reading.pieces import Pieces
from canet.util.files import WriteError
from canet.util.sparse import components

N = 60


@pytest.fixture(autouse=True)
def double(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setattr(pieces, "EDGES_AT_ONCE", {"cpu": 37, "cuda": 37})
    monkeypatch.setattr(pieces, "ROWS_AT_ONCE", 7)
    torch.set_default_dtype(torch.double)
    yield
    torch.set_default_dtype(torch.float32)


def edges() -> Tensor:
    """Random edges with self-loops; the first node has many, the last none, three are apart."""
    random = torch.Generator().manual_seed(0)
    some = torch.randint(N - 6, (2, 240), generator=random)
    many = torch.stack([torch.arange(1, N - 6), torch.zeros(N - 7).long()])
    small = torch.tensor([[N - 6, N - 5, N - 4], [N - 5, N - 4, N - 6]])
    return torch.cat([some, many, small], dim=1)


def model_of(method: str, backbone: str, **settings: Any) -> Any:
    kind = get_method(method)
    torch.manual_seed(0)
    made = kind(kind.settings_type(hidden=8, **settings), BACKBONES[backbone], 4, 3, 0)
    return made.double().eval().model


CASES: list[tuple[str, str, dict[str, Any]]] = [
    *((method, name, {}) for method in ("erm", "canet") for name in BACKBONES),
    ("erm", "gcn", {"num_layers": 1}),
    ("erm", "gat", {"num_layers": 4, "norm": "layer"}),
    ("erm", "decoupled", {"num_layers": 3}),
    ("canet", "gcn", {"num_layers": 3, "shared_environment": True}),
    ("canet", "gat", {"learned_environment": False}),
    ("canet", "sage", {"direction": "against"}),
    ("erm", "transformer", {"direction": "against", "num_layers": 3}),
]


@pytest.mark.parametrize("in_file", [False, True])
@pytest.mark.parametrize("nodes", [None, [41, 0, 59, 3, 41]], ids=["all", "some"])
@pytest.mark.parametrize(("method", "backbone", "settings"), CASES, ids=str)
def test_pieces_give_the_logits_of_the_whole_graph(
    method: str,
    backbone: str,
    settings: dict[str, Any],
    nodes: list[int] | None,
    in_file: bool,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    if in_file:
        monkeypatch.setattr("canet.util.files.BYTES_IN_MEMORY", 0)
    model, x = model_of(method, backbone, **settings), torch.randn(N, 4)
    weight = torch.rand(edges().shape[1]) + 0.5
    graph = NormalisedGraph(edges(), N, model.operators, edge_weight=weight)
    expected = model(x, graph.whole(model.num_layers).blocks)
    chosen = None if nodes is None else torch.tensor(nodes)
    found = list(Pieces(graph, model.num_layers, chosen).predict(model, lambda ids: x[ids]))
    assert len(found) > 1 or nodes is not None
    rows = torch.cat([part for part, _ in found])
    ids = rows if chosen is None else chosen[rows]
    assert ids.tolist() == (list(range(N)) if nodes is None else sorted(nodes))
    for name in ("logits", "embedding"):
        mine = torch.cat([getattr(prediction, name) for _, prediction in found])
        assert torch.allclose(mine, getattr(expected, name)[ids], atol=1e-12)


def test_a_node_with_more_edges_than_a_piece_is_a_piece() -> None:
    lazy = NormalisedGraph(edges(), N, [])
    parts = list(lazy.pieces(None, 10))
    assert torch.equal(torch.cat(parts), torch.arange(N))
    assert parts[0].tolist() == [0]
    degree = torch.bincount(edges()[1][edges()[0] != edges()[1]], minlength=N)
    assert all(len(part) == 1 or int(degree[part].sum()) + len(part) <= 10 for part in parts)


def test_components_are_those_of_scipy() -> None:
    random = torch.Generator().manual_seed(0)
    chain = torch.stack([torch.arange(40, 79), torch.arange(41, 80)]).flip(1)
    some = torch.randint(40, (2, 25), generator=random)
    edge_index = torch.cat([some, chain], dim=1)
    lazy = NormalisedGraph(edge_index, 90, [])
    expected = components(edge_index, 90)
    number, size = lazy.membership
    for node in range(90):
        is_same = expected == expected[node]
        if is_same.sum() == 1:
            assert int(number[node]) == -1
        else:
            assert torch.equal(number == number[node], is_same)
            assert int(size[number[node]]) == int(is_same.sum())


def test_too_many_parts_for_sums_are_rejected(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pieces, "MAX_SUMS", 64)
    model, x = model_of("erm", "transformer"), torch.randn(N, 4)
    lazy = NormalisedGraph(edges(), N, model.operators)
    with pytest.raises(InputError, match="2 connected components"):
        list(Pieces(lazy, 2).predict(model, lambda ids: x[ids]))


def test_a_full_disk_for_states_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("canet.util.files.BYTES_IN_MEMORY", 0)
    monkeypatch.setattr(os, "posix_fallocate", refuse, raising=False)
    model, x = model_of("erm", "gcn"), torch.randn(N, 4)
    lazy = NormalisedGraph(edges(), N, model.operators)
    with pytest.raises(WriteError, match=tempfile.gettempdir()):
        list(Pieces(lazy, model.num_layers).predict(model, lambda ids: x[ids]))
