"""Base classes of the models: (features, blocks) or (features, edges) → logits."""

from collections.abc import Callable, Sequence
from copy import copy
from dataclasses import dataclass, replace
from typing import ClassVar, Literal, NamedTuple, Self, get_args

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from canet.errors import InputError, check_name
from canet.nn.blocks import Block, Direction, Operator
from canet.nn.dropout import dropout
from canet.nn.environment import Environment
from canet.nn.normalised import cached_graph
from canet.nn.operations import multiply
from canet.nn.sparse_matrix import SparseMatrix


@dataclass(frozen=True)
class ShiftedFeatures:
    r"""Features with an offset for each group of nodes, $x_v + o_{g(v)}$.

    The sum is never stored: a linear map of it is $x W + M (o W)$.
    """

    x: "Features"  # features $[n, D]$: dense, sparse, or again :class:`ShiftedFeatures`
    offset: Tensor  # offset $[G, D]$ of each group
    # One-hot group membership $M$ $[n, G]$, dense or sparse. A node without a group has a row of
    # zeros.
    member: Tensor | SparseMatrix

    @property
    def shape(self) -> tuple[int, ...]:
        return tuple(self.x.shape)

    def to(self, device: torch.device | str) -> "ShiftedFeatures":
        return ShiftedFeatures(self.x.to(device), self.offset.to(device), self.member.to(device))


Features = Tensor | SparseMatrix | ShiftedFeatures
Exchange = Callable[[Tensor], Tensor]
Norm = Literal["none", "layer"]


def rows_of(x: Features, nodes: Tensor) -> Features:
    """Return the features of the given nodes $[n]$, in this order."""
    if isinstance(x, ShiftedFeatures):
        return ShiftedFeatures(rows_of(x.x, nodes), x.offset, _select(x.member, nodes))
    return _select(x, nodes)


