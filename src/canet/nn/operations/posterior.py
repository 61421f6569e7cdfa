"""The posterior of the environments, and a sample of it."""

from __future__ import annotations

from torch import Tensor
from torch.nn import functional as F

from canet.nn.operations.fused import fused_posterior, fused_sample
from canet.nn.operations.products import Gathered

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
