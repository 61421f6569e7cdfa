"""What stands at the door, piece by piece: what is taken, what it becomes, what is refused."""

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
    check_groups,
    check_metric,
    check_nodes,
    check_times,
    one_way,
)
from canet.errors import InputError

pytestmark = pytest.mark.filterwarnings("ignore:Sparse .* tensor support is in beta state")

X = torch.tensor([[0.0, 1.0], [2.0, 0.0], [0.0, 0.0]])
NAN, INF = float("nan"), float("inf")
RING = torch.stack([torch.arange(8), (torch.arange(8) + 1) % 8])


def ids(*nodes: int) -> Tensor:
    return torch.tensor(nodes, dtype=torch.long)


def refused(check: Callable[..., Any], *arguments: Any, match: str) -> None:
    """The door refuses it as bad input, in one line that names the mend after the cause."""
    with pytest.raises(InputError, match=match) as caught:
        check(*arguments)
    assert "\n" not in str(caught.value)
    assert any(mark in str(caught.value) for mark in (": ", "; "))


def as_dense(x: Tensor) -> Any:
    return x


def as_coo(x: Tensor) -> Any:
    return x.to_sparse()


def as_csr(x: Tensor) -> Any:
    return x.to_sparse_csr()


def as_csc(x: Tensor) -> Any:
    return x.to_sparse_csc()


def as_scipy(x: Tensor) -> Any:
    return sp.csc_matrix(x.numpy())


@pytest.mark.parametrize(
    "dtype", [torch.float, torch.double, torch.half, torch.bfloat16, torch.long, torch.uint8]
)
@pytest.mark.parametrize("form", [as_dense, as_coo, as_csr, as_csc])
def test_features_of_every_type_and_layout_become_float32(
    dtype: torch.dtype, form: Callable[[Tensor], Any]
) -> None:
    found = check_features(form(X.to(dtype)))
    assert found.dtype == torch.float32
    assert found.layout == (torch.strided if form is as_dense else torch.sparse_csr)
    assert found.to_dense().equal(X)


@pytest.mark.parametrize("form", [as_dense, as_coo, as_csr, as_csc, as_scipy])
def test_features_that_are_true_or_false_become_one_or_zero(form: Callable[[Tensor], Any]) -> None:
    assert check_features(form(X.bool())).to_dense().equal(X.bool().float())


@pytest.mark.parametrize("layout", ["csr", "csc", "coo", "bsr", "dia", "lil", "dok"])
@pytest.mark.parametrize("kind", ["?", "i1", "u8", "f4", "f8", "longdouble"])
def test_matrices_of_scipy_become_sparse_float32(layout: str, kind: str) -> None:
    given = sp.csr_matrix(X.numpy()).astype(kind).asformat(layout)
    found = check_features(given)
    assert found.layout == torch.sparse_csr
    assert found.to_dense().equal(torch.from_numpy(given.toarray().astype(np.float32)))
    assert given.dtype == np.dtype(kind)


def test_arrays_of_scipy_become_sparse_too() -> None:
    assert check_features(sp.coo_array(X.numpy())).to_dense().equal(X)


def test_entries_that_stand_twice_in_a_sparse_matrix_add_up() -> None:
    place = [[0, 0, 1], [1, 1, 0]]
    for kind in (torch.float, torch.int8):
        twice = torch.sparse_coo_tensor(place, torch.tensor([100, 100, 3]).to(kind), (2, 2))
        assert check_features(twice).to_dense().tolist() == [[0, 200], [3, 0]]
    small = sp.coo_matrix((np.array([100, 100, 3], dtype=np.int8), place), shape=(2, 2))
    assert check_features(small).to_dense().tolist() == [[0, 200], [3, 0]]


def test_numpy_arrays_and_lists_of_rows_are_features() -> None:
    for kind in (np.float64, np.uint16, np.longdouble):
        assert check_features(X.numpy().astype(kind)).equal(X)
    assert check_features(X.tolist()).equal(X)
    assert not check_features(X.clone().requires_grad_()).requires_grad


def test_32_bit_indices_of_a_sparse_matrix_become_64_bit_ones() -> None:
    csr = X.to_sparse_csr()
    small = torch.sparse_csr_tensor(
        csr.crow_indices().int(), csr.col_indices().int(), csr.values(), csr.shape
    )
    assert check_features(small).col_indices().dtype == torch.long


