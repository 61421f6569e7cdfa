"""The environment estimator q(E|G): a categorical posterior over K pseudo-environments."""

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
    """The environments that one layer infers for n nodes.

    `log_posterior` is $\\log \\pi$ $[n, K]$. `sample` is $e$ $[n, K]$, the weights of the branches:
    a Gumbel-Softmax sample in training, $\\pi$ itself in prediction. `expected_log` is
    $\\sum_k e_k \\log \\pi_k$ $[n]$ if a fused kernel computed it, else None.
    """

    log_posterior: Tensor
    sample: Tensor
    expected_log: Tensor | None = None

    def first(self, num_nodes: int) -> "Environment":
        # The gradient of a slice is a copy: a slice of all nodes would waste memory.
        if num_nodes == len(self.sample):
            return self
        expected = None if self.expected_log is None else self.expected_log[:num_nodes]
        return Environment(self.log_posterior[:num_nodes], self.sample[:num_nodes], expected)

    def total_expected_log(self) -> Tensor:
        """Return $\\sum_v \\sum_k e_{vk} \\log \\pi_{vk}$, a scalar, for the regulariser."""
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
        kind: `node` reads the node alone (with bias), `graph` also its neighbours (no bias).
        tau: Temperature of the sample.
        operator: $\hat A$ of `graph` if the estimator computes its own propagation. If None, it
            uses $\hat A z$ as computed for the branches.

    Shapes:
        - z $[n, H]$ (`node`), or $\hat A z$ and z $[n, H]$ as :class:`Gathered` (`graph`)
          → :class:`Environment` of n nodes
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

    def estimate(self, states: LayerInput) -> Environment:
        """Infer the environments of a layer's destination nodes."""
        if self.operator is not None:
            matrix = states.block.matrices[self.operator]
            return self.propagate(matrix, states.projected(self))
        return self(states.own if self.kind == "node" else states.gathered)

    def forward(self, z: Tensor | Gathered) -> Environment:
        weight, bias = self.linear.weight, self.linear.bias
        own = z.own if isinstance(z, Gathered) else z
        draws = self._draws(own.new_empty(len(own), len(weight)))
        return Environment(*infer(z, weight, bias, draws, self.tau))

    def projection(self) -> Tensor | None:
        """$[W_N^\\top \\| W_S^\\top]$ $[H, 2K]$, for `propagate`."""
        if self.operator is None:
            return None
        return torch.cat(self.linear.weight.chunk(2, dim=1)).t()

    def propagate(self, matrix: SparseMatrix, projected: Tensor) -> Environment:
        r"""Infer the environments of `graph` if only the estimator needs $\hat A z$.

        Because $W_N (\hat A z) = \hat A (W_N z)$, only K columns are propagated instead of H.

        Shapes:
            - matrix $\hat A$ $[n, n_{src}]$, projected z $[n_{src}, 2K]$
              → :class:`Environment` of n nodes
        """
        neighbours, own = projected.chunk(2, dim=1)
        logits = multiply(matrix, neighbours.contiguous()) + own[: matrix.shape[0]]
        return Environment(*sample(logits, self._draws(logits), self.tau))

    def _draws(self, like: Tensor) -> Tensor | None:
        """Exponential random numbers for the Gumbel noise; None in prediction."""
        return draw(like) if self.training else None


def draw(like: Tensor) -> Tensor:
    """Draw exponential random numbers r in the shape of `like`; $-\\log r$ is Gumbel noise."""
    return torch.empty_like(like).exponential_()
