"""The operations that layers are made of; for each it is decided here what runs.

That is a fused kernel of `canet.nn.kernels` where there is one for the device, the type and the
size, else composed tensor code, which is also the oracle of the kernel's tests. Kernels are
imported when one is to run: Triton is not needed before.
"""

from __future__ import annotations

from functools import cached_property
from importlib.util import find_spec
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.nn import functional as F

from canet.nn.graphs import Graphs
from canet.nn.sparse_matrix import Pattern, SparseMatrix

HAVE_TRITON = find_spec("triton") is not None
HAVE_MKL = torch.backends.mkl.is_available()
WIDEST = 256  # H of a tile that fits into a multiprocessor
WIDEST_LAYER = 128  # likewise, of a layer whose weights are in the tile, too
MOST_INPUTS, MOST_BRANCHES = 128, 16  # of an estimator that is faster in one kernel, and fits


# What a kernel can run on --------------------------------------------------------------------


def fused_attention(z: Tensor) -> bool:
    """Whether there is a kernel for attention over z $[n, H]$."""
    return _on_gpu(z) and z.shape[1] <= WIDEST


def fused_mixture(x: Tensor, out: int) -> bool:
    """Whether there is a kernel for mixed maps of x $[n, I]$ or $[n, K, I]$ to $[n, O]$."""
    return _on_tensor_cores(x) and max(x.shape[-1], out) <= WIDEST_LAYER


def fused_posterior(x: Tensor, weight: Tensor) -> bool:
    """Whether there is a kernel for the posterior of x by weights $[K, I]$, and is worth it."""
    branches, inputs = weight.shape
    return _on_tensor_cores(x) and branches <= MOST_BRANCHES and inputs <= MOST_INPUTS


def fused_sample(logits: Tensor) -> bool:
    """Whether there is a kernel for the posterior of logits $[n, K]$."""
    return _on_tensor_cores(logits)


def _on_tensor_cores(tensor: Tensor) -> bool:
    return _on_gpu(tensor) and tensor.dtype == torch.float32


def _on_gpu(tensor: Tensor) -> bool:
    return HAVE_TRITON and tensor.is_cuda and torch.version.hip is None


# Sparse products -----------------------------------------------------------------------------


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
    if join and not fused_mixture(z, z.shape[1]):
        _ = gathered.joined
    return gathered


class _Product(torch.autograd.Function):
    """$C = A B$ for sparse A: $dB = A^T dC$, and $dA = dC B^T$ only at the entries of A."""

    @staticmethod
    def forward(ctx: Any, value: Tensor, dense: Tensor, matrix: SparseMatrix) -> Tensor:
        ctx.matrix = matrix
        ctx.save_for_backward(dense if ctx.needs_input_grad[0] else None)
        return _multiply(matrix, dense)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, Tensor | None, None]:
        matrix: SparseMatrix = ctx.matrix
        (dense,) = ctx.saved_tensors
        grad_value = grad_dense = None
        grad = grad.contiguous()
        if ctx.needs_input_grad[0]:
            grad_value = _sampled_product(matrix.pattern, grad, dense)
        if ctx.needs_input_grad[1]:
            grad_dense = _multiply(matrix.transposed, grad)
        return grad_value, grad_dense, None


class _Gather(torch.autograd.Function):
    """Autograd would fill a whole gradient for $z_{1..n}$, and add it."""

    @staticmethod
    def forward(ctx: Any, z: Tensor, matrix: SparseMatrix) -> tuple[Tensor, Tensor]:
        ctx.matrix = matrix
        return _multiply(matrix, z), z[: matrix.shape[0]]

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad_product: Tensor, grad_own: Tensor) -> tuple[Tensor, None]:
        return _multiply(ctx.matrix.transposed, grad_product.contiguous(), grad_own), None


def _multiply(matrix: SparseMatrix, dense: Tensor, base: Tensor | None = None) -> Tensor:
    """Product with a dense $[m, h]$, and a base added to its first rows.

    On a GPU sums have a fixed order, which they do not have in cuSPARSE. torch's plain product
    first clears and copies the result. Without MKL (ARM64) it is many times slower than an
    embedding bag, which sums the same.
    """
    if _on_gpu(dense):
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


def _add_transposed_product(matrix: SparseMatrix, dense: Tensor, out: Tensor) -> None:
    """Add the product of the transpose with a dense $[n, h]$ to `out` $[m, h]$."""
    if HAVE_MKL:
        torch.addmm(out, matrix.transposed.csr, dense, out=out)
    else:
        out += _multiply(matrix.transposed, dense)


def _sampled_product(pattern: Pattern, left: Tensor, right: Tensor) -> Tensor:
    """$[L R^T]_{uv}$ at each entry $[nnz]$, for L $[n, h]$ and R $[m, h]$."""
    zeros = pattern.csr(left.new_zeros(pattern.nnz))
    return torch.sparse.sampled_addmm(zeros, left, right.t(), beta=0.0).values()


