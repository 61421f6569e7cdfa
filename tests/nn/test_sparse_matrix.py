import pytest
import torch
from torch import Tensor

from canet.nn import SparseMatrix, sparse_matrix
from canet.nn.operations import multiply
from tests.support.sparse import from_entries

# Row 1 and columns 1 and 4 are empty; (0, 2) occurs twice; entries are in random order.
ROW = torch.tensor([3, 0, 2, 0, 0, 3, 2])
COL = torch.tensor([0, 2, 3, 0, 2, 3, 0])
SHAPE = (4, 5)
NONE = torch.empty(0, dtype=torch.long)


def sample() -> SparseMatrix:
    return from_entries(ROW, COL, torch.randn(len(ROW)), SHAPE)


def without_entries() -> SparseMatrix:
    return from_entries(NONE, NONE, torch.empty(0), SHAPE)


def dense(matrix: SparseMatrix, value: Tensor | None = None) -> Tensor:
    """The same matrix as a plain tensor, entry by entry."""
    value = matrix.value if value is None else value
    rows = [torch.zeros(matrix.shape[1]) for _ in range(matrix.shape[0])]
    bounds = matrix.pattern.rowptr.tolist()
    for row in range(matrix.shape[0]):
        for entry in range(bounds[row], bounds[row + 1]):
            unit = torch.eye(matrix.shape[1])[matrix.pattern.col[entry]]
            rows[row] = rows[row] + value[entry] * unit
    return torch.stack(rows)


both = pytest.mark.parametrize("make", [sample, without_entries])


def test_entries_in_any_order_land_in_their_places_and_duplicates_add_up() -> None:
    value = torch.randn(len(ROW))
    expected = torch.zeros(SHAPE)
    for row, col, number in zip(ROW, COL, value, strict=True):
        expected[row, col] += number
    matrix = from_entries(ROW, COL, value, SHAPE)
    assert matrix.shape == SHAPE
    assert matrix.pattern.nnz == len(ROW)
    torch.testing.assert_close(dense(matrix), expected)
    torch.testing.assert_close(multiply(matrix, torch.eye(5)), expected)


@both
def test_product_is_the_dense_product(make) -> None:
    matrix = make()
    for other in (torch.randn(5, 3), torch.randn(3, 5).t()):
        torch.testing.assert_close(multiply(matrix, other), dense(matrix) @ other)


@both
def test_gradients_of_the_product_are_those_of_the_dense_product(make) -> None:
    matrix = make()
    value, other = matrix.value.clone().requires_grad_(), torch.randn(5, 3, requires_grad=True)
    weight = torch.randn(4, 3)
    ours = (multiply(SparseMatrix(matrix.pattern, value), other) * weight).sum()
    theirs = ((dense(matrix, value) @ other) * weight).sum()
    expected = torch.autograd.grad(
        theirs, [value, other], allow_unused=True, materialize_grads=True
    )
    for got, wanted in zip(torch.autograd.grad(ours, [value, other]), expected, strict=True):
        torch.testing.assert_close(got, wanted)


def test_a_product_with_more_entries_than_places_has_a_gradient() -> None:
    """As of one node with two double edges, the rest of a batch."""
    row, col = torch.zeros(4, dtype=torch.long), torch.tensor([2, 1, 2, 1])
    matrix, other = from_entries(row, col, torch.randn(4), (1, 3)), torch.randn(3, 2)
    value = matrix.value.clone().requires_grad_()
    multiply(SparseMatrix(matrix.pattern, value), other).sum().backward()
    torch.testing.assert_close(value.grad, other.sum(dim=1)[matrix.pattern.col.long()])


def test_a_matrix_used_twice_gives_the_right_gradient_each_time() -> None:
    matrix = sample()
    for _ in range(2):
        other = torch.randn(5, 3, requires_grad=True)
        multiply(matrix, other).sum().backward()
        torch.testing.assert_close(other.grad, dense(matrix).T @ torch.ones(4, 3))


@both
def test_transpose_is_the_dense_transpose(make) -> None:
    matrix = make()
    torch.testing.assert_close(dense(matrix.transposed), dense(matrix).T)
    pattern, entry = matrix.pattern.transposed
    assert pattern.row.equal(matrix.pattern.col[entry])
    assert pattern.col.equal(matrix.pattern.row[entry])


@both
def test_gathers_read_the_row_and_the_column_of_every_entry(make) -> None:
    pattern = make().pattern
    by_row, by_col = torch.randn(4, 2), torch.randn(5, 2)
    rows = [row for row in range(4) for _ in range(pattern.rowptr.diff()[row])]
    expected = torch.stack([by_row[row] for row in rows]) if rows else torch.empty(0, 2)
    assert pattern.at_rows(by_row).equal(expected)
    assert pattern.at_cols(by_col).equal(by_col[pattern.col.long()])


def test_sums_and_maxima_are_taken_over_each_row_and_column() -> None:
    pattern = sample().pattern
    entries = torch.randn(pattern.nnz, 2)
    for view in (entries, entries.T.contiguous().T):
        total, largest = pattern.sum_rows(view), pattern.max_rows(view)
        for row in range(4):
            own = view[pattern.row == row]
            torch.testing.assert_close(total[row], own.sum(dim=0))
            if len(own):
                assert largest[row].equal(own.max(dim=0).values)
    for col, total in enumerate(pattern.sum_cols(entries)):
        torch.testing.assert_close(total, entries[pattern.col == col].sum(dim=0))


def test_without_entries_sums_are_zero() -> None:
    assert without_entries().pattern.sum_rows(torch.empty(0, 2)).equal(torch.zeros(4, 2))


@pytest.mark.parametrize("rows", [[2, 0], [1], [3, 3, 1, 0], []])
@both
def test_selected_rows_come_in_their_order(make, rows: list[int]) -> None:
    matrix = make()
    selected = matrix.select_rows(torch.tensor(rows, dtype=torch.long))
    assert selected.shape == (len(rows), 5)
    expected = dense(matrix)[rows] if rows else torch.empty(0, 5)
    torch.testing.assert_close(multiply(selected, torch.eye(5)), expected)


@pytest.mark.parametrize("length", [1, 2, 256])
@both
def test_segments_hold_every_entry_of_each_row_once(
    make, length: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sparse_matrix, "SEGMENT", length)
    pattern = make().pattern
    cut = pattern.segments
    bounds, slots = pattern.rowptr.tolist(), []
    for row in range(4):
        is_empty = cut.slot == cut.num_slots - 1 if cut.num_slots else cut.slot < -1
        mine = ((cut.row == row) & ~is_empty).nonzero().flatten().tolist()
        entries = [e for i in mine for e in range(int(cut.begin[i]), int(cut.end[i]))]
        assert entries == list(range(bounds[row], bounds[row + 1]))
        assert all(int(cut.end[i] - cut.begin[i]) <= length for i in mine)
        if len(mine) == 1:
            assert cut.slot[mine] == -1
        else:
            i = cut.long_row.tolist().index(row)
            expected = list(range(int(cut.first_slot[i]), int(cut.first_slot[i + 1])))
            assert cut.slot[mine].tolist() == expected
            slots += expected
    assert slots == list(range(len(slots)))
    assert not slots or len(slots) < cut.num_slots


def test_torch_csr_comes_in_and_goes_out_unchanged() -> None:
    expected = torch.tensor([[0.0, 2.0, 0.0], [0.0, 0.0, 0.0], [1.0, 0.0, -3.0]])
    matrix = SparseMatrix.from_torch(expected.to_sparse_csr())
    assert dense(matrix).equal(expected)
    assert matrix.as_torch.to_dense().equal(expected)
