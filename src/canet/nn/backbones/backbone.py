"""Backbone: a GNN architecture, as a plain model or as the branches of CaNet."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from torch import Tensor, nn
from torch.nn import functional as F

from canet.nn.blocks import Block, Operator
from canet.nn.layer import Branches
from canet.nn.model import Exchange, PlainModel, Prediction
from canet.nn.operations import multiply
from canet.util.colour import Colour


@dataclass(frozen=True)
class Backbone:
    """A GNN architecture, as a plain model or as the branches of CaNet.

    Args:
        name: Name on the command line and in configs.
        label, colour: Label and colour in tables, figures and pages.
        summary: One-line description for listings.
        branches: Layer class with K branches.
        model: Class of the plain model; None for :class:`ResidualModel` with one branch per layer.
    """

    name: str
    label: str
    colour: Colour
    summary: str
    branches: type[Branches]
    model: type[PlainModel] | None = None

    def plain(
        self, num_features: int, num_classes: int, residual: bool = False, **options: Any
    ) -> PlainModel:
        """Build the plain model; options are those of :class:`GraphModel`.

        With `residual`, the model has residual connections: it is a :class:`ResidualModel` if the
        plain model has none.
        """
        if self.model is None or (residual and not self.model.has_residual_links):
            return ResidualModel(self.branches, num_features, num_classes, **options)
        return self.model(num_features, num_classes, **options)


class ResidualModel(PlainModel):
    r"""CaNet without environments: layers with a single branch and a residual connection,

    .. math:: z^{(1)} = \sigma(\phi_{in}(x)), \quad
              z^{(l+1)} = \sigma(\mathrm{branch}^{(l)}(z^{(l)}) + z^{(l)}), \quad
              \hat y = \phi_{out}(z^{(L+1)}).

    With `norm`, each $z^{(l+1)}$ is normalised.

    Args:
        branches: Layer class. Other arguments as in :class:`GraphModel`.
    """

    def __init__(
        self, branches: type[Branches], num_features: int, num_classes: int, **options: Any
    ) -> None:
        super().__init__(num_features, num_classes, **options)
        self.layers: Sequence[Branches] = nn.ModuleList(  # type: ignore[assignment]
            branches(self.hidden, 1, self.direction) for _ in range(self.num_layers)
        )

    @property
    def operators(self) -> tuple[Operator, ...]:
        return self.layers[0].operators

    def enter(self, z: Tensor) -> Tensor:
        return F.relu(z + self.phi_in.bias)

    def next_states(
        self, layer: int, states: Tensor, block: Block, mix: Exchange = lambda z: z
    ) -> Tensor:
        return self.normalise(self.layers[layer].plain(mix(self.drop(states)), block), layer)

    def graph_sums(self, layer: int, states: Tensor, number: Tensor, num_graphs: int) -> Tensor:
        return self.layers[layer].graph_sums(states, number, num_graphs)

    def last_prediction(self, states: Tensor, mix: Exchange = lambda z: z) -> Prediction:
        z = mix(states)
        return Prediction(self.phi_out(self.drop(z)), z)

    def average(self, z: Tensor, block: Block) -> Tensor:
        if not self.operators:
            return z[: block.num_dst]
        matrix = block.matrices[self.operators[0]]
        total = multiply(matrix, z) + z[: block.num_dst]
        return total / (multiply(matrix, z.new_ones(len(z), 1)) + 1)