# Mixtures of branches ------------------------------------------------------------------------


def mix_joined(gathered: Gathered, weight: Tensor, e: Tensor) -> Tensor:
    r"""$\mathrm{ReLU}(\sum_k e_{uk} W^{(k)\top} [x_u \| z_u] + z_u)$, x from neighbours, z own.

    Shapes:
        - gathered of n nodes, weight $[K, 2H, H]$, e $[n, K]$ → $[n, H]$
    """
    if fused_mixture(gathered.neighbours, weight.shape[2]):
        return _fused_mix(gathered.neighbours, weight, e, gathered.own)
    return mix_branches(gathered.joined, weight, e).add_(gathered.own).relu_()


def mix_each(inputs: Tensor, weight: Tensor, e: Tensor, z: Tensor) -> Tensor:
    r"""$\mathrm{ReLU}(\sum_k e_{uk} W^{(k)\top} x_u^{(k)} + z_u)$, each branch with an input.

    Shapes:
        - inputs $[n, K, I]$, weight $[K, I, O]$, e $[n, K]$, z $[n, O]$ → $[n, O]$
    """
    if fused_mixture(inputs, weight.shape[2]):
        return _fused_mix(inputs, weight, e, z)
    return mix_branches(inputs, weight, e).add_(z).relu_()


def mix_branches(inputs: Tensor, weight: Tensor, e: Tensor) -> Tensor:
    r"""$\sum_k e_{uk} W^{(k)\top} x_u^{(k)}$, composed.

    Shapes:
        - inputs $[n, I]$, the same for all branches, or $[n, K, I]$, weight $[K, I, O]$,
          e $[n, K]$ → $[n, O]$
    """
    branches, width, out = weight.shape
    if inputs.dim() == 3:
        return (inputs * e.unsqueeze(-1)).flatten(1) @ weight.flatten(0, 1)
    outputs = inputs @ weight.permute(1, 0, 2).reshape(width, -1)
    mixed: Tensor = _Mixed.apply(outputs.view(-1, branches, out), e)
    return mixed


def _fused_mix(x: Tensor, weight: Tensor, e: Tensor, z: Tensor) -> Tensor:
    from canet.nn.kernels.mixture import FusedMixture

    out: Tensor = FusedMixture.apply(x, weight, e, z)
    return out


class _Mixed(torch.autograd.Function):
    r"""$\sum_k e_{uk} y_{uk}$ for y $[n, K, O]$ and e $[n, K]$, with no other tensor of y's size.

    Backward, the gradient of y is one.
    """

    @staticmethod
    def forward(ctx: Any, outputs: Tensor, e: Tensor) -> Tensor:
        ctx.save_for_backward(outputs, e)
        mixed = outputs[:, 0] * e[:, :1]
        for k in range(1, e.shape[1]):
            mixed.addcmul_(outputs[:, k], e[:, k : k + 1])
        return mixed

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor]:
        outputs, e = ctx.saved_tensors
        grad_e = torch.bmm(outputs, grad.unsqueeze(-1)).squeeze(-1)
        return grad.unsqueeze(1) * e.unsqueeze(-1), grad_e


# Attention over neighbours -------------------------------------------------------------------


def attend(
    neighbourhood: Pattern, z: Tensor, score_dst: Tensor, score_src: Tensor, slope: float
) -> Tensor:
    r"""Attention of one branch, with LeakyReLU's slope below zero: $\sum_v w_{uv} z_v$.

    Shapes:
        - z $[n_{src}, H]$, scores $[n_{dst}, 1]$ and $[n_{src}, 1]$ → $[n_{dst}, H]$
    """
    if fused_attention(z):
        return fused_attend(neighbourhood, z, score_dst, score_src, slope)[0].squeeze(1)
    weights = attention_weights(neighbourhood, score_dst, score_src, slope)
    return multiply(SparseMatrix(neighbourhood, weights.flatten()), z)


def mix_attention(
    neighbourhood: Pattern,
    z: Tensor,
    score_dst: Tensor,
    score_src: Tensor,
    weight: Tensor,
    e: Tensor,
    slope: float,
) -> Tensor:
    r"""$\mathrm{ReLU}(\sum_k e_{uk} W^{(k)\top} \sum_v w_{uv}^{(k)} z_v + z_u)$.

    Shapes:
        - z $[n_{src}, H]$, scores $[n_{dst}, K]$ and $[n_{src}, K]$, weight $[K, H, H]$,
          e $[n_{dst}, K]$ → $[n_{dst}, H]$
    """
    if fused_attention(z):
        attended, own = fused_attend(neighbourhood, z, score_dst, score_src, slope)
        return mix_each(attended, weight, e, own)
    return F.relu(composed_attention(neighbourhood, z, score_dst, score_src, weight, e, slope))


