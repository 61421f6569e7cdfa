"""Products of sparse and dense matrices with their gradients, and rows of a matrix."""

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.nn import functional as F

from canet.nn.operations import fused
from canet.nn.sparse_matrix import Pattern, SparseMatrix

HAS_MKL = torch.backends.mkl.is_available()


@dataclass(eq=False)
class Gathered:
    """Propagated states of the neighbours $[n, H]$ and own states $[n, H]$ of n nodes.

    `joined` $[n, 2H]$ is their concatenation, computed on first use.
    """

    neighbours: Tensor
    own: Tensor

    @cached_property
    def joined(self) -> Tensor:
        return torch.cat([self.neighbours, self.own], dim=1)


def multiply(matrix: SparseMatrix, dense: Tensor) -> Tensor:
    """Return $A B$ for sparse A $[n, m]$ and dense B $[m, h]$.

    Differentiable in B and in the values of A.
    """
    return _Product.apply(matrix.value, dense, matrix)


def gather(matrix: SparseMatrix, z: Tensor, join: bool = False) -> Gathered:
    """Return $A z$ and $z_{1..n}$ for A $[n, m]$ and z $[m, h]$, with one gradient for z.

    Pass `join=True` if the result is for `mix_joined`: if no fused kernel runs that, both tensors
    are concatenated now.
    """
    gathered = Gathered(*_Gather.apply(z, matrix))
    if join and not fused.can_fuse_mixture(z, z.shape[1]):
        _ = gathered.joined
    return gathered


class _Product(torch.autograd.Function):
    """$C = A B$ for sparse A: $dB = A^T dC$, and $dA = dC B^T$ only at the entries of A."""

    @staticmethod
    def forward(ctx: Any, value: Tensor, dense: Tensor, matrix: SparseMatrix) -> Tensor:
        ctx.matrix = matrix
        ctx.save_for_backward(dense if ctx.needs_input_grad[0] else None)
        return product(matrix, dense)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, Tensor | None, None]:
        matrix, (dense,) = ctx.matrix, ctx.saved_tensors
        grad_value = grad_dense = None
        grad = grad.contiguous()
        if ctx.needs_input_grad[0]:
            grad_value = sampled_product(matrix.pattern, grad, dense)
        if ctx.needs_input_grad[1]:
            grad_dense = product(matrix.transposed, grad)
        return grad_value, grad_dense, None


class _Gather(torch.autograd.Function):
    """Adds the gradient of $z_{1..n}$ in place; autograd would allocate it for all rows of z."""

    @staticmethod
    def forward(ctx: Any, z: Tensor, matrix: SparseMatrix) -> tuple[Tensor, Tensor]:
        ctx.matrix = matrix
        return product(matrix, z), z[: matrix.shape[0]]

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad_product: Tensor, grad_own: Tensor) -> tuple[Tensor, None]:
        return product(ctx.matrix.transposed, grad_product.contiguous(), grad_own), None


def product(matrix: SparseMatrix, dense: Tensor, base: Tensor | None = None) -> Tensor:
    """Return the product with a dense $[m, h]$, with `base` added to its first rows.

    On a GPU, our kernel sums in a fixed order, unlike cuSPARSE. On a CPU with MKL, `addmm` with
    `out` avoids clearing and copying the result. Without MKL (ARM64), `embedding_bag` computes the
    same sums many times faster.
    """
    if fused.on_gpu(dense):
        from canet.nn.kernels.product import multiply

        return multiply(matrix.pattern, matrix.value.detach(), dense, base)
    if HAS_MKL or not matrix.pattern.nnz:
        out = dense.new_empty(matrix.shape[0], dense.shape[1])
        torch.addmm(out, matrix.as_torch, dense, beta=0, out=out)
    else:
        out = F.embedding_bag(
            matrix.pattern.col,
            dense.detach().contiguous(),
            matrix.pattern.rowptr,
            mode="sum",
            per_sample_weights=matrix.value.detach(),
            include_last_offset=True,
        )
    if base is not None:
        out[: base.shape[0]] += base
    return out


def add_transposed_product(matrix: SparseMatrix, dense: Tensor, out: Tensor) -> None:
    """Add the product of the transpose with a dense $[n, h]$ to `out` $[m, h]$."""
    if HAS_MKL:
        torch.addmm(out, matrix.transposed.as_torch, dense, out=out)
    else:
        out += product(matrix.transposed, dense)


def sampled_product(pattern: Pattern, left: Tensor, right: Tensor) -> Tensor:
    """Return $[L R^T]_{uv}$ at each entry $[nnz]$, for L $[n, h]$ and R $[m, h]$."""
    if pattern.nnz > pattern.shape[0] * pattern.shape[1]:  # torch rejects so many double edges
        return (pattern.at_rows(left) * pattern.at_cols(right)).sum(dim=1)
    zeros = pattern.to_torch(left.new_zeros(pattern.nnz))
    return torch.sparse.sampled_addmm(zeros, left, right.t(), beta=0.0).values()


def select_rows(
    x: Tensor, rows: Tensor, kept: Tensor | None = None, slot: Tensor | None = None
) -> Tensor:
    """Return the given rows $[n]$ of x $[N, D]$, which may have half precision, as float32.

    Args:
        x: The matrix. A GPU can also read it from pinned memory.
        rows: Numbers of the rows.
        kept: Copies $[k, D]$ of some rows of x that a GPU reads instead.
        slot: Position $[N]$ of each row of x in `kept`; -1 if there is no copy.
    """
    if not fused.on_gpu(rows):
        return x[rows].float()
    from canet.nn.kernels.rows import select_rows as select

    return select(x, rows, kept, slot)