@pytest.mark.parametrize("form", [as_dense, as_coo, as_csr, as_csc, as_scipy])
def test_nan_and_infinity_are_refused_with_their_columns_and_number(
    form: Callable[[Tensor], Any],
) -> None:
    x = torch.ones(4, 8)
    x[1, 3] = NAN
    refused(check_features, form(x), match=r"NaN or infinity .*in column 3; entries in all: 1;")
    x[2, 3], x[0, 6] = INF, -INF
    refused(check_features, form(x), match=r"in columns 3, 6; entries in all: 3;")
    x[3] = NAN
    refused(check_features, form(x), match=r"columns 0, 1, 2, 3, 4 and 3 more; .* all: 11;")


@pytest.mark.parametrize("form", [as_dense, as_coo, as_csr, as_csc, as_scipy])
def test_numbers_too_large_for_float32_are_refused(form: Callable[[Tensor], Any]) -> None:
    x = torch.ones(2, 2, dtype=torch.double)
    x[1, 1] = 1e300
    refused(check_features, form(x), match=r"beyond 3.4e38, where float32 ends.* in column 1")


@pytest.mark.parametrize(
    ("x", "cause"),
    [
        (None, "x is missing: give each node features"),
        (torch.ones(3), r"x has shape \[3\]"),
        (torch.ones(3, 2, 2), r"x has shape \[3, 2, 2\]"),
        (torch.ones(3, 2, 2).to_sparse(), r"x has shape \[3, 2, 2\]"),
        (torch.ones(3).to_sparse(), r"x has shape \[3\]"),
        (torch.ones(3, 2).to_sparse(1), "x is sparse in blocks: convert"),
        (torch.ones(2, 2, dtype=torch.cfloat), "Complex.*: split x"),
        (np.ones((2, 2), dtype=complex), "Complex.*: split x"),
        (sp.csr_matrix(np.ones((2, 2), dtype=complex)), "x holds complex128"),
        ([["a", "b"]], "x holds .* no numbers"),
        (np.array([["a", "b"]]), "x holds text: it must hold numbers"),
        ([[1, 2], [3]], "x is ragged"),
        ("degrees", "x is 'degrees'"),
        (
            torch.sparse_csr_tensor([0, 1], [7], [1.0], (1, 2), check_invariants=False),
            "x is a damaged sparse matrix",
        ),
        (
            torch.sparse_coo_tensor([[0], [7]], [1.0], (1, 2), check_invariants=False),
            "x is a damaged sparse matrix",
        ),
    ],
)
def test_what_is_no_matrix_of_real_numbers_is_refused(x: Any, cause: str) -> None:
    refused(check_features, x, match=cause)


@pytest.mark.parametrize("shape", [(0, 3), (3, 0)])
def test_features_without_nodes_or_columns_are_refused(shape: tuple[int, int]) -> None:
    for empty in (torch.ones(shape), torch.ones(shape).to_sparse(), sp.csr_matrix(shape)):
        with pytest.raises(InputError, match=r"x has 0 (node|feature).* a minimum of 1"):
            check_features(empty)


def test_a_matrix_of_blocks_is_refused_with_the_mend() -> None:
    for blocks in (X[:2].to_sparse_bsr((1, 2)), X[:2].to_sparse_bsc((1, 2))):
        refused(check_features, blocks, match="x is sparse in blocks: convert it with")
        assert check_features(blocks.to_dense().to_sparse_csr()).to_dense().equal(X[:2])


@pytest.mark.parametrize("layout", ["csr", "csc"])
def test_a_damaged_matrix_of_scipy_is_refused(layout: str) -> None:
    damaged = sp.eye(3, format=layout)
    damaged.indices[1] = 99
    refused(check_features, damaged, match="x is a damaged sparse matrix")


def test_a_row_of_scipy_is_no_matrix() -> None:
    row = np.ones(3)
    try:
        given = sp.coo_array(row)
    except (TypeError, ValueError):
        pytest.skip("scipy before 1.13")
    if given.ndim == 1:
        refused(check_features, given, match=r"x has shape \[3\]")


