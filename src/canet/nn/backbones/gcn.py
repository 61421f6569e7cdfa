"""Graph convolutions: the branches of CaNet-GCN, and a plain GCN."""

from torch import Tensor, nn
from torch.nn import functional as F

from canet.nn.backbones.backbone import Backbone
from canet.nn.blocks import Block, Kind, Operator
from canet.nn.layer import Branches, LayerInput
from canet.nn.model import Exchange, PlainModel, Prediction
from canet.nn.operations import mix_joined, multiply
from canet.util.colour import Colour


class ConvolutionBranches(Branches):
    r"""K graph convolutions, mixed per node, with a residual connection (CaNet-GCN),

    .. math:: z'_u = \sigma\left( \sum_k e_{uk} \left( W_D^{(k)} \sum_v \hat a_{uv} z_v
              + W_S^{(k)} z_u \right) + z_u \right), \quad \sigma = \mathrm{ReLU}.

    Propagation is linear, so all branches share one product $\hat A z$. Arguments and shapes as
    for :class:`Branches`.
    """

    uses_mix_joined = True
    kind: Kind | None = None  # normalisation of the sum over neighbours; None: `propagation`

    def setup(self) -> None:
        self.gather_operator = Operator(self.kind or self.propagation, self.direction)
        self.operators = (self.gather_operator,)
        self.weight = self.new_maps(2 * self.hidden)

    def forward(self, states: LayerInput, e: Tensor) -> Tensor:
        return mix_joined(states.gathered, self.weight, e)


class GCN(PlainModel):
    r"""Graph convolutional network (Kipf and Welling, ICLR '17),

    .. math:: z^{(l+1)} = \sigma(\hat A z^{(l)} W^{(l)} + b^{(l)}), \quad
              \hat A = \tilde D^{-1/2} (A + I) \tilde D^{-1/2},

    with L layers, $z^{(1)} = x$, and no $\sigma$ after the last layer. $\phi_{in}$ is the linear
    map of the first layer and $\phi_{out}$ that of the last. The embedding is the input of
    $\phi_{out}$, $\hat A z^{(L)}$. A network with one layer has both maps and no $\sigma$ between
    them. With `norm`, the argument of $\sigma$ is normalised. Arguments and shapes as for
    :class:`GraphModel`.
    """

    kind: Kind = "renormalised"
    has_residual_links = False

    def setup(self) -> None:
        self.operator = Operator(self.kind, self.direction)
        self.between = nn.ModuleList(
            nn.Linear(self.hidden, self.hidden) for _ in range(self.num_layers - 2)
        )
        for linear in self._maps():
            nn.init.xavier_uniform_(linear.weight)
            nn.init.zeros_(linear.bias)

    @property
    def num_norms(self) -> int:
        return max(1, self.num_layers - 1)

    def next_states(
        self, layer: int, states: Tensor, block: Block, mix: Exchange = lambda z: z
    ) -> Tensor:
        z = states if layer == 0 else mix(self.drop(states))
        if layer == self.num_layers - 1 > 0:
            return self.aggregate(layer, z, block)
        linear = self._maps()[layer]
        if layer > 0:
            z = z @ linear.weight.t()
        z = self.normalise(self.aggregate(layer, z, block) + linear.bias, layer)
        return F.relu(z) if self.num_layers > 1 else z

    def last_prediction(self, states: Tensor, mix: Exchange = lambda z: z) -> Prediction:
        z = mix(states)
        return Prediction(self.phi_out(z), z)

    def aggregate(self, layer: int, z: Tensor, block: Block) -> Tensor:
        """Return a layer's weighted sum of z $[n_{src}, H]$ over neighbours: $[n_{dst}, H]$.

        The layer's linear map is applied before the sum. The last of several layers applies it
        after the sum.
        """
        return multiply(block.matrices[self.operator], z)

    def _maps(self) -> list[nn.Linear]:
        return [self.phi_in, *self.between, self.phi_out]


BACKBONE = Backbone(
    name="gcn",
    label="GCN",
    colour=Colour("#0072b2", "#4fa9e0"),
    summary="graph convolutions",
    branches=ConvolutionBranches,
    model=GCN,
)
