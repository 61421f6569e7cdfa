"""Kernel mean matching: weights that draw the mean of one sample to that of another."""

from __future__ import annotations

from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from canet.errors import CanetError

INVERSE_WIDTHS = (1.0, 0.1, 0.001)
"""Of the Gaussian kernels that are averaged, per median squared distance."""
TOLERANCE = 1e-3  # share of the squared discrepancy that may lie between it and its minimum
ZERO = 1e-9  # a squared discrepancy that counts as none; kernels are at most 1
MAX_STEPS = 100


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

    Starts from weights of one, which keep every constraint, and stops where the gap and what is
    left of the conditions are below `TOLERANCE` of the discrepancy.
    """
    n = len(discrepancy.linear)
    beta, y = np.ones(n), np.zeros(len(classes))
    slope = np.abs(discrepancy.quadratic @ beta - discrepancy.linear).max()
    u = v = np.full(n, slope + ZERO / n)
    for _ in range(MAX_STEPS):
        here = _Conditions(discrepancy, classes, low, high, beta, y, u, v)
        allowed = TOLERANCE * max(discrepancy(beta), ZERO)
        if here.gap <= allowed and np.abs(here.residual).sum() * (high - low) <= allowed:
            return beta
        to_beta, _, to_u, to_v = here.solve(-here.above * u, -here.below * v)
        share = here.longest(to_beta, to_u, to_v)
        ahead = (here.above + share * to_beta) @ (u + share * to_u)
        ahead += (here.below - share * to_beta) @ (v + share * to_v)
        mu = (ahead / here.gap) ** 3 * here.gap / (2 * n)
        to_beta, to_y, to_u, to_v = here.solve(
            mu - here.above * u - to_beta * to_u, mu - here.below * v + to_beta * to_v
        )
        share = 0.99 * here.longest(to_beta, to_u, to_v)
        beta, y = beta + share * to_beta, y + share * to_y
        u, v = u + share * to_u, v + share * to_v
    raise CanetError(
        f"kernel mean matching did not converge in {MAX_STEPS} steps: set min_weight and "
        "max_weight further from one"
    )


class _Conditions:
    """The conditions of an optimum at a point, and their solution when linearised there,

        Q β − c − Aᵀ y − u + v = 0,   A β = A 1,   (β − low) u = (high − β) v = 0.

    Where the first two hold, β is above the minimum by no more than the gap, the sum of the
    products. A holds the classes as rows $[C, n]$; u and v stay positive.
    """

    def __init__(
        self,
        discrepancy: Discrepancy,
        classes: np.ndarray,
        low: float,
        high: float,
        beta: np.ndarray,
        y: np.ndarray,
        u: np.ndarray,
        v: np.ndarray,
    ) -> None:
        self.quadratic, self.classes = discrepancy.quadratic, classes
        self.above, self.below, self.u, self.v = beta - low, high - beta, u, v
        self.residual = self.quadratic @ beta - discrepancy.linear - classes.T @ y - u + v
        self.missing = classes @ (1 - beta)
        self.gap = float(self.above @ u + self.below @ v)

    def solve(
        self, change_u: np.ndarray, change_v: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
        """Changes of β, y, u and v with which the products change by `change_u` and `change_v`."""
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
        """Cholesky factors for `solve`, of β alone and of y."""
        from scipy.linalg import cho_factor, cho_solve

        factor = cho_factor(self.quadratic + np.diag(self.u / self.above + self.v / self.below))
        return factor, cho_factor(self.classes @ cho_solve(factor, self.classes.T))

    def longest(self, to_beta: np.ndarray, to_u: np.ndarray, to_v: np.ndarray) -> float:
        """The share of a step that keeps everything positive, at most 1."""
        steps = ((self.above, to_beta), (self.below, -to_beta), (self.u, to_u), (self.v, to_v))
        shrink = max(float((-change / value).max()) for value, change in steps)
        return min(1.0, 1 / shrink) if shrink > 0 else 1.0