@pytest.mark.parametrize(
    "edges",
    [
        [[0, 1], [1, 2]],
        np.array([[0, 1], [1, 2]], dtype=np.uint64),
        np.array([[0, 1], [1, 2]], dtype=">i4"),
        torch.tensor([[0, 1], [1, 2]], dtype=torch.int16),
        torch.tensor([[0, 1], [1, 2]], dtype=torch.uint8),
        torch.tensor([[0, 1], [1, 2]]).t().contiguous().t(),
    ],
)
def test_edges_become_rows_of_int64(edges: Any) -> None:
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
        (None, "edge_index is missing"),
        ([[0, 1, 2], [1, 3, 0]], r"names nodes 0 to 3, .* 0 to 2 \(1 of 3 edges, .* place 1\)"),
        ([[0, 1, -1], [1, -2, 0]], r"names nodes -2 to 1, .*\(2 of 3 edges, the first at place 1"),
        (np.array([[2**64 - 1], [0]], dtype=np.uint64), "edge_index names nodes"),
        ([[0.0, 1.0], [1.0, 2.0]], r"holds float64, not integers: .*\.long\(\)"),
        (torch.ones(2, 2, dtype=torch.half), "holds float16, not integers"),
        ([[True, False], [False, True]], "holds bool, not integers"),
        (torch.ones(2, 2, dtype=torch.cfloat), "holds complex64, not integers"),
        ([["a", "b"], ["b", "c"]], "edge_index holds .* no numbers"),
        (ids(0, 1), r"has shape \[2\], not \[2, E\]: stack"),
        ([[0, 1], [1, 2], [2, 0]], r"has shape \[3, 2\], not \[2, E\]: turn it with .t\(\)"),
        ([[0, 1, 2]], r"has shape \[1, 3\], not \[2, E\]: stack"),
        (torch.zeros(2, 2, 2, dtype=torch.long), r"has shape \[2, 2, 2\]"),
        (torch.eye(3).to_sparse(), "edge_index is a sparse tensor"),
        (sp.eye(3, format="csr"), "edge_index is a csr_matrix: give a tensor"),
        (5, "edge_index is '5': give a tensor"),
    ],
)
def test_wrong_edges_are_refused(edges: Any, cause: str) -> None:
    refused(check_edges, edges, 3, match=cause)


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
    ("nodes", "cause"),
    [
        ([True, False], "train is a mask of length 2 and the graph has 3 nodes: give"),
        ([True] * 4, "train is a mask of length 4 and the graph has 3 nodes"),
        (np.array([], dtype=bool), "train is a mask of length 0"),
        (torch.ones(3, 10).bool(), r"train has shape \[3, 10\].*: choose one column.*\[:, 0\]"),
        ([0, 3], "train names nodes 0 to 3, the graph has 0 to 2"),
        ([-1, 1], "train names nodes -1 to 1"),
        ([0, 1, 0], "train names some node twice.*boolean"),
        (torch.tensor([1, 0, 1], dtype=torch.uint8), "train names some node twice.*boolean"),
        ([0.0, 1.0], "train holds float64: give a boolean mask or node ids"),
        (["a"], "train holds .* no numbers"),
        (torch.tensor(1), r"train has shape \[\], not \[nodes\]: give a boolean mask or ids"),
        (torch.zeros(1, 1, 1), r"train has shape \[1, 1, 1\], not \[nodes\]: give"),
        (1, "train is '1': give a tensor"),
        ({1}, "train is a set: give a tensor"),
        (torch.ones(3).bool().to_sparse(), "train is a sparse tensor: give a dense one"),
    ],
)
def test_wrong_node_sets_are_refused(nodes: Any, cause: str) -> None:
    refused(check_nodes, nodes, 3, "train", match=cause)


def test_sets_that_overlap_are_refused_with_a_node_of_both() -> None:
    sets = {"train": ids(0, 1), "valid": ids(2), "test": ids(3, 1, 0, 2)}
    refused(
        check_disjoint, sets, 5, match=r"train and test overlap \(nodes in both: 2, such as 1\)"
    )
    refused(check_disjoint, {"a": ids(4), "b": ids(4)}, 5, match="a and b overlap.* such as 4")
    check_disjoint({"train": ids(0, 1), "valid": ids(4, 2)}, 5)


def test_an_empty_set_is_refused() -> None:
    refused(check_disjoint, {"train": ids(0), "valid": ids()}, 3, match="valid is empty: put")


def test_training_on_one_class_is_refused() -> None:
    refused(check_classes, ids(0, 0), 1, match="of one class: there is nothing to tell apart")


def test_classes_without_training_nodes_are_refused_by_name() -> None:
    check_classes(ids(1, 0, 2, 1), 3)
    refused(check_classes, ids(0, 2, 4), 5, match=r"train lacks 2 of 5 classes \(1, 3\): number")


@pytest.mark.parametrize("label", [100_000, 10**6, 2**62])
def test_a_stray_label_does_not_make_as_many_classes(label: int) -> None:
    cause = rf"train lacks {label - 1:,} of {label + 1:,} classes \(2, 3, 4, 5, 6 and {label - 6:,}"
    refused(check_classes, ids(0, 1), label + 1, match=cause)


@pytest.mark.parametrize(
    ("metric", "nearest"), [("acuracy", "accuracy"), ("roc-auc", "roc_auc"), ("macro-f1", "macro")]
)
def test_a_misspelt_metric_is_refused_with_the_nearest(metric: str, nearest: str) -> None:
    refused(check_metric, metric, 2, match=f"unknown metric '{metric}': did you mean '{nearest}")


