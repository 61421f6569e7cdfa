"""Empirical risk minimisation: the supervised loss without a penalty."""

from torch import Tensor

from canet.methods.base import Batch
from canet.methods.interventions import InterveningMethod
from canet.methods.traits import Traits
from canet.util.colour import Colour


class ERM(InterveningMethod):
    """Minimise the mean supervised loss over the training nodes (Vapnik, 1998)."""

    name = "erm"
    label = "ERM"
    colour = Colour("#0072b2", "#4fa9e0")
    summary = "the supervised loss without a penalty"
    paper = "Vapnik, Statistical Learning Theory, 1998"
    traits = Traits(trains_in_batches=True, capturable=True)

    def loss(self, batch: Batch) -> Tensor:
        return self.node_losses(self.predict(batch), batch.y, batch.weight).mean()
