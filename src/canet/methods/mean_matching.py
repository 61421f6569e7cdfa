"""Kernel mean matching: weights that match the mean of one sample to that of another."""

from typing import NamedTuple, Self

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
    def between(cls, source: Tensor, target: Tensor) -> Self:
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

    The optimality conditions, with positive u and v and the classes as the rows of A $[C, n]$, are

        Q β − c − Aᵀ y − u + v = 0,   A β = A 1,   (β − low) u = (high − β) v = 0.

    If the first two hold, the objective exceeds its minimum by at most the gap, the sum of the
    products in the third. The start are weights of one, which satisfy every constraint. The end is
    when the gap and the residual are below `TOLERANCE` times the discrepancy.
    """
    from scipy.linalg import cho_factor, cho_solve

    n = len(discrepancy.linear)
    beta, y = np.ones(n), np.zeros(len(classes))
    slope = np.abs(discrepancy.quadratic @ beta - discrepancy.linear).max()
    u = v = np.full(n, slope + ZERO / n)
    for _ in range(MAX_STEPS):
        above, below = beta - low, high - beta
        residual = discrepancy.quadratic @ beta - discrepancy.linear - classes.T @ y - u + v
        gap = float(above @ u + below @ v)
        allowed = TOLERANCE * max(discrepancy(beta), ZERO)
        if gap <= allowed and np.abs(residual).sum() * (high - low) <= allowed:
            return beta
        factor = cho_factor(discrepancy.quadratic + np.diag(u / above + v / below))
        inner = cho_factor(classes @ cho_solve(factor, classes.T))
        change_u, change_v = -above * u, -below * v  # of the products
        for is_prediction in (True, False):
            right = change_u / above - change_v / below - residual
            missing = classes @ (1 - beta) - classes @ cho_solve(factor, right)
            to_y = cho_solve(inner, missing)
            to_beta = cho_solve(factor, right + classes.T @ to_y)
            to_u, to_v = (change_u - u * to_beta) / above, (change_v + v * to_beta) / below
            steps = ((above, to_beta), (below, -to_beta), (u, to_u), (v, to_v))
            shrink = max(float((-change / value).max()) for value, change in steps)
            share = min(1.0, 1 / shrink) if shrink > 0 else 1.0  # keeps all variables positive
            if is_prediction:
                ahead = (above + share * to_beta) @ (u + share * to_u)
                ahead += (below - share * to_beta) @ (v + share * to_v)
                mu = (ahead / gap) ** 3 * gap / (2 * n)
                change_u = mu - above * u - to_beta * to_u
                change_v = mu - below * v + to_beta * to_v
        share *= 0.99
        beta, y = beta + share * to_beta, y + share * to_y
        u, v = u + share * to_u, v + share * to_v
    raise CanetError(
        f"kernel mean matching did not converge in {MAX_STEPS} steps: use a smaller min_weight or "
        "a larger max_weight"
    )
