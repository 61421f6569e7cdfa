"""What every model is: (features, blocks) → logits, with a linear map at each end."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from torch import Tensor, nn
from torch.nn import functional as F

from canet.nn.blocks import Block, Operator
from canet.nn.environment import Environment
from canet.nn.sparse_matrix import SparseMatrix

Features = Tensor | SparseMatrix


class Prediction(NamedTuple):
    """A forward pass for n predicted nodes.

    `logits` $[n, C]$; `embedding` $[n, H]$, the last hidden representation; `environments`, one
    per layer for models that infer them, whose first n rows are the predicted nodes.
    """

    logits: Tensor
    embedding: Tensor
    environments: tuple[Environment, ...] = ()


class GraphModel(nn.Module):
    """Base of the models: $\\phi_{in}$, L layers of propagation, $\\phi_{out}$.

    Subclasses give the operators that their blocks must hold and the layers between.

    Shapes:
        - x $[n_{src}, D]$ (dense, or a :class:`SparseMatrix`), L blocks → :class:`Prediction`
    """

    def __init__(
        self, num_features: int, num_classes: int, hidden: int, num_layers: int, dropout: float
    ) -> None:
        super().__init__()
        self.num_layers = num_layers
        self.dropout = dropout
        self.phi_in = nn.Linear(num_features, hidden)
        self.phi_out = nn.Linear(hidden, num_classes)

    @property
    def operators(self) -> tuple[Operator, ...]:
        """The matrices that the model's blocks must hold."""
        raise NotImplementedError

    def propagate(
        self, z: Tensor, blocks: Sequence[Block]
    ) -> tuple[Tensor, tuple[Environment, ...]]:
        """$z^{(1)}$ $[n_{src}, H]$ → $z^{(L+1)}$ $[n, H]$ and the layers' environments."""
        raise NotImplementedError

    def forward(self, x: Features, blocks: Sequence[Block]) -> Prediction:
        z = F.relu(self._encode(x))
        embedding, environments = self.propagate(z, blocks)
        logits = self.phi_out(self.drop(embedding))
        return Prediction(logits, embedding, environments)

    def drop(self, z: Tensor) -> Tensor:
        return F.dropout(z, self.dropout, self.training)

    def _encode(self, x: Features) -> Tensor:
        """$\\phi_{in}$ after dropout; a sparse x stays sparse: dropping a zero changes nothing."""
        if isinstance(x, Tensor):
            encoded: Tensor = self.phi_in(self.drop(x))
            return encoded
        if self.training and self.dropout > 0:
            x = SparseMatrix(x.pattern, self.drop(x.value))
        return x @ self.phi_in.weight.t() + self.phi_in.bias
