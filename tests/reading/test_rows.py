"""Features that are read row by row."""

import pytest
import torch

from canet.methods.base import Scaling
from canet.nn import Features, ShiftedFeatures, SparseMatrix
from canet.reading import rows, scaling
from canet.reading.rows import RowCache, RowReader
from canet.reading.scaling import Scaler, prepare_features
from tests.support.gpu import needs_gpu

CPU = torch.device("cpu")


def matrix(dtype: torch.dtype = torch.float32) -> torch.Tensor:
    random = torch.Generator().manual_seed(0)
    return torch.rand(40, 5, generator=random).mul_(4).sub_(2).relu_().to(dtype)


@pytest.mark.parametrize("num_bytes", [0, 7 * 20, 10**6])
def test_a_cache_returns_the_rows_wherever_they_are(num_bytes: int) -> None:
    x, uses = matrix(), torch.arange(40) % 13
    cache = RowCache(x, uses, num_bytes, CPU)
    for nodes in (torch.tensor([39, 0, 12, 12, 25]), torch.arange(40), torch.tensor([], dtype=int)):
        assert torch.equal(cache.rows(nodes), x[nodes])


def test_a_cache_keeps_the_rows_with_the_most_uses_and_no_more_bytes() -> None:
    x, uses = matrix() + 1, torch.arange(40) % 13
    on_disk = x.clone()
    cache = RowCache(on_disk, uses, 6 * 20 + 19, CPU)
    on_disk.zero_()
    kept = (cache.rows(torch.arange(40)) == x).all(dim=1)
    assert kept.nonzero().squeeze(1).tolist() == [11, 12, 24, 25, 37, 38]


@needs_gpu
@pytest.mark.parametrize("dtype", [torch.float16, torch.float32])
@pytest.mark.parametrize(
    ("on_gpu", "in_memory", "by_gpu"), [(2**30, 0, True), (1000, 2**30, True), (1000, 1000, False)]
)
def test_a_gpu_reads_from_its_memory_or_pinned_memory_by_itself(
    on_gpu: int, in_memory: int, by_gpu: bool, dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda device: (on_gpu, on_gpu))
    monkeypatch.setattr(rows, "free_memory", lambda: in_memory)
    x = matrix(dtype).repeat(5, 1)
    reader = RowReader(x, torch.device("cuda"), lambda: torch.arange(len(x)))
    assert reader.is_read_by_gpu == by_gpu
    nodes = torch.randint(len(x), (100,))
    for place in ("cpu", "cuda"):
        found = reader.rows(nodes.to(place))
        assert isinstance(found, torch.Tensor)
        assert found.is_cuda
        assert torch.equal(found.cpu(), x[nodes].float())


@pytest.mark.parametrize("how", ["raw", "rows", "centred", "standardised"])
@pytest.mark.parametrize("kind", ["float", "half", "sparse"])
def test_rows_are_those_of_the_prepared_matrix(
    how: Scaling, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(scaling, "ROWS_AT_ONCE", 7)
    x = matrix(torch.float16 if kind == "half" else torch.float32)
    x[:, 2] = 3  # a constant column
    stored = x.to_sparse_csr() if kind == "sparse" else x
    nodes = torch.tensor([3, 39, 0, 17])
    found = RowReader(stored, CPU, scaler=Scaler(stored, None, how)).rows(nodes)
    expected = prepare_features(x.float(), None, how)
    assert isinstance(expected, torch.Tensor)
    assert isinstance(found, torch.Tensor) == (kind != "sparse")
    assert dense(found).dtype == torch.float32
    assert torch.allclose(dense(found), expected[nodes], atol=1e-6)


def dense(x: Features) -> torch.Tensor:
    if isinstance(x, ShiftedFeatures):
        return dense(x.x) + dense(x.member) @ x.offset
    return x.as_torch.to_dense() if isinstance(x, SparseMatrix) else x


@pytest.mark.parametrize(
    ("free", "processes", "error", "expected"),
    [
        (2000, 1, None, True),
        (2000, 2, None, False),
        (4000, 2, None, True),
        (1000, 1, None, False),
        (None, 1, None, False),
        (2000, 1, RuntimeError("CUDA error: out of memory"), False),
    ],
)
def test_memory_is_pinned_if_it_suffices_for_all_processes(
    free: int | None,
    processes: int,
    error: Exception | None,
    expected: bool,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    copy, x = torch.ones(1), matrix()  # of 800 bytes

    def pin(tensor: torch.Tensor) -> torch.Tensor:
        if error is not None:
            raise error
        return copy

    monkeypatch.setattr(torch.Tensor, "pin_memory", pin)
    monkeypatch.setattr(rows, "free_memory", lambda: free)
    monkeypatch.setattr(rows.distributed, "processes_here", lambda: processes)
    assert rows.pinned(x) is (copy if expected else x)
