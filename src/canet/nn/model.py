"""What every model is: (features, blocks) → logits, with a linear map at each end."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from torch import Tensor, nn
from torch.nn import functional as F

from canet.nn.blocks import Block, Operator
from canet.nn.dropout import dropout
from canet.nn.environment import Environment
from canet.nn.sparse_matrix import SparseMatrix

Features = Tensor | SparseMatrix


def rows_of(x: Features, nodes: Tensor) -> Features:
    """The features of some nodes $[n]$, in their order."""
    return x[nodes] if isinstance(x, Tensor) else x.select_rows(nodes)


class Prediction(NamedTuple):
    """A forward pass for n predicted nodes.

    `logits` $[n, C]$; `embedding` $[n, H]$, the representation that the last linear map reads;
    `environments`, one per layer for models that infer them, whose first n rows are the predicted
    nodes.
    """

    logits: Tensor
    embedding: Tensor
    environments: tuple[Environment, ...] = ()


class GraphModel(nn.Module):
    """Base of the models: a linear map $\\phi_{in}$ into H dimensions and one, $\\phi_{out}$, out.

    Subclasses name the operators that their blocks must hold and what happens between.

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

    def forward(self, x: Features, blocks: Sequence[Block]) -> Prediction:
        raise NotImplementedError

    def drop(self, z: Tensor) -> Tensor:
        return dropout(z, self.dropout, self.training)

    def project(self, x: Features, bias: Tensor | None = None) -> Tensor:
        """$x W_{in} + b$ $[n_{src}, H]$ after dropout. A sparse x stays sparse."""
        if isinstance(x, Tensor):
            return F.linear(self.drop(x), self.phi_in.weight, bias)
        if self.training and self.dropout > 0:
            x = SparseMatrix(x.pattern, self.drop(x.value))
        product = x @ self.phi_in.weight.t()
        return product if bias is None else product + bias
