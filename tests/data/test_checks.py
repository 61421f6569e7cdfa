"""Input validation: which input is accepted, how it is converted, and which is rejected."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
import torch
from torch import Tensor

from canet.data.checks import (
    check_classes,
    check_disjoint,
    check_edges,
    check_features,
    check_metric,
    check_nodes,
    check_times,
    is_one_way,
)
from canet.errors import InputError

pytestmark = pytest.mark.filterwarnings("ignore:Sparse .* tensor support is in beta state")

X = torch.tensor([[0.0, 1.0], [1.0, 0.0], [0.0, 0.0]])
NAN, INF = float("nan"), float("inf")
RING = torch.stack([torch.arange(8), (torch.arange(8) + 1) % 8])


def ids(*nodes: int) -> Tensor:
    return torch.tensor(nodes, dtype=torch.long)


def rejected(check: Callable[..., Any], *arguments: Any, match: str) -> None:
    """Assert that a check raises an `InputError` with one line."""
    with pytest.raises(InputError, match=match) as caught:
        check(*arguments)
    assert "\n" not in str(caught.value)


FORMS: dict[str, Callable[[Tensor], Any]] = {
    "dense": lambda x: x,
    "coo": Tensor.to_sparse,
    "csr": Tensor.to_sparse_csr,
    "csc": Tensor.to_sparse_csc,
    "bsr": lambda x: x.to_sparse_bsr((1, 2)),
    "bsc": lambda x: x.to_sparse_bsc((1, 2)),
    "scipy": lambda x: sp.csc_matrix(x.numpy()),
}


@pytest.mark.parametrize(
    "dtype",
    [torch.float, torch.double, torch.half, torch.bfloat16, torch.long, torch.uint8, torch.bool],
)
@pytest.mark.parametrize("form", list(FORMS)[:-1])
def test_features_of_every_type_and_layout_become_float32(dtype: torch.dtype, form: str) -> None:
    found = check_features(FORMS[form](X.to(dtype)))
    assert found.dtype == torch.float32
    assert found.layout == (torch.strided if form == "dense" else torch.sparse_csr)
    assert found.to_dense().equal(X)


@pytest.mark.parametrize("layout", ["csr", "csc", "coo", "bsr", "dia", "lil", "dok"])
@pytest.mark.parametrize("kind", ["?", "i1", "u8", "f4", "f8", "longdouble"])
def test_scipy_matrices_become_sparse_float32(layout: str, kind: str) -> None:
    given = sp.csr_array(X.numpy()).astype(kind).asformat(layout)
    found = check_features(given)
    assert found.layout == torch.sparse_csr
    assert found.to_dense().equal(torch.from_numpy(given.toarray().astype(np.float32)))
    assert given.dtype == np.dtype(kind)


def test_duplicate_entries_of_a_sparse_matrix_are_summed() -> None:
    indices = [[0, 0, 1], [1, 1, 0]]
    for kind in (torch.float, torch.int8):
        twice = torch.sparse_coo_tensor(indices, torch.tensor([100, 100, 3]).to(kind), (2, 2))
        assert check_features(twice).to_dense().tolist() == [[0, 200], [3, 0]]
    small = sp.coo_matrix((np.array([100, 100, 3], dtype=np.int8), indices), shape=(2, 2))
    assert check_features(small).to_dense().tolist() == [[0, 200], [3, 0]]


@pytest.mark.parametrize("form", FORMS.values(), ids=FORMS)
def test_features_that_are_not_finite_in_float32_are_counted_and_their_columns_named(
    form: Callable[[Tensor], Any],
) -> None:
    x = torch.ones(4, 8, dtype=torch.double)
    x[1, 3] = NAN
    rejected(check_features, form(x), match=r"^x .* 1 entries.* columns 3\b")
    x[2, 3], x[0, 6], x[0, 7] = INF, -INF, 1e300
    rejected(check_features, form(x), match=r" 4 entries.* columns 3, 6, 7\b")
    x[3] = NAN
    rejected(check_features, form(x), match=r" 12 entries.* columns 0, 1, 2, 3, 4 and 3 more")


@pytest.mark.parametrize(
    "x",
    [
        None,
        torch.ones(3),
        torch.ones(3, 2, 2).to_sparse(),
        torch.ones(3, 2).to_sparse(1),
        torch.ones(2, 2, dtype=torch.cfloat),
        torch.ones(2, 2, dtype=torch.cfloat).to_sparse(),
        np.ones((2, 2), dtype=complex),
        sp.csr_matrix(np.ones((2, 2), dtype=complex)),
        [["a", "b"]],
        np.array([[1, 2]], dtype="datetime64[s]"),
        [[1, 2], [3]],
        "degrees",
        torch.sparse_csr_tensor([0, 1], [7], [1.0], (1, 2), check_invariants=False),
        torch.sparse_coo_tensor([[0], [7]], [1.0], (1, 2), check_invariants=False),
        torch.ones(0, 3),
        torch.ones(3, 0).to_sparse(),
        sp.csr_array((np.ones(1), [99], [0, 1]), (1, 2)),
        sp.csc_array((np.ones(1), [99], [0, 1, 1]), (1, 2)),
    ],
)
def test_features_that_are_not_a_matrix_of_real_numbers_are_rejected(x: Any) -> None:
    rejected(check_features, x, match=r"\bx\b")


def test_lists_of_rows_are_features_and_tensors_are_not_copied() -> None:
    assert check_features(X.tolist()).equal(X)
    assert check_features(X.numpy().astype(np.longdouble)).equal(X)
    assert not check_features(X.clone().requires_grad_()).requires_grad
    assert check_features(X).data_ptr() == X.data_ptr()


@pytest.mark.parametrize(
    "edges",
    [
        [[0, 1], [1, 2]],
        np.array([[0, 1], [1, 2]], dtype=np.uint64),
        np.array([[0, 1], [1, 2]], dtype=">i4"),
        torch.tensor([[0, 1], [1, 2]], dtype=torch.uint8),
        torch.tensor([[0, 1], [1, 2]]).t().contiguous().t(),
    ],
)
def test_edges_become_int64(edges: Any) -> None:
    found = check_edges(edges, 3)
    assert found.dtype == torch.long
    assert found.is_contiguous()
    assert found.tolist() == [[0, 1], [1, 2]]


@pytest.mark.parametrize("edges", [[], [[], []], torch.empty(2, 0), np.empty((0, 2), dtype=int)])
def test_a_graph_may_have_no_edges(edges: Any) -> None:
    found = check_edges(edges, 3)
    assert found.shape == (2, 0)
    assert found.dtype == torch.long


@pytest.mark.parametrize(
    ("edges", "cause"),
    [
        (None, "edge_index"),
        ([[0, 1, 2], [1, 3, 0]], r"edge_index contains node 3.*3 rows.*1 of 3 edges.*column 1"),
        ([[0, 1, -1], [1, -2, 0]], r"edge_index contains node -2.*2 of 3 edges.*column 1"),
        (np.array([[2**64 - 1], [0]], dtype=np.uint64), "edge_index"),
        ([[0.0, 1.0], [1.0, 2.0]], r"edge_index.*float64.*\.long\(\)"),
        ([[True, False], [False, True]], "edge_index"),
        (torch.ones(2, 2, dtype=torch.cfloat), "edge_index"),
        ([["a", "b"], ["b", "c"]], "edge_index"),
        (ids(0, 1), "edge_index"),
        ([[0, 1], [1, 2], [2, 0]], r"edge_index has shape \[3, 2\].*\.t\(\)"),
        ([[0, 1, 2]], "edge_index"),
        (torch.zeros(2, 2, 2, dtype=torch.long), "edge_index"),
        (sp.eye(3, format="csr"), "edge_index"),
    ],
)
def test_wrong_edges_are_rejected(edges: Any, cause: str) -> None:
    rejected(check_edges, edges, 3, match=cause)


@pytest.mark.parametrize(
    ("nodes", "found"),
    [
        ([True, False, True], [0, 2]),
        (torch.tensor([[True], [False], [True]]), [0, 2]),
        (np.array([False, False, False]), []),
        ([2, 0], [2, 0]),
        (torch.tensor([[2], [0]], dtype=torch.int8), [2, 0]),
        (np.array([2, 0], dtype=np.uint64), [2, 0]),
        (range(3), [0, 1, 2]),
        ([], []),
    ],
)
def test_masks_and_ids_become_ids_in_their_order(nodes: Any, found: list[int]) -> None:
    chosen = check_nodes(nodes, 3, "train")
    assert chosen.dtype == torch.long
    assert chosen.tolist() == found


@pytest.mark.parametrize(
    "nodes",
    [
        [True, False],
        torch.ones(3, 10).bool(),
        [0, 3],
        [-1, 1],
        [0, 1, 0],
        torch.tensor([1, 0, 1], dtype=torch.uint8),
        [0.0, 1.0],
        ["a"],
        torch.zeros(1, 1, 1),
        1,
    ],
    ids=str,
)
def test_wrong_node_sets_are_rejected(nodes: Any) -> None:
    rejected(check_nodes, nodes, 3, "train", match="^train ")


def test_splits_that_overlap_are_rejected_with_an_example_node() -> None:
    sets = {"train": ids(0, 1), "valid": ids(2), "test": ids(3, 1, 0, 2)}
    rejected(check_disjoint, sets, 5, match=r"train and test .*\b2 nodes.* such as node 1\b")
    rejected(check_disjoint, {"a": ids(4), "b": ids(4)}, 5, match="a and b .* such as node 4")
    check_disjoint({"train": ids(0, 1), "valid": ids(4, 2)}, 5)
    rejected(check_disjoint, {"train": ids(0), "valid": ids()}, 3, match="valid")


def test_classes_without_training_nodes_are_rejected_and_listed() -> None:
    check_classes(ids(1, 0, 2, 1), 3)
    rejected(check_classes, ids(0, 2, 4), 5, match=r"2 of the 5 classes \(1, 3\)")
    rejected(check_classes, ids(0, 0), 1, match="one class")
    cause = rf"{2**62 - 1:,} of the {2**62 + 1:,} classes \(2, 3, 4, 5, 6 and {2**62 - 6:,}"
    rejected(check_classes, ids(0, 1), 2**62 + 1, match=cause)  # a short list


@pytest.mark.parametrize(
    ("metric", "nearest"),
    [
        ("acuracy", "'accuracy'"),
        ("roc-auc", "'roc_auc'"),
        *((wrong, "metric") for wrong in (None, 3, ["accuracy"], "", max)),
    ],
)
def test_an_unknown_metric_is_rejected_and_a_similar_one_suggested(
    metric: Any, nearest: str
) -> None:
    rejected(check_metric, metric, 2, match=nearest)


def test_roc_auc_is_rejected_unless_there_are_two_classes() -> None:
    rejected(check_metric, "roc_auc", 3, match="roc_auc")
    rejected(check_metric, "roc_auc", 2, ids(1, 1), match="valid.*roc_auc")
    check_metric("roc_auc", 2, ids(1, 0))
    for metric, classes in (("roc_auc", 2), ("macro_f1", 7), ("accuracy", 2)):
        check_metric(metric, classes)


@pytest.mark.parametrize(
    ("times", "found"),
    [
        ([3, 1, 2], [3, 1, 2]),
        ([2.5, -1.0, 2.5], [2.5, -1, 2.5]),
        (torch.tensor([[3], [1], [2]], dtype=torch.int8), [3, 1, 2]),
        ([True, False, True], [1, 0, 1]),
        (np.array(["1970-01-02", "1970-01-01", "1969-12-31"], "M8[D]"), [86400, 0, -86400]),
        (np.array([1_000, 1_001, 1], "M8[ms]"), [1, 1.001, 0.001]),
        (np.array([2_000_000_000, 0, 1_000], "M8[ns]"), [2, 0, 0.000001]),
    ],
)
def test_times_become_numbers_and_dates_become_seconds(times: Any, found: list[float]) -> None:
    assert check_times(times, 3).dtype == np.float64
    assert check_times(times, 3).tolist() == found


@pytest.mark.parametrize(
    "times",
    [
        [1, NAN, INF],
        np.array(["2020", "NaT", "2021"], "M8[D]"),
        [1, 2],
        torch.zeros(3, 2),
        ["2020-01-01"] * 3,
        [None, 1, 2],
        [1j, 2, 3],
        np.array([1, 2, 3], "m8[s]"),
        "year",
    ],
    ids=str,
)
def test_wrong_times_are_rejected(times: Any) -> None:
    rejected(check_times, times, 3, match="^time ")


def test_few_edges_and_self_loops_are_not_one_way() -> None:
    assert not is_one_way(RING[:, :7])
    assert not is_one_way(torch.arange(20).expand(2, 20))
    assert not is_one_way(torch.empty(2, 0, dtype=torch.long))
    assert is_one_way(torch.cat([RING, torch.tensor([[3], [3]])], dim=1))


@pytest.mark.parametrize("seed", range(30))
def test_is_one_way_agrees_with_a_loop_over_the_edges(seed: int) -> None:
    random = np.random.default_rng(seed)
    edges = torch.from_numpy(random.integers(30, size=(2, 60)))
    edges = torch.cat([edges, edges[:, : random.integers(8)].flip(0), edges[:, :5]], dim=1)
    pairs = [(a, b) for a, b in edges.t().tolist() if a != b]
    both_ways = sum((b, a) in pairs for a, b in pairs)
    assert is_one_way(edges) == (both_ways / len(pairs) < 0.1)