def fused_attend(
    neighbourhood: Pattern, z: Tensor, score_dst: Tensor, score_src: Tensor, slope: float
) -> tuple[Tensor, Tensor]:
    """Attention of K branches in one pass over the neighbours, $[n_{dst}, K, H]$, and the readers'
    own states $[n_{dst}, H]$.
    """
    from canet.nn.kernels.attention import FusedAttention

    both: tuple[Tensor, Tensor] = FusedAttention.apply(
        z, score_dst, score_src, neighbourhood, slope
    )
    return both


def composed_attention(
    neighbourhood: Pattern,
    z: Tensor,
    score_dst: Tensor,
    score_src: Tensor,
    weight: Tensor,
    e: Tensor,
    slope: float,
) -> Tensor:
    """`attend` of each branch, `mix_branches` and the residual link, all in the same memory."""
    keep = torch.is_grad_enabled()
    mixed: Tensor = _MixedAttention.apply(
        z, score_dst, score_src, weight, e, neighbourhood, slope, keep
    )
    return mixed


def attention_weights(
    pattern: Pattern, score_dst: Tensor, score_src: Tensor, slope: float
) -> Tensor:
    """Softmax over each row's entries of LeakyReLU(score_dst[u] + score_src[v]).

    Each row's maximum is subtracted first, so that no exponential overflows or vanishes with its
    whole row.

    Shapes:
        - scores $[n_{dst}, k]$ and $[n_{src}, k]$ → $[nnz, k]$
    """
    weights: Tensor = _AttentionWeights.apply(score_dst, score_src, pattern, slope)
    return weights


class _AttentionWeights(torch.autograd.Function):
    """Keeps the weights and the signs of the scores, and nothing else of the size of the edges."""

    @staticmethod
    def forward(
        ctx: Any, score_dst: Tensor, score_src: Tensor, pattern: Pattern, slope: float
    ) -> Tensor:
        weights, positive = _weigh(pattern, score_dst, score_src, slope)
        ctx.pattern, ctx.slope = pattern, slope
        ctx.save_for_backward(weights, positive)
        return weights

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor, None, None]:
        weights, positive = ctx.saved_tensors
        return *_unweigh(ctx.pattern, weights, positive, grad, ctx.slope), None, None


class _MixedAttention(torch.autograd.Function):
    """Keeps what each branch attended to and its weights, and not what it made of it.

    Backward, the residual link begins the gradient of z, to which all branches add; they compute
    theirs in two buffers.
    """

    @staticmethod
    def forward(
        ctx: Any,
        z: Tensor,
        score_dst: Tensor,
        score_src: Tensor,
        weight: Tensor,
        e: Tensor,
        pattern: Pattern,
        slope: float,
        keep: bool,
    ) -> Tensor:
        mixed = z[: e.shape[0]].clone()
        kept = []
        for k, weight_k in enumerate(weight):
            one = slice(k, k + 1)
            weights, positive = _weigh(pattern, score_dst[:, one], score_src[:, one], slope)
            gathered = _multiply(SparseMatrix(pattern, weights.flatten()), z)
            mixed.addcmul_(gathered @ weight_k, e[:, one])
            if keep:
                kept += [weights, positive, gathered]
        ctx.pattern, ctx.slope = pattern, slope
        ctx.save_for_backward(z, weight, e, *kept)
        return mixed

    @staticmethod
    @once_differentiable
    def backward(
        ctx: Any, grad: Tensor
    ) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor, None, None, None]:
        z, weight, e, *kept = ctx.saved_tensors
        pattern: Pattern = ctx.pattern
        grad_z, grad_weight, grad_e = torch.empty_like(z), torch.empty_like(weight), []
        grad_z[: grad.shape[0]], grad_z[grad.shape[0] :] = grad, 0
        grad_dst, grad_src = [], []
        product, back = (torch.empty_like(grad) for _ in range(2))
        for k, weight_k in enumerate(weight):
            weights, positive, gathered = kept[3 * k : 3 * k + 3]
            share = e[:, k : k + 1]
            torch.mm(gathered.t(), grad * share, out=grad_weight[k])
            torch.mm(grad, weight_k.t(), out=back)
            grad_e.append(torch.mul(back, gathered, out=product).sum(dim=1))
            back.mul_(share)
            _add_transposed_product(SparseMatrix(pattern, weights.flatten()), back, grad_z)
            grad_weights = _sampled_product(pattern, back, z).unsqueeze(1)
            dst, src = _unweigh(pattern, weights, positive, grad_weights, ctx.slope)
            grad_dst.append(dst)
            grad_src.append(src)
        grad_scores = torch.cat(grad_dst, dim=1), torch.cat(grad_src, dim=1)
        return grad_z, *grad_scores, grad_weight, torch.stack(grad_e, dim=1), None, None, None


