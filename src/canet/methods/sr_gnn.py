"""Shift-robust GNN: reweights training nodes and aligns their moments with those of the graph."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional as F

from canet.methods.base import Batch, Method, Settings, TrainingView
from canet.methods.mean_matching import mean_matching_weights
from canet.methods.traits import Traits
from canet.nn import Block, Features, PlainModel
from canet.settings import setting
from canet.util.colour import Colour

MAX_SAMPLE = 1000  # size of the sample of the graph, and number of training nodes in the solver
NUM_MOMENTS = 5


@dataclass(frozen=True)
class SRGNNSettings(Settings):
    cmd_weight: float = setting(
        1.0, "λ, weight of the moment discrepancy", minimum=0, search=(0.1, 0.5, 1.0, 2.0)
    )
    min_weight: float = setting(
        0.2, "smallest weight of a training node", minimum=0, below=1, search=(0.0, 0.2, 0.5)
    )
    max_weight: float = setting(
        10.0, "largest weight of a training node", minimum=1, search=(2.0, 10.0)
    )


class SRGNN(Method):
    r"""Shift-robust GNN (Zhu et al., NeurIPS '21). It minimises

    .. math:: \frac{1}{n} \sum_i \beta_i \ell_i
              + \lambda\,\mathrm{CMD}(\tanh Z_{train}, \tanh Z_{sample}),

    where Z are embeddings and the sample is drawn once from the observed nodes outside the training
    set. The weights $\beta$ match the mean of the training nodes to that of the sample in the
    feature space of a kernel. Their mean is one in every class. They are computed before training
    on propagated features, for at most `MAX_SAMPLE` training nodes. Each other training node gets
    the weight of the nearest of them, rescaled so that the mean of its class stays one.
    """

    name = "sr_gnn"
    label = "SR-GNN"
    colour = Colour("#000000", "#f2f2f2")
    summary = "reweights training nodes and aligns their moments with those of the whole graph"
    paper = (
        "Zhu et al., Shift-Robust GNNs: Overcoming the Limitations of Localized Graph Training "
        "Data, NeurIPS 2021"
    )
    settings_type = SRGNNSettings
    traits = Traits(capturable=True)
    model: PlainModel
    sample: tuple[Features, Sequence[Block]]
    beta: Tensor

    def prepare(self, view: TrainingView) -> None:
        others = view.observed[~torch.isin(view.observed, view.train)]
        unseen = others if others.numel() else view.observed
        size = min(view.train.numel(), MAX_SAMPLE)
        self.sample = view.read(unseen[torch.randperm(unseen.numel())[:size]])
        chosen = torch.randperm(view.train.numel())[:size]
        train, target = self.propagated(*view.read(view.train)), self.propagated(*self.sample)
        limits = self.settings.min_weight, self.settings.max_weight
        weights = mean_matching_weights(train[chosen], target, view.y[chosen], *limits)
        nearest = [torch.cdist(part, train[chosen]).argmin(dim=1) for part in train.split(size)]
        beta = weights[torch.cat(nearest)]
        member = F.one_hot(view.y).to(beta)
        beta = beta / (member @ (member.t() @ beta / member.sum(dim=0).clamp_min(1)))
        beta = beta.to(self.model.phi_in.weight)
        self.register_buffer("beta", beta, persistent=False)

    @torch.no_grad()
    def propagated(self, x: Features, blocks: Sequence[Block]) -> Tensor:
        """Return features $[n, H]$: mapped by the untrained $\\phi_{in}$, averaged over L hops."""
        z = self.model.map_in(x)
        for block in blocks:
            z = self.model.average(z, block)
        return z.double().cpu()

    def loss(self, batch: Batch) -> Tensor:
        prediction = self.model(batch.x, batch.blocks)
        sample = self.model(*self.sample).embedding
        discrepancy = central_moment_discrepancy(prediction.embedding.tanh(), sample.tanh(), 2.0)
        losses = self.beta * self.node_losses(prediction.logits, batch.y, batch.weight)
        return losses.mean() + self.settings.cmd_weight * discrepancy


def central_moment_discrepancy(first: Tensor, second: Tensor, width: float) -> Tensor:
    r"""Central moment discrepancy (Zellinger et al., ICLR '17) of samples from $[a, b]^H$,

    .. math:: \frac{\|\bar p - \bar q\|}{b - a} + \sum_{k=2}^{5}
              \frac{\|\mathrm{mean}(p - \bar p)^k - \mathrm{mean}(q - \bar q)^k\|}{(b - a)^k}.

    Shapes:
        - p $[n, H]$, q $[m, H]$, width $b - a$ → a scalar
    """
    means = first.mean(dim=0), second.mean(dim=0)
    total = (means[0] - means[1]).norm() / width
    first, second = (first - means[0]) / width, (second - means[1]) / width
    powers = first, second
    for _ in range(2, NUM_MOMENTS + 1):
        powers = powers[0] * first, powers[1] * second
        total = total + (powers[0].mean(dim=0) - powers[1].mean(dim=0)).norm()
    return total
