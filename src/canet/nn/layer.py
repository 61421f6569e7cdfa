"""Base class of the layers: K branches over the states of a block, mixed per node."""

import math
from collections.abc import Sequence
from typing import ClassVar, Literal, Protocol

import torch
from torch import Tensor, nn

from canet.nn.blocks import Block, Direction, Operator
from canet.nn.operations import Gathered, gather

Propagation = Literal["symmetric", "sum"]


class Projector(Protocol):
    """A module that may need a linear projection of a layer's states."""

    def projection(self) -> Tensor | None:
        """Projection matrix $[H, c]$; None if the module needs none."""


class LayerInput:
    r"""Input of a layer: its states, and products of them that its modules share.

    Each product is computed once. The projections of z $[n_{src}, H]$ by the branches and by other
    modules are one matrix product. `gathered` is $\hat A z$ and $z$ of the destinations,
    $[n_{dst}, H]$ each, if the branches have a `gather_operator` $\hat A$.
    """

    gathered: Gathered

    def __init__(
        self, z: Tensor, block: Block, branches: "Branches", others: Sequence[Projector] = ()
    ) -> None:
        self.z = z
        self.block = block
        if branches.gather_operator is None:
            self.own = z[: block.num_dst]
        else:
            propagation = block.matrices[branches.gather_operator]
            self.gathered = gather(propagation, z, branches.uses_mix_joined)
            self.own = self.gathered.own
        modules: tuple[Projector, ...] = (branches, *others)
        projections = {m: matrix for m in modules if (matrix := m.projection()) is not None}
        self._projected: dict[Projector, Tensor] = {}
        if projections:
            widths = [matrix.shape[1] for matrix in projections.values()]
            products = (z @ torch.cat(list(projections.values()), dim=1)).split(widths, dim=1)
            self._projected = dict(zip(projections, products, strict=True))

    def projected(self, module: Projector) -> Tensor:
        """Return the states, multiplied by a module's projection: $[n_{src}, c]$."""
        return self._projected[module]


class Branches(nn.Module):
    r"""K branches of a backbone's layer, mixed per node, with a residual connection,

    .. math:: z'_u = \sigma\left(\sum_k e_{uk}\,\mathrm{branch}^{(k)}(z)_u + z_u\right),
              \quad \sigma = \mathrm{ReLU}.

    With K = 1, this is the backbone's plain layer. A subclass implements `setup` and `forward`, and
    `projection` if it needs a linear projection of z.

    Args:
        hidden: $H$.
        num_branches: $K$.
        direction: Propagate `along` the edges or `against` them.
        propagation: Normalisation of the convolutions; most backbones ignore it.

    Shapes:
        - input with z $[n_{src}, H]$, e $[n_{dst}, K]$ → $[n_{dst}, H]$
    """

    operators: tuple[Operator, ...]  # operators that the blocks must contain
    gather_operator: Operator | None = None
    """The operator of `LayerInput.gathered`, if the branches need it; an estimator may share it."""
    uses_mix_joined: ClassVar[bool] = False  # whether `forward` calls `mix_joined`

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
        """Create the parameters, and set `operators` and `gather_operator`."""
        raise NotImplementedError

    def new_maps(self, width: int) -> nn.Parameter:
        """Return random weights of K linear maps, $[K, I, H]$ for inputs of size I (`width`)."""
        bound = 1 / math.sqrt(self.hidden)
        weight = torch.empty(self.num_branches, width, self.hidden)
        return nn.Parameter(weight.uniform_(-bound, bound))

    def projection(self) -> Tensor | None:
        """Projection matrix $[H, c]$ for `LayerInput.projected`; None if there is none."""
        return None

    def graph_sums(self, z: Tensor, number: Tensor, num_graphs: int) -> Tensor:
        """Return the sums over graphs that `GraphSums` needs; only for the operator `graph`.

        Shapes:
            - states z $[n, H]$, number $[n]$ of each node's graph, -1 for none → $[G, ...]$
        """
        raise NotImplementedError

    def plain(self, z: Tensor, block: Block) -> Tensor:
        """Apply the layer with K = 1: z $[n_{src}, H]$ → $[n_{dst}, H]$."""
        return self(LayerInput(z, block, self), z.new_ones(block.num_dst, 1))