def _weigh(
    pattern: Pattern, score_dst: Tensor, score_src: Tensor, slope: float
) -> tuple[Tensor, Tensor]:
    """`attention_weights`, and where the scores are positive, both $[nnz, k]$."""
    scores = pattern.at_rows(score_dst).add_(pattern.at_cols(score_src))
    positive = scores > 0
    scores = F.leaky_relu_(scores, slope)
    weights = scores.sub_(pattern.at_rows(pattern.max_rows(scores))).exp_()
    return weights.div_(pattern.at_rows(pattern.sum_rows(weights))), positive


def _unweigh(
    pattern: Pattern, weights: Tensor, positive: Tensor, grad: Tensor, slope: float
) -> tuple[Tensor, Tensor]:
    """Gradients of the scores, $[n_{dst}, k]$ and $[n_{src}, k]$, from those of the weights."""
    grad = grad * weights
    grad = grad.addcmul_(weights, pattern.at_rows(pattern.sum_rows(grad)), value=-1)
    grad = torch.where(positive, grad, slope * grad)
    return pattern.sum_rows(grad), pattern.sum_cols(grad)


# Attention over whole graphs -----------------------------------------------------------------


def attend_globally(graphs: Graphs, query: Tensor, key: Tensor, z: Tensor, own: Tensor) -> Tensor:
    r"""Linear attention of each node over its whole graph, with N nodes,

    .. math:: G_u = \frac{N z_u + \sum_v (q_u^\top k_v)\,z_v}{N + \sum_v q_u^\top k_v}.

    A node alone in its graph attends to itself, $G_u = z_u$. Where a graph has more nodes than H,
    $\sum_v k_v z_v^\top$ comes first; nothing is larger than nodes × H either way.

    Shapes:
        - query $[n_{dst}, H]$, key $[n_{src}, H]$, rows of unit norm, z $[n_{src}, H]$,
          own $[n_{dst}, H]$ → $[n_{dst}, H]$
    """
    parts = []
    for alike in graphs.by_size:
        states = own if alike.reader is None else own.index_select(0, alike.reader)
        if alike.largest == 1:
            parts.append(states)
            continue
        keys, values = alike.pad_read(key), alike.pad_read(z)
        queries = alike.pad_readers(query)
        if alike.largest <= key.shape[1]:
            scores = queries @ keys.transpose(1, 2)
            attended, total = scores @ values, scores.sum(dim=2, keepdim=True)
        else:
            attended = queries @ (keys.transpose(1, 2) @ values)
            total = queries @ keys.sum(dim=1).unsqueeze(2)
        attended, total = alike.take_readers(attended), alike.take_readers(total)
        parts.append((alike.size * states + attended) / (alike.size + total))
    if graphs.place is None:
        return parts[0] if parts else own
    return torch.cat(parts).index_select(0, graphs.place)


# Environments --------------------------------------------------------------------------------


Inference = tuple[Tensor, Tensor, Tensor | None]


def infer(
    read: Tensor | Gathered,
    weight: Tensor,
    bias: Tensor | None,
    draws: Tensor | None,
    tau: float,
) -> Inference:
    r"""`sample` of $W x + b$, where x is a node's state, or both that it gathered.

    Shapes:
        - read $[n, I]$ or gathered $[n, I / 2]$ twice, weight $[K, I]$, bias $[K]$
          → as `sample`
    """
    first, own = (read.neighbours, read.own) if isinstance(read, Gathered) else (read, None)
    if fused_posterior(first, weight):
        from canet.nn.kernels.posterior import FusedPosterior

        fused: Inference = FusedPosterior.apply(first, own, weight, bias, draws, tau)
        return fused
    joined = read.joined if isinstance(read, Gathered) else read
    return sample(F.linear(joined, weight, bias), draws, tau)


def sample(logits: Tensor, draws: Tensor | None, tau: float) -> Inference:
    r"""$\log\pi = \log\mathrm{softmax}$ of the logits,
    $e = \mathrm{softmax}((\log\pi + g) / \tau)$ and, where a kernel gives it with them,
    $\sum_k e_k \log\pi_k$.

    The Gumbel noise is $g = -\log r$ for exponential numbers r; without them $e = \pi$.

    Shapes:
        - logits $[n, K]$, draws r $[n, K]$ → $[n, K]$, $[n, K]$, $[n]$ or None
    """
    if fused_sample(logits):
        from canet.nn.kernels.posterior import FusedSample

        fused: Inference = FusedSample.apply(logits, draws, tau)
        return fused
    log_posterior = F.log_softmax(logits, dim=-1)
    if draws is None:
        return log_posterior, log_posterior.exp(), None
    noisy = log_posterior - draws.log()
    return log_posterior, F.softmax(noisy / tau, dim=-1), None
