"""Kernel mean matching: weights that draw the mean of one sample to that of another."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

INVERSE_WIDTHS = (1.0, 0.1, 0.001)
"""Of the Gaussian kernels that are averaged, per median squared distance."""
TOLERANCE = 1e-3  # share of the squared discrepancy that may lie between it and its minimum
ZERO = 1e-9  # a squared discrepancy that counts as none; kernels are at most 1
MOST_STEPS = 100


class Discrepancy(NamedTuple):
    r"""The squared discrepancy of two means, as a function of the weights of the first sample,

    .. math:: \left\| \frac{1}{n} \sum_i \beta_i \varphi(s_i) - \frac{1}{m} \sum_j \varphi(t_j)
              \right\|^2 = \tfrac{1}{2} \beta^\top Q \beta - c^\top \beta + a.

    Args:
        quadratic: $Q$ $[n, n]$.
        linear: $c$ $[n]$.
        constant: $a$.
    """

    quadratic: np.ndarray
    linear: np.ndarray
    constant: float

    @classmethod
    def between(cls, source: Tensor, target: Tensor) -> Discrepancy:
        """Of samples $[n, H]$ and $[m, H]$, in double precision."""
        scale = torch.cdist(source, target).square().median()
        scale = scale.clamp_min(torch.finfo(scale.dtype).tiny)

        def kernel(first: Tensor, second: Tensor) -> Tensor:
            distance = torch.cdist(first, second).square() / scale
            return torch.stack([(-w * distance).exp() for w in INVERSE_WIDTHS]).mean(dim=0)

        n = len(source)
        return cls(
            2 / n**2 * kernel(source, source).numpy(),
            2 / n * kernel(source, target).mean(dim=1).numpy(),
            float(kernel(target, target).mean()),
        )

    def __call__(self, beta: np.ndarray) -> float:
        return float(beta @ (self.quadratic @ beta / 2 - self.linear) + self.constant)


def mean_matching_weights(
    source: Tensor, target: Tensor, y: Tensor, low: float, high: float
) -> Tensor:
    r"""Kernel mean matching (Huang et al., NeurIPS '06): the weights $\beta$ of

    .. math:: \min_\beta \left\| \frac{1}{n} \sum_i \beta_i \varphi(s_i)
              - \frac{1}{m} \sum_j \varphi(t_j) \right\|^2, \quad
              \beta \in [low, high]^n, \quad \sum_{i: y_i = c} \beta_i = |\{i: y_i = c\}|,

    under the mean of several Gaussian kernels, `INVERSE_WIDTHS`. What is returned has at most a
    share of `TOLERANCE` more than the minimum.

    Shapes:
        - source $[n, H]$, target $[m, H]$, classes y $[n]$ of the source → $[n]$, double precision
    """
    if high <= 1:
        return torch.ones(len(source), dtype=torch.double)
    classes = torch.nn.functional.one_hot(y.unique(return_inverse=True)[1]).t().double().numpy()
    discrepancy = Discrepancy.between(source.double(), target.double())
    return torch.from_numpy(_minimise(discrepancy, classes, low, high))


def _minimise(discrepancy: Discrepancy, classes: np.ndarray, low: float, high: float) -> np.ndarray:
    """Primal-dual interior point method with Mehrotra's predictor and corrector.

    From weights of one, which keep every constraint, each step solves the optimality conditions

        Q β − c − Aᵀ y − u + v = 0,   A β = A 1,   (β − low) u = (high − β) v = μ

    linearised, for a falling μ. Where the first two hold, β is above the minimum by no more than
    the gap (β − low)·u + (high − β)·v, at which it stops.
    """
    from scipy.linalg import cho_factor, cho_solve

    q, c, a = discrepancy.quadratic, discrepancy.linear, classes
    beta, y = np.ones(len(c)), np.zeros(len(a))
    u = np.full(len(c), np.abs(q @ beta - c).max() + ZERO / len(c))
    v = u.copy()
    for _ in range(MOST_STEPS):
        above, below = beta - low, high - beta
        residual = q @ beta - c - a.T @ y - u + v
        gap = above @ u + below @ v
        allowed = TOLERANCE * max(discrepancy(beta), ZERO)
        if gap <= allowed and np.abs(residual).sum() * (high - low) <= allowed:
            break
        factor = cho_factor(q + np.diag(u / above + v / below))
        inner = cho_factor(a @ cho_solve(factor, a.T))

        def step(of_u: np.ndarray, of_v: np.ndarray) -> tuple[np.ndarray, ...]:
            """Changes of β, y, u and v for which the products change by `of_u` and `of_v`."""
            right = of_u / above - of_v / below - residual
            to_y = cho_solve(inner, a @ (1 - beta) - a @ cho_solve(factor, right))
            to_beta = cho_solve(factor, right + a.T @ to_y)
            return to_beta, to_y, (of_u - u * to_beta) / above, (of_v + v * to_beta) / below

        def longest(to_beta: np.ndarray, to_u: np.ndarray, to_v: np.ndarray) -> float:
            """The share of a step that keeps everything positive, at most 1."""
            pairs = ((above, to_beta), (below, -to_beta), (u, to_u), (v, to_v))
            shrink = max(float((-change / value).max()) for value, change in pairs)
            return min(1.0, 1 / shrink) if shrink > 0 else 1.0

        to_beta, _, to_u, to_v = step(-above * u, -below * v)
        share = longest(to_beta, to_u, to_v)
        ahead = (above + share * to_beta) @ (u + share * to_u)
        ahead += (below - share * to_beta) @ (v + share * to_v)
        mu = (ahead / gap) ** 3 * gap / (2 * len(c))
        to_beta, to_y, to_u, to_v = step(
            mu - above * u - to_beta * to_u, mu - below * v + to_beta * to_v
        )
        share = 0.99 * longest(to_beta, to_u, to_v)
        beta, y = beta + share * to_beta, y + share * to_y
        u, v = u + share * to_u, v + share * to_v
    return beta
