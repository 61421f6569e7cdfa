"""Correlation alignment: embeddings with the same mean and covariance in every environment."""

from dataclasses import dataclass

import torch
from torch import Tensor

from canet.methods.base import Batch, Method, Settings
from canet.methods.traits import Traits
from canet.settings import setting
from canet.util.colour import Colour


@dataclass(frozen=True)
class CORALSettings(Settings):
    penalty_weight: float = setting(
        1.0, "λ, weight of the distance between environments", minimum=0, search=(0.1, 1.0, 10.0)
    )


class CORAL(Method):
    r"""Deep CORAL (Sun and Saenko, ECCV '16) for several environments, extended to means. It
    minimises

    .. math:: \frac{1}{n} \sum_v \ell_v + \frac{\lambda}{\binom{E}{2}} \sum_{e < e'} \left(
              \frac{\|\mu_e - \mu_{e'}\|^2}{H} + \frac{\|C_e - C_{e'}\|_F^2}{H^2} \right),

    where $\mu_e$ and $C_e$ are the mean and covariance of the embeddings in an environment. The
    covariance of a single node is zero. In a batch, the pairs are those of the E environments that
    have a node in it.
    """

    name = "coral"
    label = "CORAL"
    colour = Colour("#009e73", "#3cc79f")
    summary = "embeddings with the same mean and covariance in every environment"
    paper = "Sun and Saenko, Deep CORAL: Correlation Alignment for Deep Domain Adaptation, 2016"
    traits = Traits(needs_environments=True, trains_in_batches=True, capturable=True)
    settings_type = CORALSettings

    def loss(self, batch: Batch) -> Tensor:
        prediction = self.model(batch.x, batch.blocks)
        supervised = self.node_losses(prediction.logits, batch.y, batch.weight).mean()
        distance = self.distance(prediction.embedding, batch.environment)
        return supervised + self.settings.penalty_weight * distance

    def distance(self, z: Tensor, environment: Tensor | None) -> Tensor:
        """Return the mean distance of two environments, a scalar, for embeddings z $[n, H]$."""
        member = self.membership(environment)
        size = member.sum(dim=0)
        means = member.t() @ z / size.clamp(min=1).unsqueeze(1)
        centred = z - member @ means
        products = torch.einsum("ne,nh,nk->ehk", member, centred, centred)
        covariances = products / (size - 1).clamp(min=1).view(-1, 1, 1)
        return _mean_over_pairs(means, size > 0) + _mean_over_pairs(covariances, size > 0)


def _mean_over_pairs(x: Tensor, is_present: Tensor) -> Tensor:
    """Return the mean squared entry of $x_i - x_j$ over all pairs of present rows; 0 for one row.

    The other rows must be 0. The squared differences of n numbers sum to n times their squared
    deviations from the mean.
    """
    count = is_present.sum(dtype=x.dtype)
    mean = x.mean(dim=0) * (len(x) / count)
    mask = is_present.view(-1, *[1] * mean.dim())
    deviations = torch.where(mask, x - mean, 0).square().sum(dim=0)
    return 2 * deviations.mean() / (count - 1).clamp(min=1)