def linear_map(x: Features, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """Return $x W^T + b$ $[n, H]$ for W $[H, D]$, without converting a sparse x to dense."""
    if isinstance(x, ShiftedFeatures):
        offset = F.linear(x.offset, weight)
        z = linear_map(x.x, weight, bias)
        if isinstance(x.member, Tensor):
            return torch.addmm(z, x.member, offset)
        return z + multiply(x.member, offset)
    if isinstance(x, Tensor):
        return F.linear(x, weight, bias)
    product = multiply(x, weight.t())
    return product if bias is None else product + bias


def _select(rows: Tensor | SparseMatrix, nodes: Tensor) -> Tensor | SparseMatrix:
    return rows[nodes] if isinstance(rows, Tensor) else rows.select_rows(nodes)


class Prediction(NamedTuple):
    """Output of a forward pass for n predicted nodes.

    `logits` $[n, C]$; `embedding` $[n, H]$, the input of the last linear map, or None for a model
    that has none; `environments`, one per layer for models that infer them. Their first n rows are
    the predicted nodes.
    """

    logits: Tensor
    embedding: Tensor | None = None
    environments: tuple[Environment, ...] = ()

    @property
    def representation(self) -> Tensor:
        """The embedding; for a model without one, the log probabilities $[n, C]$."""
        return self.logits.log_softmax(dim=1) if self.embedding is None else self.embedding


class GraphModel(nn.Module):
    """Base class of the models, with input map $\\phi_{in}$ to H dimensions and output map
    $\\phi_{out}$ to C classes.

    Subclasses define `operators` and `forward_blocks`.

    Args:
        num_features: $D$.
        num_classes: $C$.
        hidden: $H$.
        num_layers: $L$.
        dropout: Dropout probability of inputs and hidden units in training.
        direction: Propagate `along` the edges or `against` them.
        norm: `layer` applies LayerNorm (Ba et al., 2016) to the hidden state after every layer,
            `none` does not.

    Shapes:
        - x $[N, D]$ (dense or sparse CSR), edge_index $[2, E]$, batch $[N]$ (optional: graph number
          of each node, for models that attend over whole graphs) → logits $[N, C]$. The graph is
          normalised once and reused while `edge_index` exists.
        - x $[n_{src}, D]$ (dense, a :class:`SparseMatrix`, or :class:`ShiftedFeatures`), L blocks
          → :class:`Prediction`
    """

    reads_products: bool = False  # whether the first map was applied before; see `reading_products`

    def __init__(
        self,
        num_features: int,
        num_classes: int,
        hidden: int = 64,
        num_layers: int = 2,
        dropout: float = 0.0,
        direction: Direction = "along",
        norm: Norm = "none",
    ) -> None:
        super().__init__()
        check_name("direction", direction, get_args(Direction))
        check_name("norm", norm, get_args(Norm))
        if min(num_layers, hidden) < 1:
            raise InputError(
                f"num_layers is {num_layers} and hidden is {hidden}: both must be 1 or more"
            )
        self.hidden = hidden
        self.num_layers = num_layers
        self.dropout = dropout
        self.direction = direction
        self.phi_in = nn.Linear(num_features, hidden)
        self.phi_out = nn.Linear(hidden, num_classes)
        self.norms = nn.ModuleList(
            nn.LayerNorm(hidden) for _ in range(self.num_norms if norm == "layer" else 0)
        )
        self.setup()

    def setup(self) -> None:
        """Create the parameters between the input map and the output map."""

    @property
    def operators(self) -> tuple[Operator, ...]:
        """Operators that the blocks must contain."""
        raise NotImplementedError

    @property
    def num_norms(self) -> int:
        """Number of LayerNorm modules with `norm="layer"`."""
        return self.num_layers

    def forward(
        self,
        x: Features,
        edge_index: Tensor | Sequence[Block],
        edge_weight: Tensor | None = None,
        batch: Tensor | None = None,
    ) -> Tensor | Prediction:
        """Return the logits $[N, C]$ of all nodes for `x` $[N, D]$ and `edge_index` $[2, E]$.

        With blocks instead of `edge_index`, return a :class:`Prediction`.

        Args:
            x: Features, dense or sparse.
            edge_index: Edges as pairs (source, target).
            edge_weight: Weights ≥ 0 of the edges $[E]$: an edge of weight w counts like w edges.
            batch: Number $[N]$ of the graph of each node, if there are several graphs.
        """
        if not isinstance(edge_index, Tensor):
            return self.forward_blocks(x, edge_index)
        if isinstance(x, Tensor) and x.layout == torch.sparse_csr:
            x = SparseMatrix.from_torch(x)
        weight = self.phi_out.weight
        arguments = edge_index, x.shape[0], self.operators, batch, edge_weight, weight.dtype
        graph = cached_graph(*arguments)
        return self.forward_blocks(x, graph.whole(self.num_layers, weight.device).blocks).logits

    def forward_blocks(self, x: Features, blocks: Sequence[Block]) -> Prediction:
        """Predict the destination nodes of the last block."""
        raise NotImplementedError

    def first_states(self, x: Features) -> Tensor:
        """Return the input $[n, s]$ of the first layer, to predict layer by layer."""
        raise NotImplementedError

    def next_states(self, layer: int, states: Tensor, block: Block) -> Tensor:
        """Apply one layer: its input $[n_{src}, s]$ → the input $[n_{dst}, s']$ of the next."""
        raise NotImplementedError

    def last_prediction(self, states: Tensor) -> Prediction:
        """Return the prediction from the states after the last layer; without environments."""
        raise NotImplementedError

    def graph_sums(self, layer: int, states: Tensor, number: Tensor, num_graphs: int) -> Tensor:
        """Return the sums that a layer needs over graphs; see `Branches.graph_sums`."""
        raise NotImplementedError

    def normalise(self, z: Tensor, layer: int) -> Tensor:
        """Normalise the hidden state z $[m, H]$ after a layer, if `norm` is `layer`."""
        return self.norms[layer](z) if len(self.norms) else z

    def drop(self, z: Tensor) -> Tensor:
        return dropout(z, self.dropout, self.training)

    def project(self, x: Features, bias: Tensor | None = None) -> Tensor:
        """Return $x W_{in} + b$ $[n_{src}, H]$ after dropout of x, but not of its offsets."""
        return self.map_in(self._dropped(x), bias)

    def _dropped(self, x: Features) -> Features:
        if isinstance(x, ShiftedFeatures):
            return replace(x, x=self._dropped(x.x))
        if isinstance(x, Tensor):
            return self.drop(x)
        if self.training and self.dropout > 0:
            return SparseMatrix(x.pattern, self.drop(x.value))
        return x

    def map_in(self, x: Features, bias: Tensor | None = None) -> Tensor:
        """Return $x W_{in} + b$ $[n_{src}, H]$."""
        if self.reads_products:
            assert isinstance(x, Tensor)
            return x if bias is None else x + bias
        return linear_map(x, self.phi_in.weight, bias)

    def reading_products(self) -> Self:
        """Return this model with the input $x W_{in}$ $[n_{src}, H]$ in place of features."""
        model = copy(self)
        model.reads_products = True
        return model


class PlainModel(GraphModel):
    """A model without environments. A forward pass is `project`, then `propagate`.

    Methods use `propagate` (with `mix`) and `average` to compute more than predictions. Subclasses
    define `operator`, `next_states`, `last_prediction`, and `enter` if something precedes the first
    layer.
    """

    has_residual_links: ClassVar[bool] = True
    operator: Operator  # the operator of all layers, if they have only one

    @property
    def operators(self) -> tuple[Operator, ...]:
        return (self.operator,)

    def forward_blocks(self, x: Features, blocks: Sequence[Block]) -> Prediction:
        return self.propagate(self.project(x), blocks)

    def propagate(
        self, z: Tensor, blocks: Sequence[Block], mix: Exchange = lambda z: z
    ) -> Prediction:
        """Apply all layers to $x W_{in}$ $[n_{src}, H]$.

        `mix` may exchange states between nodes, $[m, H]$ → $[m, H]$. It is applied to the embedding
        and to the input of every layer after dropout, but not to the features.
        """
        states = self.enter(z)
        for layer, block in enumerate(blocks):
            states = self.next_states(layer, states, block, mix)
        return self.last_prediction(states, mix)

    def first_states(self, x: Features) -> Tensor:
        return self.enter(self.project(x))

    def enter(self, z: Tensor) -> Tensor:
        """Return the input of the first layer, for $x W_{in}$ $[n_{src}, H]$."""
        return z

    def next_states(
        self, layer: int, states: Tensor, block: Block, mix: Exchange = lambda z: z
    ) -> Tensor:
        raise NotImplementedError

    def last_prediction(self, states: Tensor, mix: Exchange = lambda z: z) -> Prediction:
        raise NotImplementedError

    def average(self, z: Tensor, block: Block) -> Tensor:
        """Return the mean of z $[n_{src}, H]$ over each node and its neighbours: $[n_{dst}, H]$.

        The weights are those of the layers, without learned attention.
        """
        matrix = block.matrices[self.operator]
        return multiply(matrix, z) / multiply(matrix, torch.ones_like(z[:, :1]))
