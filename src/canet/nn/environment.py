"""The environment estimator q(E|G): a categorical posterior over K pseudo environments."""

from __future__ import annotations

import math
from typing import Literal, NamedTuple

import torch
from torch import Tensor, nn

from canet.nn.blocks import Operator
from canet.nn.layer import LayerInput
from canet.nn.operations import Gathered, infer, multiply, sample
from canet.nn.sparse_matrix import SparseMatrix

EstimatorKind = Literal["node", "graph"]


class Environment(NamedTuple):
    """One layer's inference for n nodes.

    `log_posterior` is $\\log \\pi$ $[n, K]$; `sample` is what the branches are mixed with, $e$
    $[n, K]$: a Gumbel-Softmax sample when training and $\\pi$ itself when predicting;
    `expected_log` is $\\sum_k e_k \\log \\pi_k$ $[n]$ where a kernel gave it with the others.
    """

    log_posterior: Tensor
    sample: Tensor
    expected_log: Tensor | None = None

    def first(self, num_nodes: int) -> Environment:
        """The inference for the first nodes; itself for all, as gradients of slices are copied."""
        if num_nodes == len(self.sample):
            return self
        log_posterior, sample, expected_log = self
        if expected_log is not None:
            expected_log = expected_log[:num_nodes]
        return Environment(log_posterior[:num_nodes], sample[:num_nodes], expected_log)

    def total_expected_log(self) -> Tensor:
        """$\\sum_v \\sum_k e_{vk} \\log \\pi_{vk}$, which the regulariser reads, a scalar."""
        if self.expected_log is not None:
            return self.expected_log.sum()
        return (self.sample * self.log_posterior).sum()


class EnvironmentEstimator(nn.Module):
    r"""Posterior of a layer's environment,

    .. math:: \pi_v = \mathrm{softmax}(W_S z_v) \quad\text{(node)}, \qquad
              \pi_v = \mathrm{softmax}(W_N (\hat A z)_v + W_S z_v) \quad\text{(graph)},

    and its Gumbel-Softmax sample $e_v = \mathrm{softmax}((\log\pi_v + g) / \tau)$.

    Args:
        hidden: $H$, width of $z$.
        num_environments: $K$.
        kind: `node` reads a node alone (with bias), `graph` also its neighbours (no bias).
        tau: Temperature of the sample.
        operator: $\hat A$ of `graph` where it has a propagation of its own; None where it shares
            the states that the branches gathered.

    Shapes:
        - z $[n, H]$, for `graph` gathered $\hat A z$ and z $[n, H]$ → :class:`Environment` of n
          nodes
    """

    def __init__(
        self,
        hidden: int,
        num_environments: int,
        kind: EstimatorKind = "node",
        tau: float = 1.0,
        operator: Operator | None = None,
    ) -> None:
        super().__init__()
        self.kind = kind
        self.tau = tau
        self.operator = operator
        width = hidden if kind == "node" else 2 * hidden
        self.linear = nn.Linear(width, num_environments, bias=kind == "node")
        if kind == "graph":
            bound = 1 / math.sqrt(num_environments)
            nn.init.uniform_(self.linear.weight, -bound, bound)

    def read(self, states: LayerInput) -> Environment:
        """The environment of a layer's destinations."""
        if self.operator is not None:
            return self.propagate(states.matrix(self.operator), states.columns(self))
        return self(states.own if self.kind == "node" else states.gathered)

    def forward(self, z: Tensor | Gathered) -> Environment:
        weight, bias = self.linear.weight, self.linear.bias
        own = z.own if isinstance(z, Gathered) else z
        draws = self._draws(own.new_empty(len(own), len(weight)))
        return Environment(*infer(z, weight, bias, draws, self.tau))

    def maps(self) -> Tensor | None:
        """$[W_N^\\top \\| W_S^\\top]$ $[H, 2K]$, for `propagate`."""
        if self.operator is None:
            return None
        return torch.cat(self.linear.weight.chunk(2, dim=1)).t()

    def propagate(self, matrix: SparseMatrix, mapped: Tensor) -> Environment:
        r"""`graph` from $\hat A$ $[n, n_{src}]$, where only it needs $\hat A z$.

        $W_N (\hat A z) = \hat A (W_N z)$: K columns of z `maps`, $[n_{src}, 2K]$, are propagated in
        place of H.
        """
        neighbours, own = mapped.chunk(2, dim=1)
        logits = multiply(matrix, neighbours.contiguous()) + own[: matrix.shape[0]]
        return Environment(*sample(logits, self._draws(logits), self.tau))

    def _draws(self, like: Tensor) -> Tensor | None:
        """What Gumbel noise is made of; None when predicting."""
        return draw(like) if self.training else None


def draw(like: Tensor) -> Tensor:
    """Exponential numbers, $-\\log u$, in the shape of `like`: Gumbel noise is $-\\log$ of them."""
    return torch.empty_like(like).exponential_()
