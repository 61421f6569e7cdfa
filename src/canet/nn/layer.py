"""What a layer is: K branches over the states of a block, mixed per node."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar, Literal, Protocol

import torch
from torch import Tensor, nn

from canet.nn.blocks import Block, Direction, Operator
from canet.nn.operations import Gathered, gather
from canet.nn.sparse_matrix import SparseMatrix

Propagation = Literal["symmetric", "sum"]


class Reader(Protocol):
    """Who reads a layer's states, and may have them mapped first."""

    def maps(self) -> Tensor | None:
        """A linear map $[H, c]$ whose c columns of z it reads; None: it needs none."""


class LayerInput:
    r"""What a layer has at hand: its states and, each computed once, what its readers need of them.

    Args:
        z: States $[n_{src}, H]$.
        block: The layer's neighbourhood.
        branches: Who gathers $\hat A z$, and reads maps of z.
        others: Who reads maps of z, too: all of them are one product.
    """

    def __init__(
        self, z: Tensor, block: Block, branches: Branches, others: Sequence[Reader] = ()
    ) -> None:
        self.z = z
        self.block = block
        self._gathered: Gathered | None = None
        if branches.gathers is not None:
            self._gathered = gather(block.matrices[branches.gathers], z, branches.joins)
        self.own = z[: block.num_dst] if self._gathered is None else self._gathered.own
        readers = (branches, *others)
        maps = {reader: maps for reader in readers if (maps := reader.maps()) is not None}
        self._columns: dict[Reader, Tensor] = {}
        if maps:
            widths = [matrix.shape[1] for matrix in maps.values()]
            products = (z @ torch.cat(list(maps.values()), dim=1)).split(widths, dim=1)
            self._columns = dict(zip(maps, products, strict=True))

    @property
    def gathered(self) -> Gathered:
        r"""$\hat A z$ and $z$ of the destinations, $[n_{dst}, H]$ each."""
        assert self._gathered is not None
        return self._gathered

    def columns(self, reader: Reader) -> Tensor:
        """What a reader asked for, $[n_{src}, c]$."""
        return self._columns[reader]

    def matrix(self, operator: Operator) -> SparseMatrix:
        return self.block.matrices[operator]


class Branches(nn.Module):
    r"""K branches of a backbone's layer, mixed per node, and the residual link,

    .. math:: z'_u = \sigma\left(\sum_k e_{uk}\,\mathrm{branch}^{(k)}(z)_u + z_u\right),
              \quad \sigma = \mathrm{ReLU}.

    With K = 1 it is the backbone's plain layer. A subclass has `setup` and `forward`, and `maps` if
    it reads linear maps of z.

    Args:
        hidden: $H$.
        num_branches: $K$.
        direction: Propagate `along` the edges or `against` them.
        propagation: Normalisation of the convolutions, where a backbone leaves a choice.

    Shapes:
        - input with z $[n_{src}, H]$, e $[n_{dst}, K]$ → $[n_{dst}, H]$
    """

    operators: tuple[Operator, ...]
    """What the branches read of a graph."""
    gathers: Operator | None = None
    """The one of them whose product with z, if any, an estimator may share."""
    joins: ClassVar[bool] = False
    """Whether they read that product and z by `mix_joined`, where both may be made one at once."""

    def __init__(
        self,
        hidden: int,
        num_branches: int,
        direction: Direction = "along",
        propagation: Propagation = "symmetric",
    ) -> None:
        super().__init__()
        self.hidden = hidden
        self.num_branches = num_branches
        self.direction = direction
        self.propagation = propagation
        self.setup()

    def setup(self) -> None:
        """Make the parameters, and say what is read."""
        raise NotImplementedError

    def maps(self) -> Tensor | None:
        """A linear map $[H, c]$ whose c columns of z the branches read; most read none."""
        return None

    def forward(self, states: LayerInput, e: Tensor) -> Tensor:
        raise NotImplementedError

    def plain(self, z: Tensor, block: Block) -> Tensor:
        """The layer where K = 1: z $[n_{src}, H]$ → $[n_{dst}, H]$."""
        return self(LayerInput(z, block, self), z.new_ones(block.num_dst, 1))
