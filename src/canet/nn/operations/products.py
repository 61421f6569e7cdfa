"""Products of a sparse matrix and a dense one, and their gradients."""

from __future__ import annotations

from functools import cached_property
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.nn import functional as F

from canet.nn.operations import fused
from canet.nn.sparse_matrix import Pattern, SparseMatrix

HAVE_MKL = torch.backends.mkl.is_available()


class Gathered:
    """What nodes read of z: from their neighbours $[n, H]$, and their own rows $[n, H]$.

    `joined` $[n, 2H]$ holds both side by side, made once and only for composed operations that
    read them as one.
    """

    def __init__(self, neighbours: Tensor, own: Tensor) -> None:
        self.neighbours = neighbours
        self.own = own

    @cached_property
    def joined(self) -> Tensor:
        return torch.cat([self.neighbours, self.own], dim=1)


def multiply(matrix: SparseMatrix, dense: Tensor) -> Tensor:
    """$A B$ for sparse A $[n, m]$ and dense B $[m, h]$, differentiable in B and in A's values."""
    product: Tensor = _Product.apply(matrix.value, dense, matrix)
    return product


def gather(matrix: SparseMatrix, z: Tensor, join: bool = False) -> Gathered:
    """$A z$ and $z_{1..n}$ for A $[n, m]$ and z $[m, h]$; z's gradient is made in one pass.

    With `join` they are for `mix_joined`, and made one at once if composed code is to read them.
    """
    gathered = Gathered(*_Gather.apply(z, matrix))
    if join and not fused.fused_mixture(z, z.shape[1]):
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
        matrix: SparseMatrix = ctx.matrix
        (dense,) = ctx.saved_tensors
        grad_value = grad_dense = None
        grad = grad.contiguous()
        if ctx.needs_input_grad[0]:
            grad_value = sampled_product(matrix.pattern, grad, dense)
        if ctx.needs_input_grad[1]:
            grad_dense = product(matrix.transposed, grad)
        return grad_value, grad_dense, None


class _Gather(torch.autograd.Function):
    """Autograd would fill a whole gradient for $z_{1..n}$, and add it."""

    @staticmethod
    def forward(ctx: Any, z: Tensor, matrix: SparseMatrix) -> tuple[Tensor, Tensor]:
        ctx.matrix = matrix
        return product(matrix, z), z[: matrix.shape[0]]

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad_product: Tensor, grad_own: Tensor) -> tuple[Tensor, None]:
        return product(ctx.matrix.transposed, grad_product.contiguous(), grad_own), None


def product(matrix: SparseMatrix, dense: Tensor, base: Tensor | None = None) -> Tensor:
    """Product with a dense $[m, h]$, and a base added to its first rows.

    On a GPU sums have a fixed order, which they do not have in cuSPARSE. torch's plain product
    first clears and copies the result. Without MKL (ARM64) it is many times slower than an
    embedding bag, which sums the same.
    """
    if fused.on_gpu(dense):
        from canet.nn.kernels.product import multiply

        return multiply(matrix.pattern, matrix.value.detach(), dense, base)
    if HAVE_MKL or not matrix.pattern.nnz:
        out = dense.new_empty(matrix.shape[0], dense.shape[1])
        torch.addmm(out, matrix.csr, dense, beta=0, out=out)
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
    if HAVE_MKL:
        torch.addmm(out, matrix.transposed.csr, dense, out=out)
    else:
        out += product(matrix.transposed, dense)


def sampled_product(pattern: Pattern, left: Tensor, right: Tensor) -> Tensor:
    """$[L R^T]_{uv}$ at each entry $[nnz]$, for L $[n, h]$ and R $[m, h]$."""
    zeros = pattern.csr(left.new_zeros(pattern.nnz))
    return torch.sparse.sampled_addmm(zeros, left, right.t(), beta=0.0).values()
