"""Kernel mean matching: weights that match the mean of one sample to that of another."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from canet.errors import CanetError

INVERSE_WIDTHS = (1.0, 0.1, 0.001)
"""Inverse widths of the Gaussian kernels, relative to the median squared distance."""
TOLERANCE = 1e-3  # largest relative difference between the squared discrepancy and its minimum
ZERO = 1e-9  # squared discrepancy that counts as zero; kernels are at most 1
MAX_STEPS = 100


class Discrepancy(NamedTuple):
    r"""Squared distance of two means, as a function of the weights of the first sample,

    .. math:: \left\| \frac{1}{n} \sum_i \beta_i \varphi(s_i) - \frac{1}{m} \sum_j \varphi(t_j)
              \right\|^2 = \tfrac{1}{2} \beta^\top Q \beta - c^\top \beta + a.
    """

    quadratic: np.ndarray  # $Q$ $[n, n]$
    linear: np.ndarray  # $c$ $[n]$
    constant: float  # $a$

    @classmethod
    def between(cls, source: Tensor, target: Tensor) -> Discrepancy:
        """Build from two samples $[n, H]$ and $[m, H]$ in double precision."""
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
    r"""Return the weights $\beta$ of kernel mean matching (Huang et al., NeurIPS '06),

    .. math:: \min_\beta \left\| \frac{1}{n} \sum_i \beta_i \varphi(s_i)
              - \frac{1}{m} \sum_j \varphi(t_j) \right\|^2, \quad
              \beta \in [low, high]^n, \quad \sum_{i: y_i = c} \beta_i = |\{i: y_i = c\}|,

    for the mean of several Gaussian kernels (`INVERSE_WIDTHS`). The objective exceeds its minimum
    by at most a share of `TOLERANCE`.

    Shapes:
        - source $[n, H]$, target $[m, H]$, classes y $[n]$ of the source → $[n]$, double precision
    """
    if high <= 1:
        return torch.ones(len(source), dtype=torch.double)
    classes = torch.nn.functional.one_hot(y.unique(return_inverse=True)[1]).t().double().numpy()
    discrepancy = Discrepancy.between(source.double(), target.double())
    return torch.from_numpy(_minimise(discrepancy, classes, low, high))


def _minimise(discrepancy: Discrepancy, classes: np.ndarray, low: float, high: float) -> np.ndarray:
    """Primal-dual interior point method with Mehrotra's predictor-corrector steps.

    It starts with weights of one, which satisfy every constraint, and stops when the duality gap
    and the residual are below `TOLERANCE` times the discrepancy.
    """
    n = len(discrepancy.linear)
    beta, y = np.ones(n), np.zeros(len(classes))
    slope = np.abs(discrepancy.quadratic @ beta - discrepancy.linear).max()
    u = v = np.full(n, slope + ZERO / n)
    for _ in range(MAX_STEPS):
        point = _Conditions(discrepancy, classes, low, high, beta, y, u, v)
        allowed = TOLERANCE * max(discrepancy(beta), ZERO)
        if point.gap <= allowed and np.abs(point.residual).sum() * (high - low) <= allowed:
            return beta
        to_beta, _, to_u, to_v = point.solve(-point.above * u, -point.below * v)
        share = point.max_step(to_beta, to_u, to_v)
        ahead = (point.above + share * to_beta) @ (u + share * to_u)
        ahead += (point.below - share * to_beta) @ (v + share * to_v)
        mu = (ahead / point.gap) ** 3 * point.gap / (2 * n)
        to_beta, to_y, to_u, to_v = point.solve(
            mu - point.above * u - to_beta * to_u, mu - point.below * v + to_beta * to_v
        )
        share = 0.99 * point.max_step(to_beta, to_u, to_v)
        beta, y = beta + share * to_beta, y + share * to_y
        u, v = u + share * to_u, v + share * to_v
    raise CanetError(
        f"kernel mean matching did not converge in {MAX_STEPS} steps: use a smaller min_weight or "
        "a larger max_weight"
    )


@dataclass(eq=False)
class _Conditions:
    """The optimality conditions at a point, and Newton steps towards their solution,

        Q β − c − Aᵀ y − u + v = 0,   A β = A 1,   (β − low) u = (high − β) v = 0.

    If the first two hold, the objective exceeds its minimum by at most the gap, the sum of the
    products in the third. The rows of A $[C, n]$ are the classes. u and v stay positive.
    """

    discrepancy: Discrepancy
    classes: np.ndarray
    low: float
    high: float
    beta: np.ndarray
    y: np.ndarray
    u: np.ndarray
    v: np.ndarray

    def __post_init__(self) -> None:
        self.above, self.below = self.beta - self.low, self.high - self.beta
        self.residual = self.discrepancy.quadratic @ self.beta - self.discrepancy.linear
        self.residual = self.residual - self.classes.T @ self.y - self.u + self.v
        self.missing = self.classes @ (1 - self.beta)
        self.gap = float(self.above @ self.u + self.below @ self.v)

    def solve(
        self, change_u: np.ndarray, change_v: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
        """Return the steps of β, y, u, v that change the products by `change_u` and `change_v`."""
        from scipy.linalg import cho_solve

        factor, inner = self._factors
        right = change_u / self.above - change_v / self.below - self.residual
        to_y = cho_solve(inner, self.missing - self.classes @ cho_solve(factor, right))
        to_beta = cho_solve(factor, right + self.classes.T @ to_y)
        to_u = (change_u - self.u * to_beta) / self.above
        to_v = (change_v + self.v * to_beta) / self.below
        return to_beta, to_y, to_u, to_v

    @cached_property
    def _factors(self) -> tuple[Any, Any]:
        """Cholesky factors of the linear systems of β and of y in `solve`."""
        from scipy.linalg import cho_factor, cho_solve

        factor = cho_factor(
            self.discrepancy.quadratic + np.diag(self.u / self.above + self.v / self.below)
        )
        return factor, cho_factor(self.classes @ cho_solve(factor, self.classes.T))

    def max_step(self, to_beta: np.ndarray, to_u: np.ndarray, to_v: np.ndarray) -> float:
        """Return the largest step size, at most 1, that keeps all variables positive."""
        steps = ((self.above, to_beta), (self.below, -to_beta), (self.u, to_u), (self.v, to_v))
        shrink = max(float((-change / value).max()) for value, change in steps)
        return min(1.0, 1 / shrink) if shrink > 0 else 1.0