@pytest.mark.parametrize("metric", [None, 3, ["accuracy"], "", max])
def test_what_is_no_metric_at_all_is_refused(metric: Any) -> None:
    refused(check_metric, metric, 2, match="unknown metric .*valid are accuracy, roc_auc")


def test_a_metric_for_two_classes_is_refused_for_others() -> None:
    refused(check_metric, "roc_auc", 3, match="roc_auc is for two classes and there are 3: take")
    for metric, classes in (("roc_auc", 2), ("macro_f1", 7), ("accuracy", 2)):
        check_metric(metric, classes)


@pytest.mark.parametrize(
    ("groups", "names", "numbers"),
    [
        (["de", "fr", "de", None], ["de", "fr"], [0, 1, 0, -1]),
        (torch.tensor([[7], [-1], [3], [7]]), [3, 7], [1, -1, 0, 1]),
        (np.array([2.0, NAN, 2.0, 0.0]), [0, 2], [1, -1, 1, 0]),
        ([True, False, True, True], [False, True], [1, 0, 1, 1]),
        ([-1, -1, -1, -1], [], [-1, -1, -1, -1]),
    ],
)
def test_groups_are_numbered_in_the_order_of_their_names(
    groups: Any, names: list[Any], numbers: list[int]
) -> None:
    found, number = check_groups(groups, 4, "environment")
    assert found.tolist() == names
    assert number.tolist() == numbers


def test_wrong_groups_are_refused_by_the_name_of_their_column() -> None:
    refused(check_groups, [0.5, 1.0], 2, "environment", match="environment holds 0.5")
    refused(check_groups, [0], 2, "graph", match="graph has 1 labels and the graph 2 nodes: ")


@pytest.mark.parametrize(
    ("times", "found"),
    [
        ([3, 1, 2], [3, 1, 2]),
        ([2.5, -1.0, 2.5], [2.5, -1, 2.5]),
        (torch.tensor([[3], [1], [2]], dtype=torch.int8), [3, 1, 2]),
        (torch.tensor([3, 1, 2], dtype=torch.bfloat16), [3, 1, 2]),
        (np.array([3, 1, 2], dtype=">u8"), [3, 1, 2]),
        ([True, False, True], [1, 0, 1]),
        (np.array(["1970-01-02", "1970-01-01", "1969-12-31"], "M8[D]"), [86400, 0, -86400]),
        (np.array(["1970", "1971", "1972"], "M8[Y]"), [0, 365 * 86400, 730 * 86400]),
        (np.array([1_000, 1_001, 1], "M8[ms]"), [1, 1.001, 0.001]),
        (np.array([2_000_000_000, 0, 1_000], "M8[ns]"), [2, 0, 0.000001]),
    ],
)
def test_times_are_numbers_and_dates_seconds(times: Any, found: list[float]) -> None:
    assert check_times(times, 3).dtype == np.float64
    assert check_times(times, 3).tolist() == found


@pytest.mark.parametrize(
    ("times", "cause"),
    [
        ([1, NAN, INF], "time is missing for 2 nodes: give each node a time"),
        (np.array(["2020", "NaT", "2021"], "M8[D]"), "time is missing for 1 nodes"),
        ([1, 2], r"time has shape \[2\] and the graph 3 nodes: give one time a node"),
        (torch.zeros(3, 2), r"time has shape \[3, 2\]"),
        (["2020-01-01"] * 3, "time holds text.*: give numbers, or dates"),
        (np.array(["2020"] * 3), "time holds text: give numbers, or dates"),
        ([None, 1, 2], "time holds .*objects: give numbers, or dates"),
        ([1j, 2, 3], "time holds complex128: give numbers"),
        (np.array([1, 2, 3], "m8[s]"), r"time holds timedelta64\[s\]: give numbers"),
        ("year", "time is 'year': give"),
    ],
)
def test_wrong_times_are_refused(times: Any, cause: str) -> None:
    refused(check_times, times, 3, match=cause)


def test_a_ring_stored_one_way_is_told_from_one_stored_both_ways() -> None:
    assert one_way(RING)
    assert not one_way(torch.cat([RING, RING.flip(0)], dim=1))
    assert not one_way(torch.cat([RING, RING[:, 3:4].flip(0)], dim=1))


def test_a_few_edges_may_have_no_reverse_by_chance_and_loops_have_none() -> None:
    assert not one_way(RING[:, :7])
    assert not one_way(torch.arange(20).expand(2, 20))
    assert not one_way(torch.empty(2, 0, dtype=torch.long))
    assert one_way(torch.cat([RING, torch.tensor([[3], [3]])], dim=1))
