"""Domain-adversarial training: embeddings from which the environment cannot be predicted."""

from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from canet.methods.base import MAX_WIDTH, Batch, Method, Settings, TrainingView
from canet.methods.traits import Traits
from canet.settings import setting
from canet.util.colour import Colour

STEEPNESS = 10.0  # γ of the paper's schedule


@dataclass(frozen=True)
class DANNSettings(Settings):
    """Settings of DANN. The paper searches `reversal` from 0.01 to 1."""

    reversal: float = setting(
        0.1,
        "scale of the reversed gradient at the end of training",
        minimum=0,
        search=(0.01, 0.03, 0.1, 0.3, 1.0),
    )
    discriminator_hidden: int = setting(
        256,
        "width of the discriminator's hidden layer",
        minimum=1,
        maximum=MAX_WIDTH,
        search=(64, 128, 256),
    )


class DANN(Method):
    r"""DANN (Ganin et al., JMLR '16). A discriminator d predicts the environment from embeddings z.
    The objective is

    .. math:: \frac{1}{n} \sum_v \left[ \ell_v
              + \mathrm{CE}(d(\mathrm{reverse}_{\lambda_p}(z_v)), e_v) \right],
              \qquad \lambda_p = r \left( \frac{2}{1 + \exp(-10 p)} - 1 \right),

    where the gradient of the discriminator's loss is multiplied by $-\lambda_p$ before it reaches
    the model. p increases from 0 to 1 in training: it is the number of finished updates, divided by
    that of all epochs. r is the setting `reversal`.
    """

    name = "dann"
    label = "DANN"
    colour = Colour("#c46a9c", "#e3a3c6")
    summary = "embeddings from which a discriminator cannot predict the environment"
    paper = "Ganin et al., Domain-Adversarial Training of Neural Networks, JMLR 2016"
    traits = Traits(needs_environments=True, trains_in_batches=True, capturable=True)
    settings_type = DANNSettings
    updates: Tensor
    steps_per_epoch = 1

    def setup(self) -> None:
        self.discriminator = nn.Sequential(
            nn.Linear(self.settings.hidden, self.settings.discriminator_hidden),
            nn.ReLU(),
            nn.Linear(self.settings.discriminator_hidden, self.num_environment_labels),
        )
        self.register_buffer("updates", torch.zeros((), dtype=torch.long))

    def prepare(self, view: TrainingView) -> None:
        self.steps_per_epoch = view.steps_per_epoch

    def loss(self, batch: Batch) -> Tensor:
        prediction = self.model(batch.x, batch.blocks)
        supervised = self.node_losses(prediction.logits, batch.y, batch.weight).mean()
        reversed_embedding = reverse(prediction.embedding, self.strength())
        environment_logits = self.discriminator(reversed_embedding)
        if self.training:
            self.updates += 1
        target = self.membership(batch.environment)
        return supervised + F.cross_entropy(environment_logits, target)

    def strength(self) -> Tensor:
        """Return $\\lambda_p$ of the next update, a scalar."""
        progress = self.updates / (self.settings.epochs * self.steps_per_epoch)
        return self.settings.reversal * (2 * torch.sigmoid(STEEPNESS * progress) - 1)


def reverse(x: Tensor, strength: Tensor) -> Tensor:
    """Return x with a gradient that is reversed and scaled."""
    same = x.view_as(x)
    same.register_hook(lambda grad: -strength * grad)
    return same
