"""Posterior of the environments, and samples from it."""

from torch import Tensor
from torch.nn import functional as F

from canet.nn.operations.fused import can_fuse_posterior
from canet.nn.operations.products import Gathered

Inference = tuple[Tensor, Tensor, Tensor | None]


def infer(
    inputs: Tensor | Gathered, weight: Tensor, bias: Tensor | None, draws: Tensor | None, tau: float
) -> Inference:
    r"""Apply `sample` to the logits $W x + b$.

    Shapes:
        - inputs x $[n, I]$, or two gathered tensors $[n, I / 2]$; weight $[K, I]$, bias $[K]$
          → as for `sample`
    """
    first, own = (inputs.neighbours, inputs.own) if isinstance(inputs, Gathered) else (inputs, None)
    if can_fuse_posterior(first, weight):
        from canet.nn.kernels.posterior import FusedPosterior

        return FusedPosterior.apply(first, own, weight, bias, draws, tau)
    joined = inputs.joined if isinstance(inputs, Gathered) else inputs
    return sample(F.linear(joined, weight, bias), draws, tau)


def sample(logits: Tensor, draws: Tensor | None, tau: float) -> Inference:
    r"""Return $\log\pi = \log\mathrm{softmax}$ of the logits,
    $e = \mathrm{softmax}((\log\pi + g) / \tau)$, and None; a fused kernel of `infer` returns
    $\sum_k e_k \log\pi_k$ $[n]$ instead.

    The Gumbel noise is $g = -\log r$ with exponential random numbers r. Without r, $e = \pi$.

    Shapes:
        - logits $[n, K]$, draws r $[n, K]$ → $[n, K]$, $[n, K]$, None
    """
    log_posterior = F.log_softmax(logits, dim=-1)
    if draws is None:
        return log_posterior, log_posterior.exp(), None
    noisy = log_posterior - draws.log()
    return log_posterior, F.softmax(noisy / tau, dim=-1), None
