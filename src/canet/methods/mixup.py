"""Mixup of pairs of nodes, each with its own neighbourhood."""

from dataclasses import dataclass

import torch
from torch import Tensor

from canet.methods.base import Batch, Method, Settings, TrainingView
from canet.methods.traits import Traits
from canet.nn import Block, PlainModel
from canet.settings import setting
from canet.util.colour import Colour


@dataclass(frozen=True)
class MixupSettings(Settings):
    alpha: float = setting(
        4.0,
        "α of the mixing ratio λ ~ Beta(α, α), drawn in each step",
        above=0,
        search=(0.5, 1.0, 2.0, 4.0),
    )


class Mixup(Method):
    r"""Mixup with two-branch graph convolutions (Wang et al., WWW '21). A training node i and its
    partner j share one state, convolved with the neighbours of each,

    .. math:: \tilde z^{(l+1)} = \lambda f(\tilde z^{(l)}, \{z_v^{(l)}\}_{v \in N(i)})
              + (1 - \lambda) f(\tilde z^{(l)}, \{z_v^{(l)}\}_{v \in N(j)}), \quad
              \tilde z^{(1)} = \lambda x_i + (1 - \lambda) x_j,

    where the states $z$ of the neighbours are those of the plain model. The loss is
    $\lambda\,\ell(\tilde z, y_i) + (1 - \lambda)\,\ell(\tilde z, y_j)$. The partners are a random
    permutation of the training nodes.

    The plain model and both convolutions are computed in one pass over a graph in which every
    training node has two copies, one for each role in a pair. A copy reads the neighbours of its
    node, and no other node reads the copy.
    """

    name = "mixup"
    label = "Mixup"
    colour = Colour("#8c6d00", "#c9a94a")
    summary = "mixes the states and labels of pairs of nodes"
    paper = "Wang et al., Mixup for Node and Graph Classification, WWW 2021"
    settings_type = MixupSettings
    traits = Traits()
    model: PlainModel
    blocks: list[Block]

    def prepare(self, view: TrainingView) -> None:
        _, blocks = view.read(view.train)
        n = view.train.numel()
        self.blocks = [block.with_copies(n, block.num_dst) for block in blocks[:-1]]
        self.blocks.append(blocks[-1].with_copies(n, num_dst=0))

    def loss(self, batch: Batch) -> Tensor:
        alpha = self.settings.alpha
        ratio = float(torch.distributions.Beta(alpha, alpha).sample())
        partner = torch.randperm(batch.y.numel(), device=batch.y.device)
        return self.mixed_loss(batch, partner, ratio)

    def mixed_loss(self, batch: Batch, partner: Tensor, ratio: float) -> Tensor:
        """Return the loss if node i has weight $\\lambda$ (`ratio`) and `partner[i]` the rest.

        Shapes:
            - partner $[n]$, a permutation → a scalar
        """
        n, inverse = partner.numel(), partner.argsort()

        def mix(z: Tensor) -> Tensor:
            mixed = ratio * z[:n] + (1 - ratio) * z[n : 2 * n].index_select(0, partner)
            return torch.cat([mixed, mixed.index_select(0, inverse), z[2 * n :]])

        z = self.model.project(batch.x)
        z = mix(torch.cat([z[:n], z[:n], z]))
        logits = self.model.propagate(z, self.blocks, mix).logits[:n]
        of_partner = None if batch.weight is None else batch.weight[partner]
        losses = ratio * self.node_losses(logits, batch.y, batch.weight)
        others = self.node_losses(logits, batch.y[partner], of_partner)
        return (losses + (1 - ratio) * others).mean()
